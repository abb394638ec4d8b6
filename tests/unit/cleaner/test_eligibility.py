"""Facts 8.B and 8.C: what makes a pass due besides the ratio: lag, policy and expired horizons."""

import pytest

from siltstone.cleaner.selection import (
    Limit,
    Reason,
    assess,
)
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.log_facts import DAY_MS, HOUR_MS, NOW_MS, config, log_facts, with_times


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
