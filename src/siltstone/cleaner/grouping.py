"""Which neighbouring segments a pass merges into one."""

from collections.abc import Sequence
from dataclasses import dataclass

from siltstone.records.layout import MAX_RELATIVE_OFFSET


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """What grouping must know of a segment, before it is cleaned."""

    base_offset: int
    end_offset: int  # the next segment's base: the last offset may be lower, but not higher
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SegmentSize], *, max_log_bytes: int, max_index_bytes: int
) -> tuple[tuple[int, ...], ...]:
    """Group segments, oldest first, so that each group fits one segment; return base offsets.

    Sizes are those before cleaning: they are known, and cleaning mostly shrinks. A segment that
    is too large by itself is a group of its own.
    """
    groups: list[list[SegmentSize]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, max_log_bytes, max_index_bytes):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return tuple(tuple(segment.base_offset for segment in group) for group in groups)


def _fits(
    group: Sequence[SegmentSize], segment: SegmentSize, max_log_bytes: int, max_index_bytes: int
) -> bool:
    if sum(s.log_bytes for s in group) + segment.log_bytes > max_log_bytes:
        return False
    if sum(s.offset_index_bytes for s in group) + segment.offset_index_bytes > max_index_bytes:
        return False
    if sum(s.time_index_bytes for s in group) + segment.time_index_bytes > max_index_bytes:
        return False
    # An empty segment has no offset to express: merging it keeps them from piling up.
    last_offset = segment.end_offset - 1
    return segment.log_bytes == 0 or last_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET
