"""Which log is due for a pass, and up to where: pure decisions over sizes, times and offsets.

A log has three sections. Below the first dirty offset every key is unique already, from the last
pass. From there to the first uncleanable offset is what a pass may clean. Above that it may not
look: the active segment, undecided transactions, segments younger than `min.compaction.lag.ms`.

A log is eligible if more than `min.cleanable.dirty.ratio` of it is dirty, or if dirty records are
older than `max.compaction.lag.ms`, or if the time of tombstones or markers in it is up. The last is
ours: Kafka waits for new data, and deleted records of a quiet topic stay for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What selection must know of one segment."""

    base_offset: int
    size_bytes: int
    first_timestamp_ms: int  # of its first batch, or -1
    largest_timestamp_ms: int
    is_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What selection must know of one log."""

    partition: TopicPartition
    config: LogConfig
    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpoint: int | None  # the first dirty offset that the last pass left
    earliest_horizon_ms: int | None = None  # of tombstones and markers below the dirty section
    uncleanable_reason: str | None = None


class Reason(StrEnum):
    """Why a log is eligible, or is not."""

    DIRTY_RATIO = "dirty ratio"
    MAX_LAG = "max compaction lag"
    EXPIRED_HORIZON = "expired delete horizon"
    IGNORED_RATIO = "ratio ignored"
    NOT_COMPACTED = "not compacted"
    UNCLEANABLE = "uncleanable"
    NOTHING_CLEANABLE = "nothing cleanable"
    BELOW_RATIO = "below dirty ratio"


class Limit(StrEnum):
    """What keeps a pass from going further."""

    ACTIVE_SEGMENT = "active segment"
    LAST_STABLE_OFFSET = "last stable offset"
    MIN_LAG = "min.compaction.lag.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The verdict on one log, with the numbers that decided."""

    partition: TopicPartition
    is_eligible: bool
    reason: Reason
    explanation: str
    first_dirty_offset: int
    first_uncleanable_offset: int
    limit: Limit
    clean_bytes: int
    dirty_bytes: int
    checkpoint_was_reset: bool
    compaction_delay_ms: int

    @property
    def dirty_ratio(self) -> float:
        """The share of the cleanable part of the log that is dirty."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0


def assess(facts: LogFacts, now_ms: int, *, ignores_ratio: bool = False) -> Assessment:
    """Say whether a pass over a log is due, how far it would go, and why."""
    first_dirty_offset, was_reset = _first_dirty_offset(facts)
    limit_offset, limit = _limit_offset(facts, first_dirty_offset, now_ms)
    first_uncleanable_offset = _segment_from(facts, max(first_dirty_offset, limit_offset))
    clean_bytes = sum(s.size_bytes for s in facts.segments if s.base_offset < first_dirty_offset)
    dirty_from = min(first_dirty_offset, first_uncleanable_offset)
    dirty_bytes = sum(
        segment.size_bytes
        for segment in _segments_from(facts, dirty_from)
        if segment.base_offset < first_uncleanable_offset
    )
    delay_ms = _compaction_delay_ms(facts, first_dirty_offset, now_ms)
    total_bytes = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    is_eligible, reason, explanation = _verdict(
        facts, now_ms, dirty_bytes, ratio, delay_ms, limit, ignores_ratio=ignores_ratio
    )
    return Assessment(
        partition=facts.partition,
        is_eligible=is_eligible,
        reason=reason,
        explanation=explanation,
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=first_uncleanable_offset,
        limit=limit,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        checkpoint_was_reset=was_reset,
        compaction_delay_ms=delay_ms,
    )


def filthiest_first(assessments: Sequence[Assessment]) -> list[Assessment]:
    """Order the eligible ones by their dirty ratio, and by name where it is equal."""
    eligible = [a for a in assessments if a.is_eligible]
    return sorted(eligible, key=lambda a: (-a.dirty_ratio, a.partition))


def _verdict(
    facts: LogFacts,
    now_ms: int,
    dirty_bytes: int,
    ratio: float,
    delay_ms: int,
    limit: Limit,
    *,
    ignores_ratio: bool,
) -> tuple[bool, Reason, str]:
    config = facts.config
    threshold = config.min_cleanable_dirty_ratio
    if not config.is_compacted:
        policy = ",".join(sorted(p.value for p in config.cleanup_policy))
        return False, Reason.NOT_COMPACTED, f"cleanup.policy is {policy}"
    if facts.uncleanable_reason is not None:
        return False, Reason.UNCLEANABLE, facts.uncleanable_reason
    horizon_ms = facts.earliest_horizon_ms
    is_expired = horizon_ms is not None and horizon_ms <= now_ms
    if dirty_bytes and delay_ms > 0:
        return True, Reason.MAX_LAG, f"{delay_ms} ms over max.compaction.lag.ms"
    if dirty_bytes and ratio > threshold:
        return True, Reason.DIRTY_RATIO, f"{ratio:.2f} is over {threshold:.2f}"
    if is_expired:
        return True, Reason.EXPIRED_HORIZON, f"tombstones or markers are due since {horizon_ms}"
    if dirty_bytes and ignores_ratio:
        return True, Reason.IGNORED_RATIO, f"{dirty_bytes} bytes are dirty"
    if not dirty_bytes:
        return False, Reason.NOTHING_CLEANABLE, f"the {limit.value} allows no more"
    return False, Reason.BELOW_RATIO, f"{ratio:.2f} is not over {threshold:.2f}"


def _first_dirty_offset(facts: LogFacts) -> tuple[int, bool]:
    """Return the checkpoint, or the log start if it lies outside of the log."""
    checkpoint = facts.checkpoint
    if checkpoint is None:
        return facts.log_start_offset, False
    if facts.log_start_offset <= checkpoint <= facts.log_end_offset:
        return checkpoint, False
    return facts.log_start_offset, True


def _limit_offset(facts: LogFacts, first_dirty_offset: int, now_ms: int) -> tuple[int, Limit]:
    limits = [
        (facts.segments[-1].base_offset, Limit.ACTIVE_SEGMENT),
        (facts.last_stable_offset, Limit.LAST_STABLE_OFFSET),
    ]
    min_lag_ms = facts.config.min_compaction_lag_ms
    if min_lag_ms > 0:
        for segment in _segments_from(facts, first_dirty_offset):
            if not segment.is_active and segment.largest_timestamp_ms > now_ms - min_lag_ms:
                limits.append((segment.base_offset, Limit.MIN_LAG))
                break
    return min(limits, key=lambda limit: limit[0])


def _segment_from(facts: LogFacts, offset: int) -> int:
    """Return the base of the segment that holds an offset; the active one's if it is above."""
    return _segments_from(facts, offset)[0].base_offset


def _segments_from(facts: LogFacts, offset: int) -> Sequence[SegmentFacts]:
    """Return the segment that holds an offset and all after it."""
    first = 0
    for slot, segment in enumerate(facts.segments):
        if segment.base_offset <= offset:
            first = slot
    return facts.segments[first:]


def _compaction_delay_ms(facts: LogFacts, first_dirty_offset: int, now_ms: int) -> int:
    """Return by how much the oldest dirty record is over `max.compaction.lag.ms`."""
    timestamps = [
        segment.first_timestamp_ms
        for segment in _segments_from(facts, first_dirty_offset)
        if not segment.is_active and segment.first_timestamp_ms > 0
    ]
    clean_until_ms = now_ms - facts.config.max_compaction_lag_ms
    return max(clean_until_ms - min(timestamps, default=clean_until_ms), 0)
