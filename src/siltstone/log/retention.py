"""Which old segments may go: a pure decision over sizes, times and offsets.

Each rule walks from the oldest segment and stops at the first that it keeps. None touches records
that are not replicated yet, and an empty last segment is never given up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from siltstone.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention must know of one segment."""

    base_offset: int
    next_base_offset: int  # the log end offset for the active segment
    size_bytes: int
    largest_timestamp_ms: int
    is_active: bool


class Rule(StrEnum):
    """What lets a segment go."""

    LOG_START = "log start offset"
    SIZE = "retention.bytes"
    AGE = "retention.ms"


@dataclass(frozen=True, slots=True)
class Expired:
    """How many of the oldest segments go, the rule that said so, and its limit."""

    count: int
    rule: Rule
    limit: int

    @property
    def reason(self) -> str:
        """Say it in words."""
        where = "below the" if self.rule is Rule.LOG_START else "over"
        return f"{where} {self.rule.value} {self.limit}"


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

    def apply(goes: Callable[[SegmentFacts], bool], rule: Rule, limit: int) -> None:
        nonlocal rest
        count = _count_leading(rest, goes, high_watermark)
        if count:
            expired.append(Expired(count, rule, limit))
            rest = rest[count:]

    apply(
        lambda s: not s.is_active and s.next_base_offset <= log_start_offset,
        Rule.LOG_START,
        log_start_offset,
    )
    if not config.deletes:
        return expired

    if config.retention_bytes >= 0:
        excess = sum(s.size_bytes for s in rest) - config.retention_bytes

        def is_excess(segment: SegmentFacts) -> bool:
            nonlocal excess
            excess -= segment.size_bytes
            return excess >= 0

        apply(is_excess, Rule.SIZE, config.retention_bytes)
    if config.retention_ms >= 0:
        apply(
            lambda s: now_ms - s.largest_timestamp_ms > config.retention_ms,
            Rule.AGE,
            config.retention_ms,
        )
    return expired


def _count_leading(
    segments: Sequence[SegmentFacts], goes: Callable[[SegmentFacts], bool], high_watermark: int
) -> int:
    count = 0
    for segment in segments:
        is_empty_last = segment.is_active and segment.size_bytes == 0
        if is_empty_last or high_watermark < segment.next_base_offset or not goes(segment):
            break
        count += 1
    return count
