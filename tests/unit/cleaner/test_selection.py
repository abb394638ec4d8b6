"""Facts 8.B, Kafka's LogCleanerManagerTest, as far as it decides; 8.A35 to 8.A38; 8.C2 and 8.C6.

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

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.grouping import SegmentSize, group_segments
from siltstone.cleaner.selection import (
    Assessment,
    Limit,
    LogFacts,
    Reason,
    SegmentFacts,
    assess,
    filthiest_first,
)
from siltstone.errors import CorruptBatchError, CorruptCheckpointError
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.records.layout import MAX_RELATIVE_OFFSET
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.make_log import PARTITION, HastyDisk, MadeLog, parse_config

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


class TestMaxLag:
    IMPATIENT = config(max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=1)

    # 5.4, strict
    @pytest.mark.parametrize(
        ("age_ms", "delay_ms"), [(HOUR_MS - 1, 0), (HOUR_MS, 0), (HOUR_MS + 1, 1)]
    )
    def test_a_log_is_due_if_its_oldest_dirty_record_is_older_than_the_lag(
        self, age_ms: int, delay_ms: int
    ) -> None:
        facts = log_facts((0, 1), (10, 1), log_config=self.IMPATIENT, age_ms=age_ms)

        found = assess(facts, NOW_MS)

        assert found.compaction_delay_ms == delay_ms
        assert found.is_eligible == (delay_ms > 0)

    def test_how_late_a_log_is_is_told(self) -> None:
        facts = log_facts((0, 1), (10, 1), log_config=self.IMPATIENT, age_ms=HOUR_MS + 7)

        found = assess(facts, NOW_MS)

        assert (found.reason, found.explanation) == (
            Reason.MAX_LAG,
            "7 ms over max.compaction.lag.ms",
        )

    def test_records_in_the_clean_part_and_in_the_active_segment_do_not_count(self) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), log_config=self.IMPATIENT, checkpoint=10)

        found = assess(with_times(facts, 1, NOW_MS, 1), NOW_MS)

        assert found.compaction_delay_ms == 0

    @pytest.mark.parametrize("missing_ms", [-1, 0])
    def test_a_segment_without_timestamps_is_skipped(self, missing_ms: int) -> None:
        facts = log_facts((0, 1), (10, 1), (20, 1), log_config=self.IMPATIENT)
        late_ms = NOW_MS - HOUR_MS - 5

        skipped = assess(with_times(facts, missing_ms, NOW_MS, NOW_MS), NOW_MS)
        beside = assess(with_times(facts, missing_ms, late_ms, NOW_MS), NOW_MS)

        assert (skipped.compaction_delay_ms, beside.compaction_delay_ms) == (0, 5)

    def test_a_late_log_without_a_cleanable_byte_is_not_due(self) -> None:
        facts = log_facts(
            (0, 1),
            (10, 1),
            log_config=self.IMPATIENT,
            age_ms=2 * HOUR_MS,
            last_stable_offset=3,
        )

        found = assess(facts, NOW_MS)

        assert found.compaction_delay_ms == HOUR_MS
        assert (found.is_eligible, found.reason) == (False, Reason.NOTHING_CLEANABLE)

    def test_without_a_lag_nothing_is_ever_late(self) -> None:
        facts = log_facts((0, 1), (10, 1), age_ms=NOW_MS - 1)

        assert assess(facts, NOW_MS).compaction_delay_ms == 0

    # C2 testMaxLogCompactionLag
    def test_a_log_is_cleaned_at_its_max_lag_whatever_its_ratio(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(
            "a=1 b=1 a=2 b=2",
            min_cleanable_dirty_ratio=1,
            min_compaction_lag_ms=HOUR_MS,
            max_compaction_lag_ms=6 * HOUR_MS,
        )
        clock.advance_ms(3 * HOUR_MS)
        log.append("a=3 b=3")
        assert not cleaner.assess(log).is_eligible

        clock.advance_ms(3 * HOUR_MS + 1)
        log.append("a=4 b=4")  # rolls: the active segment is over the lag too
        assert log.base_offsets() == [0, 6]
        due = cleaner.assess(log)
        assert (due.reason, due.first_uncleanable_offset) == (Reason.MAX_LAG, 6)
        cleaner.clean(log)
        assert log.contents() == "4:a=3 5:b=3 | 6:a=4 7:b=4"
        assert not cleaner.assess(log).is_eligible

        clock.advance_ms(6 * HOUR_MS + 1)
        assert not cleaner.assess(log).is_eligible  # all that is dirty is in the active segment
        log.append("c=1")
        assert cleaner.assess(log).reason is Reason.MAX_LAG
        cleaner.clean(log)
        assert log.contents() == "6:a=4 7:b=4 | 8:c=1"

    # I12: also if nobody appends any more
    def test_an_idle_log_is_rolled_and_cleaned_at_its_max_lag(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 a=2", min_cleanable_dirty_ratio=1, max_compaction_lag_ms=HOUR_MS)
        clock.advance_ms(HOUR_MS + 1)
        assert [log.real.maybe_roll_idle() for _ in range(2)] == [False, True]

        assert cleaner.assess(log).reason is Reason.MAX_LAG
        cleaner.clean(log)

        assert log.contents() == "1:a=2 |"


class TestPolicies:
    # B10 to B12
    @pytest.mark.parametrize(
        ("policy", "is_compacted"),
        [("compact", True), ("compact,delete", True), ("delete", False), ("", False)],
    )
    def test_only_logs_whose_policy_includes_compact_are_cleaned(
        self, policy: str, is_compacted: bool
    ) -> None:
        facts = log_facts((0, 1), (10, 1), log_config=config(cleanup_policy=policy))

        found = assess(facts, NOW_MS, ignores_ratio=True)

        assert found.is_eligible == is_compacted
        if not is_compacted:
            assert found.reason is Reason.NOT_COMPACTED
            assert found.explanation == f"cleanup.policy is {policy}"

    def test_a_policy_of_delete_comes_before_all_other_reasons(self) -> None:
        facts = log_facts(
            (0, 1),
            (10, 1),
            log_config=config(cleanup_policy="delete", max_compaction_lag_ms=1),
            age_ms=DAY_MS,
            earliest_horizon_ms=0,
            uncleanable_reason="damaged",
        )

        assert assess(facts, NOW_MS).reason is Reason.NOT_COMPACTED

    # B12: a compacted log gives up what lies below its log start, and nothing else
    @pytest.mark.parametrize(
        ("policy", "contents"), [("compact", "1:a=2 2:b=1 |"), ("compact,delete", "")]
    )
    def test_retention_takes_only_from_logs_that_delete(
        self,
        policy: str,
        contents: str,
        make_log: MakeCompactedLog,
        cleaner: Cleaner,
        clock: ManualClock,
    ) -> None:
        log = make_log("a=1 a=2 | b=1 |", cleanup_policy=policy, retention_ms=HOUR_MS)
        cleaner.clean(log)
        clock.advance_ms(HOUR_MS + 1)

        log.real.delete_old_segments()

        assert log.contents() == contents

    # B13, C6: compact -> delete -> compact
    def test_a_log_can_be_switched_to_delete_and_back(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 a=2 | b=1", retention_ms=HOUR_MS)
        cleaner.clean(log)
        assert cleaner.checkpoint(log) == 2

        log.configure(cleanup_policy="delete")
        assert cleaner.assess(log).reason is Reason.NOT_COMPACTED
        clock.advance_ms(HOUR_MS + 1)
        log.append("| =x =y |")
        assert log.real.delete_old_segments() == 2
        assert log.real.log_start_offset == 3

        log.configure(cleanup_policy="compact")
        log.append("a=3 a=4 |")
        found = cleaner.assess(log)
        assert (found.first_dirty_offset, found.checkpoint_was_reset) == (3, True)
        assert found.reason is Reason.DIRTY_RATIO
        cleaner.clean(log)
        assert log.contents() == "6:a=4 |"
        assert cleaner.checkpoint(log) == 7

    # C6 testCleansCombinedCompactAndDeleteTopic
    def test_a_log_that_compacts_and_deletes_does_both(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 b=1 a=2 | b=2 |", cleanup_policy="compact,delete", retention_ms=HOUR_MS)
        cleaner.clean(log)
        assert log.contents() == "2:a=2 3:b=2 |"

        clock.advance_ms(HOUR_MS + 1)
        assert log.real.delete_old_segments() == 1
        assert log.contents() == ""
        assert log.real.log_start_offset == log.real.log_end_offset == 4

        log.append("a=3 a=4 |")
        cleaner.clean(log)
        assert log.contents() == "5:a=4 |"


class TestExpiredHorizons:
    """Ours: in Kafka an expired horizon alone never makes a log eligible (facts 5.5)."""

    @pytest.mark.parametrize(
        ("horizon_ms", "is_due"), [(None, False), (NOW_MS + 1, False), (NOW_MS, True), (0, True)]
    )
    def test_a_clean_log_is_due_once_its_first_horizon_is_reached(
        self, horizon_ms: int | None, is_due: bool
    ) -> None:
        facts = log_facts((0, 100), (10, 1), checkpoint=10, earliest_horizon_ms=horizon_ms)

        found = assess(facts, NOW_MS)

        assert found.is_eligible == is_due
        assert found.reason is (Reason.EXPIRED_HORIZON if is_due else Reason.NOTHING_CLEANABLE)

    def test_a_log_below_its_ratio_is_due_for_an_expired_horizon(self) -> None:
        facts = log_facts((0, 100), (10, 1), (20, 1), checkpoint=10, earliest_horizon_ms=5)

        found = assess(facts, NOW_MS)

        assert (found.reason, found.explanation) == (
            Reason.EXPIRED_HORIZON,
            "tombstones or markers are due since 5",
        )

    def test_a_tombstone_of_a_quiet_topic_goes_when_its_time_is_up(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 a~ b=1 |", delete_retention_ms=1_000)
        cleaner.clean(log)
        assert log.contents() == "1:a~ 2:b=1 |"

        clock.advance_ms(999)
        assert not cleaner.assess(log).is_eligible
        clock.advance_ms(1)
        assert cleaner.assess(log).reason is Reason.EXPIRED_HORIZON
        cleaner.clean(log)
        assert log.contents() == "2:b=1 |"
        assert cleaner.checkpoint(log) == 3
        assert not cleaner.assess(log).is_eligible  # done: no log is due for ever

    def test_an_aborted_transaction_of_a_quiet_topic_leaves_nothing_behind(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(delete_retention_ms=1_000)
        log.produce("a=1", transactional=True)
        log.abort()
        log.produce("a=2", transactional=True)
        log.commit()
        log.append("|")
        cleaner.clean(log)
        cleaner.clean(log)
        assert log.contents() == "1:abort 2:a=2 3:commit |"

        clock.advance_ms(1_000)
        assert cleaner.assess(log).reason is Reason.EXPIRED_HORIZON
        cleaner.clean(log)

        assert log.contents() == "2:a=2 3:commit |"
        assert not cleaner.assess(log).is_eligible

    def test_a_horizon_that_no_pass_can_reach_makes_no_log_due(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 b~ | c=1 |", delete_retention_ms=1_000)
        cleaner.clean(log)
        cleaner.set_checkpoint(log, 1)  # inside of a segment, as a partial pass of Kafka leaves it
        clock.advance_ms(1_000)
        log.configure(min_compaction_lag_ms=10_000)

        found = cleaner.assess(log)
        assert (found.first_uncleanable_offset, found.limit) == (0, Limit.MIN_LAG)
        assert (found.is_eligible, found.reason) == (False, Reason.NOTHING_CLEANABLE)

        clock.advance_ms(9_000)
        assert cleaner.assess(log).is_eligible
        cleaner.clean(log)
        assert log.contents() == "0:a=1 2:c=1 |"

    def test_a_horizon_waits_for_the_last_stable_offset_to_catch_up(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 b~ |", delete_retention_ms=1_000)
        cleaner.clean(log)
        clock.advance_ms(1_000)
        log.real.update_high_watermark(0)  # as a replica after its start
        assert not cleaner.assess(log).is_eligible

        log.real.update_high_watermark(2)
        assert cleaner.assess(log).reason is Reason.EXPIRED_HORIZON


class TestCheckpoints:
    # B14, B28
    def test_a_pass_notes_where_it_ended_and_leaves_other_entries_alone(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 | a=2")
        other = TopicPartition("other", 0)
        cleaner.checkpoints(log).put(other, 7)

        cleaner.clean(log)

        assert cleaner.checkpoints(log).read() == {PARTITION: 1, other: 7}
        assert (log.directory.parent / "cleaner-offset-checkpoint").read_text() == (
            "0\n2\norders 3 1\nother 0 7\n"
        )

    def test_a_checkpoint_that_makes_no_sense_is_an_error(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 |")
        (log.directory.parent / "cleaner-offset-checkpoint").write_text("1\n0\n")

        with pytest.raises(CorruptCheckpointError, match="expected version 0, found 1"):
            cleaner.assess(log)

    def test_there_is_no_checkpoint_before_the_first_pass(self, make_log: MakeCompactedLog) -> None:
        log = make_log()

        assert CleanerCheckpoints(HastyDisk(), log.directory.parent).read() == {}

    # B1
    def test_a_damaged_log_says_which_file_is_to_blame(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a~ b=1 |")
        cleaner.clean(log)
        path = log.path("0.log")
        path.write_bytes(b"\xff" * path.stat().st_size)

        with pytest.raises(CorruptBatchError, match=r"orders-3/0+\.log is corrupt at position 0"):
            cleaner.assess(log)

    # B30: the verdict says that the checkpoint is to be corrected, selected or not
    def test_an_invalid_checkpoint_is_reported_of_a_log_with_nothing_to_clean(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1")
        cleaner.set_checkpoint(log, 100)

        found = cleaner.assess(log)

        assert (found.checkpoint_was_reset, found.first_dirty_offset) == (True, 0)
        assert not found.is_eligible

    # B17: a truncated log that grows again below its old end is dirty where it has changed
    def test_a_log_that_was_truncated_below_its_checkpoint_is_cleaned_from_its_start(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 b=1 | c=1 d=1 |")
        cleaner.clean(log)
        log.real.truncate_to(2)
        log.append("a=2 |")

        found = cleaner.assess(log)

        assert (found.first_dirty_offset, found.checkpoint_was_reset) == (0, True)
        cleaner.clean(log)
        assert log.contents() == "1:b=1 2:a=2 |"


def sizes(*segments: tuple[int, int], end_offset: int) -> list[SegmentSize]:
    """Describe segments by base offset and size; each has an entry of 8 bytes in both indexes."""
    ends = [*(base for base, _ in segments[1:]), end_offset]
    return [
        SegmentSize(base, end, size, 8, 8) for (base, size), end in zip(segments, ends, strict=True)
    ]


class TestGrouping:
    HUGE = 2**40

    def group(self, segments: list[SegmentSize], **limits: int) -> tuple[tuple[int, ...], ...]:
        return group_segments(
            segments, **{"max_log_bytes": self.HUGE, "max_index_bytes": self.HUGE, **limits}
        )

    # A35 testSegmentGrouping
    @pytest.mark.parametrize(
        ("limits", "groups"),
        [
            ({}, ((0, 10, 20, 30, 40, 50, 60),)),
            ({"max_log_bytes": 1}, ((0,), (10,), (20,), (30,), (40,), (50,), (60,))),
            ({"max_index_bytes": 1}, ((0,), (10,), (20,), (30,), (40,), (50,), (60,))),
            ({"max_log_bytes": 300}, ((0, 10, 20), (30, 40, 50), (60,))),
            ({"max_log_bytes": 299}, ((0, 10), (20, 30), (40, 50), (60,))),
            ({"max_index_bytes": 24}, ((0, 10, 20), (30, 40, 50), (60,))),
            ({"max_index_bytes": 23}, ((0, 10), (20, 30), (40, 50), (60,))),
        ],
    )
    def test_segments_are_merged_as_long_as_each_limit_allows(
        self, limits: dict[str, int], groups: tuple[tuple[int, ...], ...]
    ) -> None:
        segments = sizes(*((base, 100) for base in range(0, 70, 10)), end_offset=70)

        assert self.group(segments, **limits) == groups

    @pytest.mark.parametrize("field", ["offset_index_bytes", "time_index_bytes"])
    def test_each_index_has_its_own_limit(self, field: str) -> None:
        segments = sizes((0, 100), (10, 100), end_offset=20)
        large: dict[str, int] = {field: 93}

        grouped = self.group([replace(segments[0], **large), segments[1]], max_index_bytes=100)

        assert grouped == ((0,), (10,))

    def test_a_segment_that_is_too_large_by_itself_is_a_group_of_its_own(self) -> None:
        segments = sizes((0, 10), (10, 999), (20, 10), (30, 10), end_offset=40)

        assert self.group(segments, max_log_bytes=100) == ((0,), (10,), (20, 30))

    def test_nothing_makes_no_group(self) -> None:
        assert self.group([]) == ()

    # A36 testSegmentGroupingWithSparseOffsetsAndEmptySegments
    def test_segments_that_span_all_offsets_are_groups_of_their_own_until_they_are_empty(
        self,
    ) -> None:
        far = 2**31
        full = sizes((0, 100), (far, 100), (2 * far, 100), end_offset=3 * far)
        emptied = sizes((0, 0), (far, 0), (2 * far, 100), end_offset=3 * far)

        assert self.group(full) == ((0,), (far,), (2 * far,))
        assert self.group(emptied) == ((0, far), (2 * far,))

    # A37 testSegmentGroupingWithSparseOffsets
    def test_a_group_reaches_as_far_as_an_index_can_express(self) -> None:
        last = MAX_RELATIVE_OFFSET
        reaching = sizes((0, 100), (1, 100), end_offset=last + 1)
        beyond = sizes((0, 100), (1, 100), end_offset=last + 2)
        after = sizes((0, 100), (1, 100), (last + 2, 100), end_offset=last + 3)

        assert self.group(reaching) == ((0, 1),)
        assert self.group(beyond) == ((0,), (1,))
        assert self.group(after) == ((0,), (1,), (last + 2,))

    def test_segments_after_the_split_are_measured_from_their_own_group(self) -> None:
        last = MAX_RELATIVE_OFFSET
        segments = sizes((0, 100), (1, 100), (last, 100), (last + 1, 100), end_offset=last + 2)

        assert self.group(segments) == ((0, 1, last), (last + 1,))
        later = sizes((0, 100), (5, 100), (last + 3, 100), end_offset=last + 4)
        assert self.group(later) == ((0,), (5, last + 3))

    # A38 testSegmentGroupingFollowingLoadOfZeroIndex
    def test_how_far_a_segment_reaches_is_not_taken_from_its_index(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log: MadeLog = make_log("a=1 |")
        log.follow(log.build_at(1, "b=1"))
        log.follow(log.build_at(2**31, "c=1"))
        log.append("|")
        log.stop()
        for name in ("0.index", "1.index", "0.timeindex", "1.timeindex"):
            log.path(name).write_bytes(b"")
        log.start()

        assert cleaner.plan(log).groups == ((0,), (1,))
