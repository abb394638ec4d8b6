"""One entry of `log.dirs`: who owns it, what its checkpoints say, which partitions lie in it."""

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from siltstone.errors import CorruptCheckpointError, LogDirOfflineError, StorageError
from siltstone.ids import TopicId, TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import format_offsets, parse_offsets
from siltstone.log.cleaner_offsets import Offsets, fit_offset, maybe_change_cleaner_offsets
from siltstone.log.directory_lock import DirectoryLock
from siltstone.log.filenames import DirState
from siltstone.log.filesystem import FileSystem
from siltstone.log.identity import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
)
from siltstone.log.partition_log import PartitionLog
from siltstone.log.side_by_side import for_each

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """What a log directory says about its partitions before any of them is opened."""

    was_clean: bool
    partitions: tuple[TopicPartition, ...]
    doomed: tuple[str, ...]  # partition directories that wait for their removal
    topic_ids: Mapping[TopicPartition, TopicId]
    empty: frozenset[TopicPartition] = frozenset()  # directories without a single log file
    recovery_points: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_start_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def read_directory(fs: FileSystem, path: Path) -> DirectoryState:
    """Read what is known of a log directory; changes nothing."""
    partitions = []
    doomed = []
    topic_ids = {}
    empty = set()
    for name in fs.list_names(path):
        if not (path / name).is_dir() or filenames.is_foreign_dir(name):
            continue
        try:
            parsed = filenames.parse_partition_dir(name)
        except ValueError as error:
            raise CorruptCheckpointError(path, str(error)) from error
        if parsed.state is DirState.DELETE:
            doomed.append(name)
        elif parsed.state is DirState.LIVE:
            partitions.append(parsed.partition)
            if not any(filenames.LOG in file for file in fs.list_names(path / name)):
                empty.add(parsed.partition)
            metadata_path = path / name / filenames.PARTITION_METADATA
            metadata = fs.read_file(metadata_path)
            if metadata is not None:
                topic_ids[parsed.partition] = parse_partition_metadata(metadata_path, metadata)
    return DirectoryState(
        was_clean=(path / filenames.CLEAN_SHUTDOWN).exists(),
        partitions=tuple(partitions),
        doomed=tuple(doomed),
        topic_ids=topic_ids,
        empty=frozenset(empty),
        recovery_points=read_offsets(fs, path / filenames.RECOVERY_POINTS),
        log_start_offsets=read_offsets(fs, path / filenames.LOG_START_OFFSETS),
    )


def read_offsets(fs: FileSystem, path: Path) -> dict[TopicPartition, int]:
    """Read a checkpoint of offsets; an absent one has none."""
    data = fs.read_file(path)
    try:
        return {} if data is None else parse_offsets(path, data)
    except CorruptCheckpointError as error:
        # Both are only hints: recovery starts at zero, the log at its first segment.
        logger.warning("%s: ignored", error)
        return {}


class LogDirectory:
    """A log directory that this process owns, with the logs that lie in it."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.damaged: dict[TopicPartition, StorageError] = {}  # could not be opened; left alone
        self.failure: str | None = None
        self._fs = fs
        self._checkpointing = threading.Lock()
        if not path.exists():
            fs.mkdir(path)
            fs.fsync_dir(path.parent)  # Or a loss of power could take it, with all that is in it.
        self._lock = DirectoryLock(path)
        try:
            self.state = read_directory(fs, path)
            self.properties = self._read_properties()
        except BaseException:
            self._lock.release()
            raise

    def begin(self) -> None:
        """Begin to write: from here on a stop is unclean until `close` says otherwise."""
        self._fs.unlink(self.path / filenames.CLEAN_SHUTDOWN)
        self._fs.fsync_dir(self.path)

    def release(self) -> None:
        """Let others in, and leave everything as it is."""
        self._lock.release()

    @property
    def is_offline(self) -> bool:
        """Whether the disk has refused, which lasts until the directory is opened anew."""
        return self.failure is not None

    def take_offline(self, reason: str) -> None:
        """Serve nothing from here any more; the other directories go on."""
        if self.failure is None:
            logger.error("log directory %s is offline: %s", self.path, reason)
            self.failure = reason

    def check_online(self) -> None:
        """Raise LogDirOfflineError if the disk has refused before."""
        if self.failure is not None:
            raise LogDirOfflineError(self.path, f"offline: {self.failure}")

    def partition_path(self, partition: TopicPartition) -> Path:
        """Name the directory of a partition."""
        return self.path / filenames.partition_dir_name(partition)

    def write_topic_id(self, partitions: Sequence[TopicPartition], topic_id: TopicId) -> None:
        """Make the directories of new partitions, with the identity of their topic in them."""

        def make(partition: TopicPartition) -> None:
            directory = self.partition_path(partition)
            self._fs.mkdir(directory)
            self._fs.write_atomically(
                directory / filenames.PARTITION_METADATA, format_partition_metadata(topic_id)
            )

        for_each(partitions, make)
        self._fs.fsync_dir(self.path)

    def complete_topic_id(self, partition: TopicPartition, topic_id: TopicId) -> None:
        """Write the identity of a partition's topic if it is missing: Kafka takes it for stray."""
        path = self.partition_path(partition) / filenames.PARTITION_METADATA
        if not self.is_offline and not path.exists():
            self.write_topic_id([partition], topic_id)

    def remove_log(self, partition: TopicPartition) -> Path:
        """Rename a partition's directory out of the way and return the path to delete later."""
        log = self.logs.pop(partition)
        doomed = self.path / filenames.delete_dir_name(partition)
        self._fs.rename(log.directory, doomed)
        self._fs.fsync_dir(self.path)
        log.mark_deleted(doomed)
        self.write_checkpoints()
        maybe_change_cleaner_offsets(
            self._fs,
            self.path,
            lambda offsets: {p: o for p, o in offsets.items() if p != partition},
        )
        return doomed

    def settle_cleaner_offsets(self) -> None:
        """Forget up to where logs are clean that are gone; set back what lies outside of its log.

        Before anything is appended: a log that has lost its end and grows again would otherwise
        count as clean where no pass has been.
        """
        known = {*self.state.partitions, *self.logs}

        def settle(offsets: Offsets) -> Offsets:
            return {
                p: fit_offset(offset, log.log_start_offset, log.log_end_offset)
                if (log := self.logs.get(p)) is not None
                else offset
                for p, offset in offsets.items()
                if p in known
            }

        maybe_change_cleaner_offsets(self._fs, self.path, settle)

    def write_checkpoints(self) -> None:
        """Write down how far each log is durable, where it starts, and its high watermark."""
        # One at a time: the timer and whoever deletes a topic would move each other's new files.
        with self._checkpointing:
            self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        logs = dict(self.logs)  # Another thread may make a topic meanwhile.
        state = self.state
        self._write_offsets(
            filenames.RECOVERY_POINTS,
            {p: log.recovery_point for p, log in logs.items()}
            | {p: o for p, o in state.recovery_points.items() if p in self.damaged},
        )
        self._write_offsets(
            filenames.LOG_START_OFFSETS,
            {
                p: log.log_start_offset
                for p, log in logs.items()
                if log.log_start_offset > log.segments.first.base_offset
            }
            | {p: o for p, o in state.log_start_offsets.items() if p in self.damaged},
        )
        self._write_offsets(
            filenames.HIGH_WATERMARKS, {p: log.high_watermark for p, log in logs.items()}
        )

    def close(self) -> None:
        """Close every log, say that the stop was clean, and let others in."""
        try:
            if not self.is_offline:
                for_each(self.logs.values(), PartitionLog.close)
                self.write_checkpoints()
                # A log that could not be opened may need recovery, once somebody has mended it.
                if not self.damaged:
                    self._fs.write_atomically(
                        self.path / filenames.CLEAN_SHUTDOWN, format_clean_shutdown()
                    )
        except LogDirOfflineError as error:
            self.take_offline(str(error))
        finally:
            self._lock.release()

    def _read_properties(self) -> MetaProperties:
        path = self.path / filenames.META_PROPERTIES
        data = self._fs.read_file(path)
        if data is not None:
            return parse_meta_properties(path, data)
        properties = MetaProperties(
            cluster_id=str(TopicId.random()), node_id=0, directory_id=uuid.uuid4()
        )
        self._fs.write_atomically(path, format_meta_properties(properties))
        return properties

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._fs.write_atomically(self.path / name, format_offsets(offsets))


def iter_live(directories: list[LogDirectory]) -> Iterator[LogDirectory]:
    """Go through the directories whose disk still works."""
    return (directory for directory in directories if not directory.is_offline)
