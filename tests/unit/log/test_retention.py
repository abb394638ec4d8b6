"""Which segments expire, decided on plain numbers; facts 4.3. With real logs: `test_deleting`."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.log.config import UNLIMITED, LogConfig
from siltstone.log.retention import Expired, Rule, SegmentFacts, find_expired

NOW_MS = 1_000_000


def segments(*sizes: int, timestamps: Sequence[int] = ()) -> list[SegmentFacts]:
    """Segments of ten offsets each, of these sizes and newest timestamps; the last is active."""
    return [
        SegmentFacts(
            base_offset=10 * number,
            next_base_offset=10 * (number + 1),
            size_bytes=size,
            largest_timestamp_ms=timestamps[number] if timestamps else NOW_MS,
            is_active=number == len(sizes) - 1,
        )
        for number, size in enumerate(sizes)
    ]


def expire(
    facts: list[SegmentFacts],
    *,
    policy: str = "delete",
    log_start_offset: int = 0,
    high_watermark: int = 10_000,
    **limits: int,
) -> list[Expired]:
    settings: dict[str, Any] = {"retention.ms": UNLIMITED, "cleanup.policy": policy}
    settings.update({f"retention.{unit}": limit for unit, limit in limits.items()})
    return find_expired(
        facts,
        LogConfig.parse({name: str(value) for name, value in settings.items()}),
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        now_ms=NOW_MS,
    )


def count(expired: list[Expired]) -> int:
    return sum(rule.count for rule in expired)


class TestLogStart:
    @pytest.mark.parametrize(
        ("log_start_offset", "expected"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)]
    )
    @pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", ""])
    def test_what_ends_below_it_goes_whatever_the_policy(
        self, log_start_offset: int, expected: int, policy: str
    ) -> None:
        found = expire(segments(5, 5, 5), policy=policy, log_start_offset=log_start_offset)

        assert count(found) == expected  # the active segment stays in any case

    def test_the_reason_is_given(self) -> None:
        assert expire(segments(5, 5), log_start_offset=12) == [Expired(1, Rule.LOG_START, 12)]


class TestSize:
    @pytest.mark.parametrize(
        ("limit", "expected"),
        [(UNLIMITED, 0), (50, 0), (49, 0), (41, 0), (40, 1), (31, 1), (30, 2), (1, 4), (0, 5)],
    )
    def test_segments_go_while_the_rest_still_has_the_limit(
        self, limit: int, expected: int
    ) -> None:
        assert count(expire(segments(10, 10, 10, 10, 10), bytes=limit)) == expected

    def test_a_large_segment_holds_up_the_small_ones_behind_it(self) -> None:
        assert count(expire(segments(10, 100, 1, 1, 1), bytes=20)) == 1

    def test_the_reason_is_given(self) -> None:
        assert expire(segments(10, 10), bytes=10) == [Expired(1, Rule.SIZE, 10)]


class TestTime:
    @pytest.mark.parametrize(("age_ms", "expected"), [(500, 0), (501, 1), (10_000, 1), (-500, 0)])
    def test_a_segment_goes_when_its_newest_record_is_older_than_the_limit(
        self, age_ms: int, expected: int
    ) -> None:
        facts = segments(5, 5, timestamps=[NOW_MS - age_ms, NOW_MS])

        assert count(expire(facts, ms=500)) == expected

    def test_a_young_segment_holds_up_the_old_ones_behind_it(self) -> None:
        facts = segments(5, 5, 5, timestamps=[0, NOW_MS, 0])

        assert expire(facts, ms=500) == [Expired(1, Rule.AGE, 500)]

    def test_minus_one_keeps_everything(self) -> None:
        assert expire(segments(5, 5, timestamps=[0, 0]), ms=UNLIMITED) == []


class TestTogether:
    def test_each_rule_goes_on_where_the_one_before_has_stopped(self) -> None:
        facts = segments(10, 10, 10, 10, timestamps=[NOW_MS, NOW_MS, 0, NOW_MS])

        assert expire(facts, log_start_offset=10, bytes=20, ms=500) == [
            Expired(1, Rule.LOG_START, 10),
            Expired(1, Rule.SIZE, 20),
            Expired(1, Rule.AGE, 500),
        ]

    def test_a_compacted_log_is_not_subject_to_size_and_time(self) -> None:
        facts = segments(10, 10, timestamps=[0, 0])

        assert expire(facts, policy="compact", bytes=0, ms=0) == []
        assert expire(facts, policy="", bytes=0, ms=0) == []
        assert count(expire(facts, policy="compact,delete", bytes=0, ms=0)) == 2


class TestLimits:
    @pytest.mark.parametrize(
        ("high_watermark", "expected"),
        [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)],
    )
    def test_nothing_goes_before_all_of_it_is_replicated(
        self, high_watermark: int, expected: int
    ) -> None:
        facts = segments(5, 5, 5, timestamps=[0, 0, 0])

        assert count(expire(facts, high_watermark=high_watermark, ms=0)) == expected

    def test_an_empty_active_segment_is_never_given_up(self) -> None:
        facts = segments(5, 5, 0, timestamps=[0, 0, 0])

        assert count(expire(facts, ms=0, bytes=0)) == 2

    def test_an_empty_segment_in_between_goes_with_the_others(self) -> None:
        facts = segments(5, 0, 5, timestamps=[0, 0, NOW_MS])

        assert count(expire(facts, ms=500)) == 2

    def test_a_log_without_segments_has_nothing_to_lose(self) -> None:
        assert expire([], ms=0, bytes=0) == []


facts_lists = st.lists(
    st.tuples(st.integers(0, 50), st.integers(NOW_MS - 1_000, NOW_MS + 10)), min_size=1, max_size=8
).map(lambda rows: segments(*(s for s, _ in rows), timestamps=[t for _, t in rows]))


@given(
    facts_lists,
    st.integers(0, 90),
    st.integers(0, 90),
    st.integers(-1, 200),
    st.integers(-1, 1_000),
)
def test_what_is_kept_is_what_each_rule_keeps(
    facts: list[SegmentFacts],
    log_start_offset: int,
    high_watermark: int,
    retention_bytes: int,
    retention_ms: int,
) -> None:
    gone = count(
        expire(
            facts,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            bytes=retention_bytes,
            ms=retention_ms,
        )
    )

    kept = facts[gone:]
    assert all(segment.next_base_offset <= high_watermark for segment in facts[:gone])
    if not kept:
        assert facts[-1].size_bytes
        return
    oldest = kept[0]
    if (oldest.is_active and not oldest.size_bytes) or oldest.next_base_offset > high_watermark:
        return
    assert oldest.is_active or oldest.next_base_offset > log_start_offset
    assert retention_ms < 0 or NOW_MS - oldest.largest_timestamp_ms <= retention_ms
    rest = sum(segment.size_bytes for segment in kept[1:])
    assert retention_bytes < 0 or rest < retention_bytes
