"""Logs as the planner sees them: a few numbers for each segment."""

from dataclasses import replace
from typing import Any

from siltstone.cleaner.selection import (
    LogFacts,
    SegmentFacts,
)
from siltstone.log.config import LogConfig
from tests.support.make_log import PARTITION, parse_config

HOUR_MS = 3_600_000


DAY_MS = 24 * HOUR_MS


NOW_MS = 1_700_000_000_000


def config(**settings: Any) -> LogConfig:
    return parse_config({"cleanup_policy": "compact", **settings})


def log_facts(
    *segments: tuple[int, int],
    age_ms: int = 0,
    log_config: LogConfig | None = None,
    **fields: Any,
) -> LogFacts:
    """Describe a log by (base offset, size) of its segments, all of one age, ten records each."""
    end_offset = segments[-1][0] + 10
    return LogFacts(
        **{
            "partition": PARTITION,
            "config": log_config or config(),
            "segments": [
                SegmentFacts(
                    base_offset,
                    size_bytes,
                    first_timestamp_ms=NOW_MS - age_ms,
                    largest_timestamp_ms=NOW_MS - age_ms,
                    is_active=(base_offset, size_bytes) == segments[-1],
                )
                for base_offset, size_bytes in segments
            ],
            "log_start_offset": 0,
            "log_end_offset": end_offset,
            "last_stable_offset": end_offset,
            "checkpoint": None,
            **fields,
        }
    )


def with_times(facts: LogFacts, *times_ms: int) -> LogFacts:
    """Give each segment a first and largest timestamp of its own."""
    segments = [
        replace(segment, first_timestamp_ms=time_ms, largest_timestamp_ms=time_ms)
        for segment, time_ms in zip(facts.segments, times_ms, strict=True)
    ]
    return replace(facts, segments=segments)
