"""One partition as many tasks: ranges of offsets with about the same number of bytes.

A range is given by offsets alone. Whatever a pass does to the files before the task has opened
them, each record that is left lies in one range.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from siltstone.ids import TopicPartition
from siltstone.log.partition_log import PartitionLog
from siltstone.log.segment import Segment

SPLIT_BYTES: Final = 128 << 20  # what Spark puts into one task when it reads files
_MIN_SPLIT_BYTES: Final = 8 << 20  # Below this, a task costs more than it saves.


@dataclass(frozen=True)
class LogRange(InputPartition):
    """What one task reads: the records of one partition from an offset up to another."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int  # of the batches, when this was planned

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose records these are."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offset_count(self) -> int:
        """How many offsets there are, with a record or without."""
        return self.end_offset - self.start_offset


def measure(log: PartitionLog, start_offset: int, end_offset: int) -> LogRange:
    """Return a range of a log as a whole."""
    size_bytes = sum(end - start for _, start, end in _pieces(log, start_offset, end_offset))
    partition = log.partition
    return LogRange(partition.topic, partition.partition, start_offset, end_offset, size_bytes)


def split(log: PartitionLog, whole: LogRange, part_count: int) -> list[LogRange]:
    """Cut a range into at most so many, with about the same number of bytes in each."""
    cuts: list[int] = []
    if part_count > 1:
        part_bytes = whole.size_bytes / part_count
        wanted = part_bytes  # bytes before the next cut
        before = 0  # bytes in the pieces before this one
        for segment, start, end in _pieces(log, whole.start_offset, whole.end_offset):
            while wanted < before + end - start and len(cuts) < part_count - 1:
                offset = _find_cut(segment, start + int(wanted - before))
                if offset is not None:
                    cuts.append(offset)
                wanted += part_bytes
            before += end - start
    return _cut(log, whole, cuts)


def limit_records(log: PartitionLog, whole: LogRange, max_count: int) -> list[LogRange]:
    """Cut a range so that none of the parts has more offsets than this."""
    cuts = list(range(whole.start_offset + max_count, whole.end_offset, max_count))
    return _cut(log, whole, cuts)


def count_cores() -> int:
    """Return how many threads can work here; in a local session also how many tasks."""
    return len(os.sched_getaffinity(0))


def share_parts(ranges: Sequence[LogRange], min_count: int | None) -> list[int]:
    """Say into how many parts to cut each range, so that there are about `min_count` in all."""
    total_bytes = sum(r.size_bytes for r in ranges)
    # As many tasks as keep all cores of a local session busy up to the end.
    rounds = -(-total_bytes // (SPLIT_BYTES * count_cores()))
    part_bytes = max(1, -(-total_bytes // max(1, rounds * count_cores())))
    part_bytes = max(part_bytes, _MIN_SPLIT_BYTES)
    by_size = [max(1, round(r.size_bytes / part_bytes)) for r in ranges]
    if min_count is None or sum(by_size) >= min_count or not total_bytes:
        return by_size
    return [
        max(count, round(r.size_bytes / total_bytes * min_count))
        for count, r in zip(by_size, ranges, strict=True)
    ]


def _cut(log: PartitionLog, whole: LogRange, cuts: Sequence[int]) -> list[LogRange]:
    inside = sorted({c for c in cuts if whole.start_offset < c < whole.end_offset})
    if not inside:
        return [whole]
    return [
        measure(log, start, end)
        for start, end in pairwise([whole.start_offset, *inside, whole.end_offset])
    ]


def _pieces(
    log: PartitionLog, start_offset: int, end_offset: int
) -> Iterator[tuple[Segment, int, int]]:
    """Yield each segment in a range of offsets, with the positions between which its batches lie.

    Good to the nearest entry of its index.
    """
    if start_offset >= end_offset:
        return
    for segment in log.segments.from_offset(start_offset):
        if segment.base_offset >= end_offset:
            return
        start = segment.offset_index.find(start_offset).position
        following = log.segments.find_next(segment)
        end = segment.size_bytes
        segment_end = log.log_end_offset if following is None else following.base_offset
        if end_offset < segment_end:
            found = segment.find_batch(end_offset)
            end = segment.size_bytes if found is None else found.position
        if end > start:
            yield segment, start, end


def _find_cut(segment: Segment, position: int) -> int | None:
    """Return the offset of a batch near a position: one that the offset index leads to."""
    entry = segment.offset_index.find_before_position(position)
    if entry is None:
        return None
    # Whether the index is right or not: any offset is a sound place for a cut.
    return entry.offset + 1
