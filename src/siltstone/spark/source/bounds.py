"""From options to offsets: where the read of each partition begins and ends."""

from collections.abc import Mapping, Sequence

from siltstone.errors import UsageError
from siltstone.ids import TopicPartition
from siltstone.spark.source.live_logs import Extent, LiveLogs
from siltstone.spark.source.options import (
    EARLIEST,
    LATEST,
    Bound,
    PartitionOffsets,
    SourceOptions,
)


def resolve_start(
    logs: LiveLogs, partitions: Sequence[TopicPartition], options: SourceOptions
) -> PartitionOffsets:
    """Return the first offset to read of each partition."""
    found: PartitionOffsets = {}
    bound = options.start
    _check_covers(bound, partitions, "starting")
    for partition in partitions:
        extent = logs.find_extent(partition, is_committed_only=options.is_committed_only)
        timestamp_ms = _timestamp_of(bound, partition)
        if timestamp_ms is None:
            found[partition] = _offset_of(bound, partition, extent)
            continue
        match = logs.get_log(partition).find_offset_by_timestamp(timestamp_ms)
        if match is not None:
            found[partition] = match.offset
        elif options.unmatched_start_is_latest:
            found[partition] = extent.end_offset
        else:
            raise UsageError(
                f"{partition} has no record at or after timestamp {timestamp_ms}: "
                "startingOffsetsByTimestampStrategy=latest begins at its end"
            )
    return found


def resolve_end(
    logs: LiveLogs, partitions: Sequence[TopicPartition], options: SourceOptions
) -> PartitionOffsets:
    """Return for each partition the offset before which the read ends."""
    bound = options.end
    if options.as_of_offsets is not None:
        bound = Bound(offsets=options.as_of_offsets)
    _check_covers(bound, partitions, "ending")
    found: PartitionOffsets = {}
    for partition in partitions:
        extent = logs.find_extent(partition, is_committed_only=options.is_committed_only)
        if options.as_of_timestamp_ms is not None:
            # What has the very time is part of the state at that time.
            timestamp_ms: int | None = options.as_of_timestamp_ms + 1
        else:
            timestamp_ms = _timestamp_of(bound, partition)
        if timestamp_ms is None:
            found[partition] = _offset_of(bound, partition, extent)
            continue
        match = logs.get_log(partition).find_offset_by_timestamp(timestamp_ms)
        found[partition] = extent.end_offset if match is None else match.offset
    return found


def check_range(
    partition: TopicPartition, start: int, end: int, extent: Extent, *, fail_on_data_loss: bool
) -> tuple[int, int]:
    """Cut a range of offsets to what is there; raise UsageError if records were lost.

    Only what lies outside of the log is lost. A gap inside of it was made by compaction.
    """
    if start < extent.log_start_offset:
        what = f"offsets {start} to {extent.log_start_offset - 1} were deleted"
        _lose(partition, what, fail_on_data_loss=fail_on_data_loss)
        start = extent.log_start_offset
    if max(start, end) > extent.end_offset:
        what = f"it ends at offset {extent.end_offset}, before {max(start, end)}"
        _lose(partition, what, fail_on_data_loss=fail_on_data_loss)
        end = min(end, extent.end_offset)
        start = min(start, end)
    return start, end


def lose_partition(partition: TopicPartition, *, fail_on_data_loss: bool) -> None:
    """Say that a partition is gone which was read before."""
    _lose(partition, "it is gone", fail_on_data_loss=fail_on_data_loss)


def _lose(partition: TopicPartition, what: str, *, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise UsageError(
            f"records of {partition} are lost: {what}; failOnDataLoss=false reads what is left"
        )


def _check_covers(bound: Bound, partitions: Sequence[TopicPartition], prefix: str) -> None:
    """Refuse JSON that leaves a partition out or names one that is not read."""
    if bound.timestamp_ms is not None:
        return
    given: Mapping[TopicPartition, int] | int = bound.offsets
    name = f"{prefix}Offsets"
    if bound.timestamps_ms is not None:
        given, name = bound.timestamps_ms, f"{prefix}OffsetsByTimestamp"
    if isinstance(given, int):
        return
    for partition in sorted(set(given) ^ set(partitions)):
        problem = "does not name" if partition in partitions else "names, but is not to read,"
        raise UsageError(
            f"{name} {problem} {partition}: it must name every partition that is read and no "
            "other; -1 is latest, -2 earliest"
        )


def _timestamp_of(bound: Bound, partition: TopicPartition) -> int | None:
    if bound.timestamp_ms is not None:
        return bound.timestamp_ms
    return None if bound.timestamps_ms is None else bound.timestamps_ms[partition]


def _offset_of(bound: Bound, partition: TopicPartition, extent: Extent) -> int:
    offsets = bound.offsets
    offset = offsets if isinstance(offsets, int) else offsets[partition]
    if offset == EARLIEST:
        return extent.log_start_offset
    return extent.end_offset if offset == LATEST else offset
