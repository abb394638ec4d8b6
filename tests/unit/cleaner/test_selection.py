"""Facts 8.B, Kafka's LogCleanerManagerTest, as far as it decides; more of it in `test_eligibility`.

What does not apply:

- B4, B5, B13, B19, B20, B28, B29: states in which threads hold a partition. Whoever owns a log
  cleans it, and what happens to it meanwhile makes the commit refuse (`test_commit`).
- B15 to B18: entries of partitions that are removed, moved, truncated, on a failed disk: what the
  owner does about them is in `tests/unit/log/test_cleaner_offsets.py`.
- B21: whether retention may delete from a log does not depend on whether it can be cleaned.
- B31: a verdict on one log does not depend on others, so that it says the same as B30.
"""

from dataclasses import replace
from typing import Any

import pytest

from siltstone.cleaner.selection import (
    Assessment,
    Limit,
    Reason,
    assess,
    filthiest_first,
)
from siltstone.ids import TopicPartition
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.log_facts import DAY_MS, HOUR_MS, NOW_MS, config, log_facts, with_times


class TestOffsets:
    def test_a_log_never_cleaned_is_dirty_from_its_start_to_its_active_segment(self) -> None:
        found = assess(log_facts((0, 100), (10, 100), (20, 100)), NOW_MS)

        assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 20)
        assert found.limit is Limit.ACTIVE_SEGMENT
        assert (found.clean_bytes, found.dirty_bytes) == (0, 200)
        assert found.dirty_ratio == 1.0

    # B6, B26
    def test_a_checkpoint_above_the_log_end_is_reset_to_the_log_start(self) -> None:
        facts = log_facts((0, 100), (10, 100))

        found = assess(replace(facts, checkpoint=21), NOW_MS)

        assert (found.first_dirty_offset, found.checkpoint_was_reset) == (0, True)

    def test_a_checkpoint_at_the_log_end_is_valid(self) -> None:
        facts = log_facts((0, 100), (10, 100))

        found = assess(replace(facts, checkpoint=20), NOW_MS)

        assert (found.first_dirty_offset, found.checkpoint_was_reset) == (20, False)
        assert found.reason is Reason.NOTHING_CLEANABLE

    # B7, B26
    def test_a_checkpoint_below_the_log_start_is_reset_to_the_log_start(self) -> None:
        facts = log_facts((10, 100), (20, 100), log_start_offset=10, checkpoint=9)

        found = assess(facts, NOW_MS)

        assert (found.first_dirty_offset, found.checkpoint_was_reset) == (10, True)

    # B26
    def test_a_checkpoint_at_the_log_start_is_valid(self) -> None:
        facts = log_facts((10, 100), (20, 100), log_start_offset=10, checkpoint=10)

        assert not assess(facts, NOW_MS).checkpoint_was_reset

    # B8
    def test_a_log_start_inside_of_the_only_segment_leaves_nothing_to_clean(self) -> None:
        found = assess(log_facts((0, 100), log_start_offset=5), NOW_MS, ignores_ratio=True)

        assert (found.first_dirty_offset, found.first_uncleanable_offset) == (5, 0)
        assert (found.is_eligible, found.reason) == (False, Reason.NOTHING_CLEANABLE)
        assert found.explanation == "the active segment allows no more"

    # B9
    def test_a_checkpoint_inside_of_the_only_segment_leaves_nothing_to_clean(self) -> None:
        found = assess(log_facts((0, 100), checkpoint=5), NOW_MS, ignores_ratio=True)

        assert (found.is_eligible, found.reason) == (False, Reason.NOTHING_CLEANABLE)

    def test_a_checkpoint_inside_of_the_active_segment_leaves_nothing_to_clean(self) -> None:
        facts = log_facts((0, 100), (10, 100), checkpoint=15)

        found = assess(facts, NOW_MS, ignores_ratio=True)

        assert (found.first_dirty_offset, found.first_uncleanable_offset) == (15, 10)
        assert found.dirty_bytes == 0

    # B22
    @pytest.mark.parametrize(
        ("last_stable_offset", "end"), [(0, 0), (9, 0), (10, 10), (19, 10), (20, 20), (29, 20)]
    )
    def test_a_pass_ends_at_the_segment_that_holds_the_last_stable_offset(
        self, last_stable_offset: int, end: int
    ) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), (30, 1), last_stable_offset=last_stable_offset)

        found = assess(facts, NOW_MS)

        assert found.first_uncleanable_offset == end
        assert found.limit is Limit.LAST_STABLE_OFFSET

    # B23
    @pytest.mark.parametrize("last_stable_offset", [30, 40])
    def test_a_pass_ends_at_the_active_segment_if_all_is_stable(
        self, last_stable_offset: int
    ) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), (30, 1), last_stable_offset=last_stable_offset)

        found = assess(facts, NOW_MS)

        assert (found.first_uncleanable_offset, found.limit) == (30, Limit.ACTIVE_SEGMENT)

    # 5.2: the limit is never below the first dirty offset
    def test_a_last_stable_offset_below_the_checkpoint_leaves_nothing_to_clean(self) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), checkpoint=10, last_stable_offset=3)

        found = assess(facts, NOW_MS)

        assert (found.first_dirty_offset, found.first_uncleanable_offset) == (10, 10)
        assert (found.clean_bytes, found.dirty_bytes) == (1, 0)


class TestMinLag:
    LAGGING = config(min_compaction_lag_ms=HOUR_MS)

    # B24
    def test_a_pass_ends_at_the_first_segment_with_a_record_that_is_too_young(self) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), (30, 1), log_config=self.LAGGING)
        old_ms = NOW_MS - 2 * HOUR_MS

        found = assess(with_times(facts, old_ms, old_ms, NOW_MS, NOW_MS), NOW_MS)

        assert (found.first_uncleanable_offset, found.limit) == (20, Limit.MIN_LAG)

    def test_an_old_segment_behind_a_young_one_has_to_wait(self) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), (30, 1), log_config=self.LAGGING)
        old_ms = NOW_MS - 2 * HOUR_MS

        found = assess(with_times(facts, old_ms, NOW_MS, old_ms, NOW_MS), NOW_MS)

        assert found.first_uncleanable_offset == 10

    # B25
    def test_the_active_segment_is_the_limit_if_everything_is_old(self) -> None:
        facts = log_facts((0, 1), (10, 1), log_config=self.LAGGING, age_ms=2 * HOUR_MS)

        found = assess(facts, NOW_MS)

        assert (found.first_uncleanable_offset, found.limit) == (10, Limit.ACTIVE_SEGMENT)

    # 5.2, strict
    @pytest.mark.parametrize(("age_ms", "end"), [(HOUR_MS, 10), (HOUR_MS - 1, 0)])
    def test_a_segment_exactly_as_old_as_the_lag_is_cleanable(self, age_ms: int, end: int) -> None:
        facts = log_facts((0, 1), (10, 1), log_config=self.LAGGING, age_ms=age_ms)

        assert assess(facts, NOW_MS).first_uncleanable_offset == end

    def test_the_search_begins_at_the_segment_that_holds_the_first_dirty_offset(self) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), log_config=self.LAGGING, checkpoint=12)
        old_ms = NOW_MS - 2 * HOUR_MS

        young_before = assess(with_times(facts, NOW_MS, old_ms, NOW_MS), NOW_MS)
        young_here = assess(with_times(facts, old_ms, NOW_MS, NOW_MS), NOW_MS)

        assert young_before.first_uncleanable_offset == 20
        assert young_here.first_uncleanable_offset == 10
        assert young_here.dirty_bytes == 0

    def test_without_a_lag_a_record_from_the_future_is_cleanable(self) -> None:
        found = assess(log_facts((0, 1), (10, 1), age_ms=-DAY_MS), NOW_MS)

        assert found.first_uncleanable_offset == 10

    # B27, as a story
    def test_undecided_data_waits_for_its_end_and_the_marker_for_its_own_lag(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(min_compaction_lag_ms=HOUR_MS)
        log.is_replicated = False
        log.produce("a=1", transactional=True)
        log.append("|")
        log.real.update_high_watermark(1)
        clock.advance_ms(HOUR_MS + 1)
        undecided = cleaner.assess(log)
        assert (undecided.first_uncleanable_offset, undecided.limit) == (
            0,
            Limit.LAST_STABLE_OFFSET,
        )

        log.abort()
        log.append("|")
        assert cleaner.assess(log).first_uncleanable_offset == 0  # not replicated yet

        log.real.update_high_watermark(2)
        decided = cleaner.assess(log)
        assert (decided.first_uncleanable_offset, decided.limit) == (1, Limit.MIN_LAG)

        clock.advance_ms(HOUR_MS)
        assert cleaner.assess(log).first_uncleanable_offset == 2


class TestRatio:
    # 5.3: clean 115 + cleanable 185, of which one segment is counted twice
    def test_a_segment_that_is_dirty_from_its_middle_on_counts_as_clean_and_as_dirty(self) -> None:
        facts = log_facts((0, 115), (10, 70), (20, 70), checkpoint=5)

        found = assess(facts, NOW_MS)

        assert (found.clean_bytes, found.dirty_bytes) == (115, 185)
        assert found.dirty_ratio == pytest.approx(185 / 300)

    def test_a_segment_that_begins_at_the_first_dirty_offset_is_only_dirty(self) -> None:
        found = assess(log_facts((0, 115), (10, 70), (20, 70), checkpoint=10), NOW_MS)

        assert (found.clean_bytes, found.dirty_bytes) == (115, 70)

    @pytest.mark.parametrize(
        ("sizes", "reason"),
        [
            ((100, 100), Reason.BELOW_RATIO),  # exactly at the threshold
            ((100, 101), Reason.DIRTY_RATIO),
            ((100, 99), Reason.BELOW_RATIO),
        ],
    )
    def test_a_log_is_due_above_the_ratio_and_not_at_it(
        self, sizes: tuple[int, int], reason: Reason
    ) -> None:
        facts = log_facts((0, sizes[0]), (10, sizes[1]), (20, 1), checkpoint=10)

        found = assess(facts, NOW_MS)

        assert (found.is_eligible, found.reason) == (reason is Reason.DIRTY_RATIO, reason)

    def test_the_number_that_decided_is_told(self) -> None:
        below = assess(log_facts((0, 3), (10, 1), (20, 1), checkpoint=10), NOW_MS)
        above = assess(log_facts((0, 1), (10, 3), (20, 1), checkpoint=10), NOW_MS)

        assert below.explanation == "0.25 is not over 0.50"
        assert above.explanation == "0.75 is over 0.50"

    def test_a_ratio_of_one_is_never_exceeded(self) -> None:
        facts = log_facts((0, 100), (10, 1), log_config=config(min_cleanable_dirty_ratio=1))

        assert assess(facts, NOW_MS).reason is Reason.BELOW_RATIO

    def test_a_ratio_of_zero_is_exceeded_by_any_byte(self) -> None:
        lowest = config(min_cleanable_dirty_ratio=0)
        dirty = log_facts((0, 10**9), (10, 1), (20, 1), log_config=lowest, checkpoint=10)
        clean = log_facts((0, 10**9), (10, 0), (20, 1), log_config=lowest, checkpoint=10)

        assert assess(dirty, NOW_MS).reason is Reason.DIRTY_RATIO
        assert assess(clean, NOW_MS).reason is Reason.NOTHING_CLEANABLE

    def test_ignoring_the_ratio_makes_whatever_is_cleanable_due(self) -> None:
        facts = log_facts((0, 100), (10, 1), (20, 1), checkpoint=10)

        found = assess(facts, NOW_MS, ignores_ratio=True)

        assert (found.is_eligible, found.reason) == (True, Reason.IGNORED_RATIO)
        assert found.explanation == "1 bytes are dirty"

    def test_ignoring_the_ratio_overrides_neither_lag_nor_last_stable_offset(self) -> None:
        lagging = config(min_compaction_lag_ms=HOUR_MS)
        young = log_facts((0, 100), (10, 1), log_config=lagging)
        undecided = log_facts((0, 100), (10, 1), last_stable_offset=3)

        assert not assess(young, NOW_MS, ignores_ratio=True).is_eligible
        assert assess(young, NOW_MS, ignores_ratio=True).explanation == (
            "the min.compaction.lag.ms allows no more"
        )
        assert not assess(undecided, NOW_MS, ignores_ratio=True).is_eligible

    def test_an_empty_log_has_no_dirty_part(self) -> None:
        found = assess(log_facts((0, 0)), NOW_MS)

        assert (found.dirty_ratio, found.reason) == (0.0, Reason.NOTHING_CLEANABLE)


class TestOrder:
    def verdict(self, name: str, dirty_bytes: int, **fields: Any) -> Assessment:
        partition = TopicPartition(name, 0)
        facts = log_facts((0, 100), (10, dirty_bytes), (20, 1), checkpoint=10, partition=partition)
        return assess(replace(facts, **fields), NOW_MS)

    # B2
    def test_the_filthiest_log_comes_first(self) -> None:
        verdicts = [self.verdict("a", 101), self.verdict("b", 900), self.verdict("c", 300)]

        assert [v.partition.topic for v in filthiest_first(verdicts)] == ["b", "c", "a"]

    # B3
    def test_a_log_that_cannot_be_cleaned_is_left_out(self) -> None:
        damaged = self.verdict("b", 900, uncleanable_reason="0.log is corrupt")
        verdicts = [self.verdict("a", 101), damaged]

        assert [v.partition.topic for v in filthiest_first(verdicts)] == ["a"]
        assert (damaged.reason, damaged.explanation) == (Reason.UNCLEANABLE, "0.log is corrupt")

    # B5
    def test_there_may_be_none(self) -> None:
        assert filthiest_first([self.verdict("a", 1), self.verdict("b", 100)]) == []

    def test_equally_filthy_logs_are_ordered_by_name(self) -> None:
        verdicts = [self.verdict(name, 300) for name in "cab"]

        assert [v.partition.topic for v in filthiest_first(verdicts)] == ["a", "b", "c"]

    # 5.5: age makes a log due, but gives it no priority
    def test_a_log_that_is_late_does_not_come_before_a_filthier_one(self) -> None:
        late = self.verdict("late", 10, config=config(max_compaction_lag_ms=1))
        late = replace(late, is_eligible=True)

        assert filthiest_first([late, self.verdict("filthy", 900)])[-1] is late
