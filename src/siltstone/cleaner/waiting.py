"""Tombstones and markers that wait for their delete horizon in the part of a log that is clean."""

from dataclasses import dataclass

from siltstone.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many wait, when the first of them is due, and in which segments they are."""

    count: int
    earliest_horizon_ms: int | None
    base_offsets: tuple[int, ...] = ()


def find_waiting(log: PartitionLog, first_base_offset: int, end_offset: int) -> Waiting:
    """Look through the headers of some segments, and into the batches that have a horizon.

    The horizon stays with a batch after its last tombstone is gone, so the header alone does not
    tell.
    """
    count = 0
    base_offsets: list[int] = []
    earliest_ms: int | None = None
    for segment in log.segments:
        if segment.base_offset < first_base_offset:
            continue
        if segment.base_offset >= end_offset:
            break
        for stored in segment.iter_headers():
            horizon_ms = stored.header.delete_horizon_ms
            if horizon_ms is None:
                continue
            batch = segment.read_batch(stored.position)
            waiting = sum(
                1 for r in batch.iter_records() if r.is_tombstone or stored.header.is_control
            )
            if waiting:
                count += waiting
                if segment.base_offset not in base_offsets[-1:]:
                    base_offsets.append(segment.base_offset)
                earliest_ms = horizon_ms if earliest_ms is None else min(earliest_ms, horizon_ms)
    return Waiting(count, earliest_ms, tuple(base_offsets))
