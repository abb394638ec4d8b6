"""From a log to a verdict, and from a verdict to a plan; changes nothing."""

import secrets
from dataclasses import replace
from typing import Final

from siltstone.cleaner.grouping import SegmentSize, group_segments
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.retention import RetentionPlan, source_of
from siltstone.cleaner.selection import Assessment, LogFacts, SegmentFacts, assess
from siltstone.cleaner.survival import LastRecord
from siltstone.cleaner.waiting import Waiting, find_waiting
from siltstone.errors import CleaningError
from siltstone.log.partition_log import PartitionLog
from siltstone.log.segment import Segment

_HASH_KEY_BYTES: Final = 16


def assess_log(
    log: PartitionLog,
    checkpoint: int | None,
    now_ms: int,
    *,
    ignores_ratio: bool = False,
    uncleanable_reason: str | None = None,
    retention: RetentionPlan | None = None,
    as_if_rolled: bool = False,
) -> tuple[Assessment, Waiting]:
    """Say whether a pass over a log is due, and what waits in its clean section.

    What a `retention` plan takes counts as gone; `as_if_rolled`, a new active segment as there.
    """
    segments = _kept_segments(log, retention)
    active: Segment | None = log.segments.active
    if as_if_rolled and log.segments.active.size_bytes:
        active = None
    segment_facts = [_facts(segment, active) for segment in segments]
    if not segment_facts or not segment_facts[-1].is_active:
        segment_facts.append(SegmentFacts(log.log_end_offset, 0, -1, -1, is_active=True))
    facts = LogFacts(
        partition=log.partition,
        config=log.config,
        segments=segment_facts,
        log_start_offset=_log_start_offset(log, retention),
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        checkpoint=checkpoint,
        uncleanable_reason=uncleanable_reason,
    )
    waiting = Waiting(0, None)
    if log.config.is_compacted and checkpoint is not None:
        # Not above the end of a pass: what it cannot reach would make the log due for ever. Nor is
        # anything certain as long as the last stable offset has to catch up after a start.
        end_offset = assess(facts, now_ms).first_uncleanable_offset
        if end_offset <= log.last_stable_offset:
            first_base_offset = facts.segments[0].base_offset
            waiting = find_waiting(log, first_base_offset, min(checkpoint, end_offset))
        facts = replace(facts, earliest_horizon_ms=waiting.earliest_horizon_ms)
    return assess(facts, now_ms, ignores_ratio=ignores_ratio), waiting


def plan_pass(
    log: PartitionLog,
    assessment: Assessment,
    now_ms: int,
    retention: RetentionPlan | None = None,
) -> CleaningPlan:
    """Make the plan of a pass, to be run after the `retention` plan if there is one.

    The only place with a clock and with chance. Raise CleaningError if nothing is cleanable.
    """
    end_offset = assessment.first_uncleanable_offset
    segments = [s for s in _kept_segments(log, retention) if s.base_offset < end_offset]
    if not segments:
        raise CleaningError(f"{log.partition}: nothing to clean below offset {end_offset}")
    ends = [*(s.base_offset for s in segments[1:]), end_offset]
    sizes = [
        SegmentSize(
            segment.base_offset,
            end,
            segment.size_bytes,
            segment.offset_index.file.size_bytes,
            segment.time_index.file.size_bytes,
        )
        for segment, end in zip(segments, ends, strict=True)
    ]
    config = log.config
    return CleaningPlan(
        pass_id=f"{now_ms:013d}{secrets.token_hex(4)}",
        partition=log.partition,
        directory=log.directory.absolute(),
        reason=assessment.reason.value,
        sources=tuple(source_of(segment) for segment in segments),
        groups=group_segments(
            sizes,
            max_log_bytes=config.segment_bytes,
            max_index_bytes=config.segment_index_bytes,
        ),
        log_start_offset=_log_start_offset(log, retention),
        first_dirty_offset=assessment.first_dirty_offset,
        end_offset=end_offset,
        aborted=tuple(log.collect_aborted(segments[0].base_offset, end_offset)),
        last_records=tuple(
            LastRecord(entry.producer_id, entry.epoch, entry.last_data_offset)
            for entry in log.producer_state.active_producers().values()
        ),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
        segment_index_bytes=config.segment_index_bytes,
        hash_key=secrets.token_bytes(_HASH_KEY_BYTES),
    )


def _kept_segments(log: PartitionLog, retention: RetentionPlan | None) -> list[Segment]:
    if retention is None:
        return list(log.segments)
    return [s for s in log.segments if s.base_offset >= retention.removals[-1].end_offset]


def _log_start_offset(log: PartitionLog, retention: RetentionPlan | None) -> int:
    return log.log_start_offset if retention is None else retention.new_log_start_offset


def _facts(segment: Segment, active: Segment | None) -> SegmentFacts:
    return SegmentFacts(
        segment.base_offset,
        segment.size_bytes,
        segment.first_timestamp_ms,
        segment.largest_timestamp_ms,
        is_active=segment is active,
    )
