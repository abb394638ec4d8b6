"""Read log directories that another process may own: no lock, and never a write.

What is seen is what lies on disk at the moment of opening, with the same conclusions that an owner
would draw from it: a torn tail is left out, a wrong index is ignored.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from siltstone.clock import Clock, SystemClock
from siltstone.errors import LogDirOfflineError, UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_directory import DirectoryState, read_directory, read_offsets
from siltstone.log.partition_log import PartitionLog
from siltstone.log.recovery import LoadRequest
from siltstone.log.topic_catalog import find_places, merge_topics
from siltstone.log.topic_store import FileTopicStore, TopicMetadata

# An owner that rolls, cleans or deletes takes files away under our hands, and is soon done.
_ATTEMPTS: Final = 40
_PAUSE_SECONDS: Final = 0.005

Signature = tuple[tuple[str, int, int], ...]  # name, inode, size
FileStamp = tuple[int, int]  # inode and time of modification; zeros if the file is absent


class LogReader:
    """The topics and logs of some directories, as far as reading goes."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        overrides: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self._fs = fs or FileSystem()
        self._clock = clock or SystemClock()
        self._overrides = dict(overrides or {})
        self._defaults = dict(defaults or {})
        LogConfig.parse({**self._defaults, **self._overrides})
        for path in paths:
            if not path.is_dir():
                raise LogDirOfflineError(path, "does not exist")
        self._paths = tuple(paths)
        self._states: dict[Path, DirectoryState] = {
            path: read_directory(self._fs, path) for path in paths
        }
        store = FileTopicStore(self._fs, self._paths)
        self._places = find_places(self._states.items())
        self._topics = merge_topics(store, self._states.items(), self._places)
        self._logs: dict[TopicPartition, tuple[Signature, PartitionLog]] = {}
        self._log_starts: dict[Path, tuple[FileStamp, Mapping[TopicPartition, int]]] = {}

    def topics(self) -> list[TopicMetadata]:
        """Return every topic, by name."""
        return list(self._topics.values())

    def describe(self, topic: str) -> TopicMetadata:
        """Return one topic; raise UnknownTopicError if there is none of that name."""
        try:
            return self._topics[topic]
        except KeyError:
            raise UnknownTopicError(topic) from None

    def config(self, topic: str) -> LogConfig:
        """Return the settings that act on a topic."""
        return LogConfig.parse({**self._defaults, **self.describe(topic).config, **self._overrides})

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic that lie in these directories."""
        self.describe(topic)
        return sorted(p.partition for p in self._places if p.topic == topic)

    def get_log(self, partition: TopicPartition) -> PartitionLog:
        """Return a log as it is on disk now; opened anew unless it has only grown at its end."""
        directory = self._find_directory(partition)
        path = directory / filenames.partition_dir_name(partition)
        for attempt in range(_ATTEMPTS):
            try:
                signature = self._sign(path)
                known = self._logs.get(partition)
                if (
                    known is not None
                    and _is_longer(known[0], signature)
                    and self._find_log_start(directory, partition) <= known[1].log_start_offset
                ):
                    log = known[1]
                    # Even if it is as long: a pre-allocated file is, whatever is written to it.
                    log.extend()
                else:
                    log = self._open(directory, partition, path)
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise LogDirOfflineError(path, "changes faster than it can be read") from None
                time.sleep(_PAUSE_SECONDS)
                continue
            self._logs[partition] = (signature, log)
            return log
        raise AssertionError("unreachable")

    def stamp_log_start(self, partition: TopicPartition) -> FileStamp:
        """Tell by inode and time whether the owner has written down another log start."""
        return self._stamp_log_starts(self._find_directory(partition))

    def _stamp_log_starts(self, directory: Path) -> FileStamp:
        try:
            stat = (directory / filenames.LOG_START_OFFSETS).stat()
        except FileNotFoundError:
            return 0, 0
        return stat.st_ino, stat.st_mtime_ns

    def _find_log_start(self, directory: Path, partition: TopicPartition) -> int:
        stamp = self._stamp_log_starts(directory)
        known = self._log_starts.get(directory)
        if known is None or known[0] != stamp:
            offsets = read_offsets(self._fs, directory / filenames.LOG_START_OFFSETS)
            known = self._log_starts[directory] = (stamp, offsets)
        return known[1].get(partition, 0)

    def _open(self, directory: Path, partition: TopicPartition, path: Path) -> PartitionLog:
        state = self._states[directory]
        log = PartitionLog(
            self._fs,
            self._clock,
            LoadRequest(
                partition=partition,
                directory=path,
                config=self.config(partition.topic),
                now_ms=self._clock.now_ms(),
                log_start_offset=self._find_log_start(directory, partition),
                recovery_point=state.recovery_points.get(partition, 0),
                was_clean=(directory / filenames.CLEAN_SHUTDOWN).exists(),
                writable=False,
            ),
            topic_id=self._topics[partition.topic].topic_id,
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def _sign(self, path: Path) -> Signature:
        """Tell by names, inodes and sizes whether anything has changed.

        A file may be made anew under the same name, as an empty segment is that rolls.
        """
        files = [
            (name, (path / name).stat())
            for name in self._fs.list_names(path)
            if (file := filenames.parse_segment_file(name)) and file.extension == filenames.LOG
        ]
        return tuple((name, stat.st_ino, stat.st_size) for name, stat in files)

    def _find_directory(self, partition: TopicPartition) -> Path:
        path = self._places.get(partition)
        if path is not None:
            return path
        self.describe(partition.topic)
        raise UnknownTopicError(partition.topic, partition.partition)


def _is_longer(known: Signature, signature: Signature) -> bool:
    """Say whether the files are those that were known, the last one as long or longer."""
    return (
        len(known) > 0
        and len(known) == len(signature)
        and known[:-1] == signature[:-1]
        and known[-1][:2] == signature[-1][:2]
        and known[-1][2] <= signature[-1][2]
    )
