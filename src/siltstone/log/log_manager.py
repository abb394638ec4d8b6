"""All logs of a process: its log directories, their topics, and what is due now and then."""

import contextlib
import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from siltstone.clock import Clock, SystemClock
from siltstone.errors import (
    CorruptBatchError,
    LogDirOfflineError,
    StorageError,
    TopicExistsError,
    UnknownSettingError,
    UnknownTopicError,
    UsageError,
)
from siltstone.ids import TopicId, TopicPartition, is_legal_topic
from siltstone.log.config import LogConfig
from siltstone.log.delayed_deletion import DelayedDeletion
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_directory import LogDirectory, iter_live
from siltstone.log.partition_log import PartitionLog
from siltstone.log.recovery import DEFAULT_PRODUCER_EXPIRATION_MS, LoadRequest
from siltstone.log.topic_catalog import find_places, merge_topics
from siltstone.log.topic_store import FileTopicStore, TopicMetadata
from siltstone.settings import settings_of

logger = logging.getLogger(__name__)


class LogManager:
    """Owns log directories: no other process may, and no other may write to them.

    It is the only replica of its partitions, so whatever is in a log when it is opened counts as
    replicated. An I/O error takes one directory offline and leaves the others alone.

    A topic's own settings go over the `defaults`, and the `overrides` over both.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        overrides: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
    ) -> None:
        self._fs = fs or FileSystem()
        self._clock = clock or SystemClock()
        self._overrides = dict(overrides or {})
        self._defaults = dict(defaults or {})
        self._producer_expiration_ms = producer_expiration_ms
        self._parse_config({})  # refused before anything is touched
        self._lock = threading.RLock()
        self._doomed = DelayedDeletion(self._fs)
        self.directories: list[LogDirectory] = []
        self._unopened: dict[Path, str] = {}
        try:
            for path in paths:
                self._open_directory(path)
            self._store = FileTopicStore(self._fs, [d.path for d in self.directories])
            states = [(d.path, d.state) for d in self.directories]
            self._places = find_places(states)
            self._topics = merge_topics(self._store, states, self._places)
            self.put_count = 0  # how often a topic was made or changed since then
            self._load()
        except BaseException:
            # Without a word about a clean stop: what was not opened yet may need recovery.
            for directory in self.directories:
                directory.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Topics

    def topics(self) -> list[TopicMetadata]:
        """Return every topic, by name."""
        return list(self._topics.values())

    def describe(self, topic: str) -> TopicMetadata:
        """Return one topic; raise UnknownTopicError if there is none of that name."""
        try:
            return self._topics[topic]
        except KeyError:
            raise UnknownTopicError(topic) from None

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic that lie in a directory that is online.

        `get_log` raises for one that is damaged.
        """
        self.describe(topic)
        damaged = {p for d in iter_live(self.directories) for p in d.damaged}
        return sorted(p.partition for p in {*self.logs, *damaged} if p.topic == topic)

    def config(self, topic: str) -> LogConfig:
        """Return the settings that act on a topic."""
        return self._parse_config(self.describe(topic).config)

    def _parse_config(self, config: Mapping[str, str]) -> LogConfig:
        return LogConfig.parse({**self._defaults, **config, **self._overrides})

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Change what counts for topics that do not say otherwise; acts at once."""
        with self._lock:
            LogConfig.parse({**defaults, **self._overrides})
            self._defaults = dict(defaults)
            for partition, log in self.logs.items():
                log.update_config(self.config(partition.topic))

    def create_topic(
        self, topic: str, partition_count: int, config: Mapping[str, str] | None = None
    ) -> TopicMetadata:
        """Create a topic; its partitions go to the directories with the fewest.

        The directories are made before the topic is noted: after a crash in between it is there
        with default settings and no records, and may be created again.
        """
        config = dict(config or {})
        self._parse_config(config)
        if not is_legal_topic(topic):
            raise UsageError(
                f"illegal topic name {topic!r}: 1 to 249 of letters, digits, dot, dash, underscore"
            )
        if partition_count < 1:
            raise UsageError(f"a topic needs at least 1 partition, got {partition_count}")
        with self._lock:
            existing = self._topics.get(topic)
            if existing is not None and not self._is_cut_short(topic, partition_count):
                raise TopicExistsError(topic)
            topic_id = TopicId.random() if existing is None else existing.topic_id
            metadata = TopicMetadata(topic, topic_id, partition_count, config)
            self._create_partitions(metadata)
            return self._put(metadata)

    def add_partitions(self, topic: str, partition_count: int) -> TopicMetadata:
        """Raise the number of partitions of a topic."""
        with self._lock:
            known = self.describe(topic)
            if partition_count <= known.partition_count:
                raise UsageError(
                    f"topic {topic} has {known.partition_count} partitions already, "
                    f"{partition_count} is not more"
                )
            metadata = TopicMetadata(topic, known.topic_id, partition_count, known.config)
            self._create_partitions(metadata)
            return self._put(metadata)

    def alter_topic(
        self,
        topic: str,
        changes: Mapping[str, str] | None = None,
        resets: Collection[str] = (),
    ) -> TopicMetadata:
        """Change settings of a topic, or set them back to their defaults; acts at once."""
        with self._lock:
            known = self.describe(topic)
            known_names = settings_of(LogConfig)
            for name in resets:
                if name not in known_names:
                    raise UnknownSettingError(name, known_names)
            config = {k: v for k, v in known.config.items() if k not in resets}
            config.update(changes or {})
            parsed = self._parse_config(config)
            metadata = self._put(
                TopicMetadata(topic, known.topic_id, known.partition_count, config)
            )
            for partition, log in self.logs.items():
                if partition.topic == topic:
                    log.update_config(parsed)
            return metadata

    def delete_topic(self, topic: str) -> None:
        """Take a topic away at once; its files go after `file.delete.delay.ms`.

        The directories are renamed before the topic is forgotten: after a crash in between it is
        still there, without its records, and may be deleted again.
        """
        with self._lock:
            config = self.config(topic)
            due_ms = self._clock.now_ms() + config.file_delete_delay_ms
            for directory in iter_live(self.directories):
                for partition in [p for p in directory.logs if p.topic == topic]:
                    with _guard(directory):
                        self._doomed.add([directory.remove_log(partition)], due_ms)
            if self._store.find(topic) is not None:
                self._store.delete(topic)
            del self._topics[topic]

    # Logs

    @property
    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """Every log in a directory that is online."""
        return {p: log for d in iter_live(self.directories) for p, log in list(d.logs.items())}

    def get_log(self, partition: TopicPartition) -> PartitionLog:
        """Return a log; raise UnknownTopicError, or StorageError if it cannot be served."""
        for directory in self.directories:
            log = directory.logs.get(partition)
            if log is not None:
                directory.check_online()
                return log
            if partition in directory.damaged:
                raise directory.damaged[partition]
        self.describe(partition.topic)
        raise UnknownTopicError(partition.topic, partition.partition)

    # Time passes

    def run_maintenance(self) -> None:
        """Do what is due: roll idle segments, flush, retention, delayed deletion, expiry.

        A disk that refuses takes its directory offline; the others are looked after all the same.
        """
        for directory in iter_live(self.directories):
            with _guard(directory):
                for log in list(directory.logs.values()):
                    try:
                        _maintain(log)
                    except CorruptBatchError as error:
                        logger.error("%s: left alone until it is repaired", error)
        self._delete_due()

    def delete_due_files(self) -> None:
        """Delete what was replaced or deleted so long ago that nobody reads it any more."""
        for directory in iter_live(self.directories):
            with _guard(directory):
                for log in list(directory.logs.values()):
                    log.delete_due_files()
        self._delete_due()

    def checkpoint(self) -> None:
        """Write down how far each log is durable, so that a crash costs less recovery."""
        for directory in iter_live(self.directories):
            with _guard(directory):
                directory.write_checkpoints()

    def close(self) -> None:
        """Close everything as after a clean stop; a second call does nothing."""
        for directory in self.directories:
            directory.close()
        self.directories = []

    @property
    def offline(self) -> dict[Path, str]:
        """The directories whose disk refused, and what it said."""
        failed = {d.path: d.failure for d in self.directories if d.failure is not None}
        return {**self._unopened, **failed}

    def _open_directory(self, path: Path) -> None:
        try:
            self.directories.append(LogDirectory(self._fs, path))
        except LogDirOfflineError as error:
            logger.error("log directory %s is offline: %s", path, error)
            self._unopened[path] = str(error)

    def _load(self) -> None:
        # Not before all of them are ours, and their topics make sense.
        for directory in self.directories:
            with _guard(directory):
                directory.begin()
        for directory in iter_live(self.directories):
            for name in directory.state.doomed:
                self._doomed.add([directory.path / name], self._clock.now_ms())
            for partition in directory.state.partitions:
                if self._places[partition] != directory.path:
                    continue
                with _guard(directory), _quarantine(directory, partition):
                    self._open_log(directory, partition)
                    if (known := self._store.find(partition.topic)) is not None:
                        directory.complete_topic_id(partition, known.topic_id)
            with _guard(directory):
                directory.settle_cleaner_offsets()
        self._delete_due()
        if not any(iter_live(self.directories)):
            path, reason = next(iter(self.offline.items()))
            raise LogDirOfflineError(path, f"offline, as all others: {reason}")

    def _open_log(self, directory: LogDirectory, partition: TopicPartition) -> PartitionLog:
        state = directory.state
        metadata = self._topics.get(partition.topic)
        config = self._parse_config(metadata.config if metadata else {})
        log = PartitionLog(
            self._fs,
            self._clock,
            LoadRequest(
                partition=partition,
                directory=directory.partition_path(partition),
                config=config,
                now_ms=self._clock.now_ms(),
                log_start_offset=state.log_start_offsets.get(partition, 0),
                recovery_point=state.recovery_points.get(partition, 0),
                was_clean=state.was_clean,
                producer_expiration_ms=self._producer_expiration_ms,
            ),
            topic_id=metadata.topic_id if metadata else None,
            on_failure=lambda error: directory.take_offline(str(error)),
        )
        log.update_high_watermark(log.log_end_offset)
        directory.logs[partition] = log
        return log

    def _create_partitions(self, metadata: TopicMetadata) -> None:
        topics = dict(self._topics)
        self._topics[metadata.topic] = metadata
        existing = {p: d for d in self.directories for p in d.logs}
        try:
            new = []
            for number in range(metadata.partition_count):
                partition = TopicPartition(metadata.topic, number)
                if partition in existing:
                    # A crash may have come between making its directory and naming its topic.
                    existing[partition].complete_topic_id(partition, metadata.topic_id)
                else:
                    new.append(partition)
            while new:
                new = self._create_new(new, metadata.topic_id)
        except LogDirOfflineError:
            self._topics = topics
            raise

    def _create_new(
        self, partitions: Sequence[TopicPartition], topic_id: TopicId
    ) -> list[TopicPartition]:
        """Make partitions, each in the directory with the fewest; return those whose disk refused.

        They are to be made in the next: a directory that is offline gets none.
        """
        counts = {directory: len(directory.logs) for directory in iter_live(self.directories)}
        if not counts:
            raise LogDirOfflineError(self.directories[0].path, "offline, as all others")
        places: dict[LogDirectory, list[TopicPartition]] = {directory: [] for directory in counts}
        for partition in partitions:
            directory = min(counts, key=lambda d: counts[d])
            counts[directory] += 1
            places[directory].append(partition)
        for directory, chosen in places.items():
            if chosen:
                with _guard(directory):
                    directory.write_topic_id(chosen, topic_id)
                    for partition in chosen:
                        self._open_log(directory, partition)
        return [p for p in partitions if not any(p in d.logs for d in self.directories)]

    def _delete_due(self) -> None:
        try:
            self._doomed.delete_due(self._clock.now_ms())
        except LogDirOfflineError as error:
            for directory in self.directories:
                if directory.path in error.path.parents:
                    directory.take_offline(str(error))

    def _put(self, metadata: TopicMetadata) -> TopicMetadata:
        self._store.put(metadata)
        self._topics[metadata.topic] = metadata
        self.put_count += 1
        return metadata

    def _is_cut_short(self, topic: str, partition_count: int) -> bool:
        """Say whether a crash may have cut short the creation of just this topic.

        Then it is not in the store, and what there is of it is empty and no more than is wanted.
        Of a log that is damaged, or whose directory is offline, nobody knows whether it is empty.
        """
        if self._store.find(topic) is not None or self.offline:
            return False
        if any(p.topic == topic for d in self.directories for p in d.damaged):
            return False
        return all(
            log.log_end_offset == 0 and partition.partition < partition_count
            for partition, log in self.logs.items()
            if partition.topic == topic
        )


def _maintain(log: PartitionLog) -> None:
    log.maybe_roll_idle()
    log.maybe_flush()
    log.delete_old_segments()
    log.delete_due_files()
    log.remove_expired_producers()


@contextlib.contextmanager
def _guard(directory: LogDirectory) -> Iterator[None]:
    """Take a directory offline, instead of the process down, when its disk refuses."""
    try:
        yield
    except LogDirOfflineError as error:
        directory.take_offline(str(error))


@contextlib.contextmanager
def _quarantine(directory: LogDirectory, partition: TopicPartition) -> Iterator[None]:
    """Leave a log alone that cannot be opened; the others are served all the same."""
    try:
        yield
    except LogDirOfflineError:
        raise
    except StorageError as error:
        logger.error("%s cannot be opened: %s", partition, error)
        directory.damaged[partition] = error
