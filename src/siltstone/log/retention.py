"""Which old segments may go: a pure decision over sizes, times and offsets.

Each rule walks from the oldest segment and stops at the first that it keeps. None touches records
that are not replicated yet, and an empty last segment is never given up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from siltstone.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention must know of one segment."""

    base_offset: int
    next_base_offset: int  # the log end offset for the active segment
    size_bytes: int
    largest_timestamp_ms: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class Expired:
    """How many of the oldest segments go, and the rule that said so."""

    count: int
    reason: str


def find_expired(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Expired]:
    """Apply the rules in Kafka's order, each to what the one before has left.

    Only what lies below the log start goes unless the topic's policy includes `delete`.
    """
    expired = []
    rest = segments

    def apply(rule: Callable[[SegmentFacts], bool], reason: str) -> None:
        nonlocal rest
        count = _count_leading(rest, rule, high_watermark)
        if count:
            expired.append(Expired(count, reason))
            rest = rest[count:]

    apply(
        lambda s: not s.is_active and s.next_base_offset <= log_start_offset,
        f"below the log start offset {log_start_offset}",
    )
    if not config.deletes:
        return expired

    if config.retention_bytes >= 0:
        excess = sum(s.size_bytes for s in rest) - config.retention_bytes

        def is_excess(segment: SegmentFacts) -> bool:
            nonlocal excess
            excess -= segment.size_bytes
            return excess >= 0

        apply(is_excess, f"over retention.bytes {config.retention_bytes}")
    if config.retention_ms >= 0:
        apply(
            lambda s: now_ms - s.largest_timestamp_ms > config.retention_ms,
            f"over retention.ms {config.retention_ms}",
        )
    return expired


def _count_leading(
    segments: Sequence[SegmentFacts], rule: Callable[[SegmentFacts], bool], high_watermark: int
) -> int:
    count = 0
    for segment in segments:
        is_empty_last = segment.is_active and segment.size_bytes == 0
        if is_empty_last or high_watermark < segment.next_base_offset or not rule(segment):
            break
        count += 1
    return count
