"""Log directories that others write to: what is in them now, and what a reader may see of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.errors import UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.spark.source.options import TopicSelection

# As consumers that subscribe by a pattern leave them out.
_INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of one partition that a reader may ask for."""

    log_start_offset: int
    end_offset: int


class LiveLogs:
    """Log directories over time; a log that has only grown is not opened again."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._fs = FileSystem()
        self._names: tuple[tuple[str, ...], ...] | None = None
        self._reader: LogReader | None = None

    def reader(self) -> LogReader:
        """Return the logs, with the topics and partitions that there are now."""
        names = None
        if all(path.is_dir() for path in self._paths):
            names = tuple(tuple(self._fs.list_names(path)) for path in self._paths)
        if self._reader is None or names != self._names:
            self._reader = LogReader(self._paths)
            self._names = names
        return self._reader

    def get_log(self, partition: TopicPartition) -> PartitionLog:
        """Return a log as it is on disk now."""
        return self.reader().get_log(partition)

    def find_extent(self, partition: TopicPartition, *, is_committed_only: bool) -> Extent:
        """Return the offsets that a reader may ask for."""
        log = self.get_log(partition)
        end_offset = log.last_stable_offset if is_committed_only else log.high_watermark
        return Extent(log.log_start_offset, end_offset)

    def select(self, selection: TopicSelection) -> list[TopicPartition]:
        """Return the partitions that are asked for; raise UnknownTopicError if one is not there."""
        reader = self.reader()
        if selection.assign is not None:
            for partition in selection.assign:
                if partition.partition not in reader.partitions(partition.topic):
                    raise UnknownTopicError(partition.topic, partition.partition)
            return sorted(selection.assign)
        if selection.subscribe is not None:
            topics = list(selection.subscribe)
        else:
            assert selection.pattern is not None
            topics = [
                metadata.topic
                for metadata in reader.topics()
                if metadata.topic not in _INTERNAL_TOPICS
                and re.fullmatch(selection.pattern, metadata.topic)
            ]
        return [
            TopicPartition(topic, number)
            for topic in sorted(topics)
            for number in reader.partitions(topic)
        ]
