"""The partitions as the request handlers see them: found quickly, and watched by who waits."""

import struct
import uuid
from typing import Final

from siltstone.broker.purgatory import Parked
from siltstone.errors import UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.log.log_directory import LogDirectory
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog
from siltstone.records.layout import HEADER_SIZE, MAX_TIMESTAMP_POSITION
from siltstone.settings import MAX_LONG

_MAX_TIMESTAMP: Final = struct.Struct(">q")


class Partition:
    """One log that is served, and the fetches that wait for it to grow."""

    __slots__ = ("directory", "log", "topic_id", "watchers")

    def __init__(self, log: PartitionLog, directory: LogDirectory, topic_id: uuid.UUID) -> None:
        self.log = log
        self.directory = directory
        self.topic_id = topic_id
        self.watchers: dict[Parked, None] = {}

    def appended(self, size_bytes: int) -> None:
        """Let everything that is in the log be read, and tell those who wait for it."""
        log = self.log
        log.update_high_watermark(log.log_end_offset)
        if self.watchers:
            for parked in list(self.watchers):
                parked.arrived(size_bytes)

    def changed(self) -> None:
        """Tell those who wait that the log is not what it was."""
        for parked in list(self.watchers):
            parked.wake()

    def leaves_loop(self, records: bytes | memoryview) -> bool:
        """Say whether an append may wait for the disk, and so must not run on the event loop."""
        log = self.log
        size_bytes = len(records)
        config = log.config
        active = log.segments.active
        return (
            log.is_busy
            or active.size_bytes + size_bytes > config.segment_bytes
            or active.is_index_full
            or config.flush_messages != MAX_LONG
            or config.compression_type is not None
            or log.leader_epochs.latest() is None  # The first one is written, durably.
            or (size_bytes >= HEADER_SIZE and log.is_over_age(_newest_ms(records)))
        )


def _newest_ms(records: bytes | memoryview) -> int:
    """Return the time of the newest record, as the batch says."""
    (newest_ms,) = _MAX_TIMESTAMP.unpack_from(records, MAX_TIMESTAMP_POSITION)
    return int(newest_ms)


class PartitionTable:
    """Partitions by topic name or id. Only the event loop uses it."""

    def __init__(self, manager: LogManager) -> None:
        self._manager: Final = manager
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._named_count = -1  # of the manager's puts, when the names were read

    def get(self, topic: str, number: int) -> Partition:
        """Return a partition; raise UnknownTopicError, or StorageError if it is not served."""
        partition = self._partitions.get((topic, number))
        if partition is None:
            partition = self._open(topic, number)
        if partition.directory.failure is not None:
            partition.directory.check_online()
        return partition

    def find_name(self, topic_id: uuid.UUID | None) -> str | None:
        """Return the name of the topic with an id, or None."""
        if topic_id is None:
            return None
        name = self._names.get(topic_id)
        # Many may ask again and again for a topic that is deleted.
        if name is None and self._named_count != (put_count := self._manager.put_count):
            self._named_count = put_count
            self._names = {t.topic_id.value: t.topic for t in self._manager.topics()}
            name = self._names.get(topic_id)
        return name

    def forget(self, topic: str) -> None:
        """Let go of a topic that is deleted; those who wait for it are told."""
        gone = [key for key in self._partitions if key[0] == topic]
        for key in gone:
            self._partitions.pop(key).changed()
        self._names = {i: name for i, name in self._names.items() if name != topic}

    def __len__(self) -> int:
        return len(self._partitions)

    def _open(self, topic: str, number: int) -> Partition:
        wanted = TopicPartition(topic, number)
        log = self._manager.get_log(wanted)
        for directory in self._manager.directories:
            if directory.logs.get(wanted) is log:
                topic_id = self._manager.describe(topic).topic_id.value
                partition = Partition(log, directory, topic_id)
                self._partitions[topic, number] = partition
                return partition
        raise UnknownTopicError(topic, number)
