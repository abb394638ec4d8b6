"""Facts 8.A, one for one: Kafka's LogCleanerTest, with its numbers and names.

Where Kafka's test hands a made-up offset map to the cleaner, the newer records of those keys are
really in the log here. Where its map was too small for one pass, the end result is asserted.

What does not apply:

- A1 RemoveMetricsOnClose, A2 MetricsActiveAfterReconfiguration, A48 MaxCleanTimeSecs: gauges of a
  broker's cleaner threads, of which there are none.
- A28 PartialSegmentClean, A42 BuildOffsetMapFakeLarge, A43 BuildPartialOffsetMap: effects of the
  size of the offset map. Ours has no bound, so that a pass always reaches its end; what Kafka's
  passes end with is asserted here for A7, A28 and A42, and of A43 nothing is left.
- A19 LargeMessage, A20 MessageLargerThanMaxMessageSize, A11 DeletedBatchesWithNoMessagesRead:
  no buffer has to grow, and what must come out is the same.
- A33 CleanSegmentsWithAbort: nobody asks a run to stop, for it changes nothing. What Kafka stops
  it for makes the commit refuse; see also `test_commit`.
- A35 to A38, grouping: in `test_grouping`; what a pass makes of it is here for A36.
- A44 CleanCorruptMessageSet, A45 ClientHandlingOfCorruptMessageSet: magic 0 and 1 are refused.
- A49 ReconfigureLogCleanerIoMaxBytesPerSecond: there are no threads whose throttler would change.
"""

import pytest

from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.planner import assess_log
from siltstone.errors import CleaningAbortedError
from tests.support.cleaning import (
    Cleaner,
    MakeCompactedLog,
    file_bytes,
    horizons_ms,
    keys_of,
    pass_files,
    records_of,
)
from tests.support.clock import ManualClock
from tests.support.log_checks import check_segments

DAY_MS = 86_400_000


class TestSegments:
    # A3 testCleanSegments
    def test_superseded_records_of_three_segments_go_and_all_others_stay_in_order(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("0=a 1=a 2=a | 3=a 4=a 5=a | 6=a 7=a 8=a 9=a | 1=b 3=b 5=b 7=b 9=b | x=x")
        cleanable_bytes = log.real.size_bytes - log.real.segments.active.size_bytes

        counts = cleaner.counts(log)

        assert log.contents() == (
            "0:0=a 2:2=a 4:4=a 6:6=a 8:8=a 10:1=b 11:3=b 12:5=b 13:7=b 14:9=b | 15:x=x"
        )
        assert counts.bytes_read == cleanable_bytes
        assert (counts.records_read, counts.superseded, counts.records_kept) == (15, 5, 10)

    # A4 testCleanSegmentsWithConcurrentSegmentDeletion: Kafka swaps in what it has cleaned even if
    # retention took the sources. We do not bring back what is gone: the pass is refused.
    def test_a_pass_whose_sources_retention_deletes_is_refused_and_the_next_one_succeeds(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 | a=2 | a=3", cleanup_policy="compact,delete")
        plan = cleaner.plan(log)
        result = cleaner.run(plan)
        log.real.delete_records(1)
        assert log.real.delete_old_segments() == 1

        with pytest.raises(CleaningAbortedError, match="orders-3: the log changed: plan again"):
            cleaner.commit(log, plan, result)

        assert log.contents() == "1:a=2 | 2:a=3"
        assert [name for name in log.names() if name.startswith("0.")] == [
            "0.index.deleted",
            "0.log.deleted",
            "0.timeindex.deleted",
        ]
        cleaner.clean(log)
        assert log.contents() == "1:a=2 | 2:a=3"

    # A5 testSizeTrimmedForPreallocatedAndCompactedTopic
    def test_a_cleaned_segment_is_not_preallocated(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("0=a 1=a 0=b 1=b 0=c |", preallocate=True, segment_bytes=1024)
        assert log.path("5.log").stat().st_size == 1024

        cleaner.clean(log)

        assert log.contents() == "3:1=b 4:0=c |"
        assert log.path("0.log").stat().st_size == log.segment(0).size_bytes == 140

    # A29 testCleaningWithUncleanableSection
    def test_a_limit_inside_of_a_segment_leaves_that_segment_and_all_after_it_alone(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.is_replicated = False
        log.append("a=0 b=1 a=2 | b=3 a=4 b=5 | a=6 a=7 | a=8 a=9 | a=10 | a=11 | a=12")
        log.real.update_high_watermark(7)
        untouched = {n: d for n, d in file_bytes(log).items() if int(n.partition(".")[0]) >= 6}

        cleaner.clean(log)

        assert (
            log.contents()
            == "4:a=4 5:b=5 | 6:a=6 7:a=7 | 8:a=8 9:a=9 | 10:a=10 | 11:a=11 | 12:a=12"
        )
        after = file_bytes(log)
        assert {name: after[name] for name in untouched} == untouched

    # A34 testCleanSegmentsRetainingLastEmptyBatch
    def test_of_segments_in_which_nothing_survives_the_last_batch_stays_without_records(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("=0 =1 | =2 | =3 [=4 =5] |", cleanup_policy="delete")
        log.configure(cleanup_policy="compact")

        cleaner.clean(log)

        assert log.contents() == "4..5:empty |"
        assert log.base_offsets() == [0, 6]
        assert log.readable() == "4..5:empty"

    # A36 testSegmentGroupingWithSparseOffsetsAndEmptySegments
    def test_segments_that_a_pass_has_emptied_are_merged_by_the_next_one(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        far = 2**31
        log = make_log()
        for number, key in enumerate("aab"):
            base_offset = number * far
            log.follow(log.build_at(base_offset, f"{key}={number}"))
            log.follow(log.build_at(base_offset + far - 1, f"{key}={number}"))
            log.append("|")
        log.append("a=3 |")

        cleaner.clean(log)
        end = 3 * far
        assert log.base_offsets() == [0, far, 2 * far, end, end + 1]
        assert log.contents() == f"|  | {end - 1}:b=2 | {end}:a=3 |"

        cleaner.clean(log)
        assert log.base_offsets() == [0, 2 * far, end, end + 1]
        assert log.contents() == f"| {end - 1}:b=2 | {end}:a=3 |"

    # A40 testSegmentWithOffsetOverflow
    def test_a_segment_whose_offsets_overflow_its_base_is_split(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        far = 2**31
        log = make_log()
        log.stop()
        batches = [
            log.build_at(offset, text)
            for offset, text in ((0, "a=1"), (1, "b=1"), (far, "a=2"), (far + 1, "c=1"))
        ]
        log.write_segment(0, batches)
        for name in ("0.index", "0.timeindex"):
            log.path(name).write_bytes(b"")
        log.start()
        assert log.base_offsets() == [0]  # a clean stop: nobody has looked
        log.append("|")

        cleaner.clean(log)

        assert log.contents() == f"1:b=1 | {far}:a=2 {far + 1}:c=1 |"
        assert log.base_offsets() == [0, far, far + 2]
        check_segments(log.real)

    # A40, as the first surviving record lies too far from the base
    def test_a_segment_that_loses_all_that_fits_its_base_keeps_the_base(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        far = 2**31
        log = make_log()
        log.stop()
        log.write_segment(0, [log.build_at(0, "a=1"), log.build_at(far, "a=2")])
        for name in ("0.index", "0.timeindex"):
            log.path(name).write_bytes(b"")
        log.start()
        log.append("|")

        cleaner.clean(log)

        assert log.base_offsets() == [0, far, far + 1]
        assert log.readable() == f"{far}:a=2"

    # A47 testCleaningBeyondMissingOffsets
    @pytest.mark.parametrize("gaps", [1, 3])
    def test_a_pass_gets_past_offsets_that_are_missing_at_the_end_of_segments(
        self, gaps: int, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 b=1")
        for _ in range(gaps):
            log.append("|")
            log.follow(log.build_at(log.real.log_end_offset + 1000, "a=2"))
        log.append("|")
        log.follow(log.build_at(log.real.log_end_offset + 1000, "z=1"))
        active = log.base_offsets()[-1]

        cleaner.clean(log)

        assert cleaner.checkpoint(log) == active
        assert keys_of(log) == "b a z"

    # A42 testBuildOffsetMapFakeLarge
    def test_records_millions_of_offsets_apart_are_one_segment(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1")
        log.follow(log.build_at(7_206_178, "b=1"))
        log.append("|")

        committed = cleaner.clean(log)

        assert log.contents() == "0:a=1 7206178:b=1 |"
        assert committed.plan.end_offset == 7_206_179


class TestKeysAndCounts:
    # A23 testCleaningWithDeletes
    def test_no_value_of_a_deleted_key_remains(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(segment_bytes=1024)
        for number in range(30):
            log.append(f"{number}={number}")
        for number in range(0, 30, 2):
            log.append(f"{number}~")
        while len(log.base_offsets()) < 5:
            log.append(f"pad-{log.real.log_end_offset}=x")

        cleaner.clean(log)

        values = {record.key for record in records_of(log) if record.value is not None}
        assert values.isdisjoint(str(number).encode() for number in range(0, 30, 2))
        assert values.issuperset(str(number).encode() for number in range(1, 30, 2))

    # A24 testLogCleanerStats
    def test_the_counts_of_a_pass_are_exact(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("0=a 1=a 0=b 1=b 0=c |")
        cleaner.set_checkpoint(log, 2)
        before_bytes = log.real.size_bytes

        committed = cleaner.clean(log)

        counts = committed.result.counts
        assert (committed.plan.first_dirty_offset, committed.plan.end_offset) == (2, 5)
        assert (counts.records_read, counts.records_kept) == (5, 2)
        assert (counts.bytes_read, counts.bytes_written) == (before_bytes, log.real.size_bytes)
        assert counts.keyless_removed == 0
        assert committed.result.seconds >= 0

    # A28 testPartialSegmentClean: what its three passes end with
    def test_one_pass_leaves_one_record_of_each_key(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("0=a 1=a 0=b 1=b 0=c |")
        cleaner.set_checkpoint(log, 2)

        cleaner.clean(log)

        assert log.contents() == "3:1=b 4:0=c |"
        assert cleaner.checkpoint(log) == 5

    # A32 testCleaningWithUnkeyedMessages
    def test_records_without_a_key_go_and_are_counted(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("=0 =1 =2 a=3", cleanup_policy="delete")
        log.configure(cleanup_policy="compact")
        log.append("b=4 c=5 |")

        counts = cleaner.counts(log)

        assert log.contents() == "3:a=3 4:b=4 5:c=5 |"
        assert counts.keyless_removed == 3
        assert (counts.records_read, counts.records_kept, counts.superseded) == (6, 3, 0)

    # A39 testBuildOffsetMap
    @pytest.mark.parametrize(
        ("high_watermark", "contents"),
        [
            (2, "0:a=0 1:b=1 | 2:a=2 3:b=3 | 4:a=4 5:b=5 |"),  # everything else is above the end
            (4, "2:a=2 3:b=3 | 4:a=4 5:b=5 |"),
            (6, "4:a=4 5:b=5 |"),
        ],
    )
    def test_records_above_the_end_of_a_pass_supersede_nothing(
        self, high_watermark: int, contents: str, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.is_replicated = False
        log.append("a=0 b=1 | a=2 b=3 | a=4 b=5 |")
        log.real.update_high_watermark(high_watermark)

        counts = cleaner.counts(log)

        assert log.contents() == contents
        assert counts.records_read == high_watermark
        assert cleaner.checkpoint(log) == high_watermark

    # A46 testCleanTombstone
    def test_a_tombstone_with_an_old_timestamp_waits_as_long_as_any_other(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("0=a@0 0~@0 |")

        cleaner.clean(log)
        assert log.contents() == "1:0~ |"

        log.append("1=a@0 |")
        cleaner.clean(log)
        assert log.contents() == "1:0~ 2:1=a |"
        assert horizons_ms(log) == {1: clock.now_ms() + DAY_MS}


class TestSizes:
    # A30 testLogToClean
    def test_with_nothing_dirty_all_but_the_active_segment_is_clean(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 | a=2 | a=3 | a=4 | a=5 | a=6")
        cleaner.set_checkpoint(log, 5)

        assessment = cleaner.assess(log)

        assert assessment.dirty_bytes == 0
        assert assessment.clean_bytes == log.real.size_bytes - log.segment(5).size_bytes

    # A31 testLogToCleanWithUncleanableSection
    def test_what_is_uncleanable_counts_neither_as_clean_nor_as_dirty(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.is_replicated = False
        log.append("a=1 | a=2 | a=33 | a=44 | a=5 | a=6")
        log.real.update_high_watermark(4)
        cleaner.set_checkpoint(log, 2)

        assessment = cleaner.assess(log)

        assert assessment.clean_bytes == 2 * 70
        assert assessment.dirty_bytes == 2 * 71
        assert assessment.dirty_ratio == pytest.approx(142 / 282)


class TestChanges:
    # A33 testCleanSegmentsWithAbort
    def test_a_pass_over_a_log_that_is_truncated_meanwhile_is_refused(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 | a=2 | a=3")
        plan = cleaner.plan(log)
        result = cleaner.run(plan)
        log.real.truncate_to(1)

        with pytest.raises(CleaningAbortedError, match="orders-3: the log changed: plan again"):
            cleaner.commit(log, plan, result)

        assert log.contents() == "0:a=1 |"

    # A41 testRecoveryAfterCrash
    @pytest.mark.parametrize(
        ("staged", "old", "is_kept"),
        [
            pytest.param(("cleaned", "cleaned", "cleaned"), "there", False, id="a-all-cleaned"),
            pytest.param(("swap", "cleaned", "cleaned"), "there", False, id="b-log-is-swap"),
            pytest.param(("swap", "swap", "swap"), "there", True, id="c-all-swap"),
            pytest.param(("swap", "swap", "swap"), "deleted", True, id="d-old-deleted"),
            pytest.param(("", "", "swap"), "deleted", True, id="e-time-index-is-swap"),
            pytest.param(("", "", ""), "deleted", True, id="f-finished"),
        ],
    )
    def test_after_a_crash_in_the_swap_the_log_is_the_old_one_or_the_new_one(
        self,
        staged: tuple[str, str, str],
        old: str,
        is_kept: bool,
        make_log: MakeCompactedLog,
        cleaner: Cleaner,
    ) -> None:
        text = "a=1 b=1 a=2 | b=2 c=1 | z=1"
        log = make_log(text)
        before = log.contents()
        old_files = {n: d for n, d in file_bytes(log).items() if not n.startswith("5.")}
        cleaner.clean(log)
        after = log.contents()
        assert after != before
        new_files = {
            name: log.path(name).read_bytes() for name in ("0.log", "0.index", "0.timeindex")
        }
        log.crash()
        for name in [n for n in log.names() if not n.startswith("5.")]:
            log.path(name).unlink()
        for name, data in old_files.items():
            log.path(f"{name}.deleted" if old == "deleted" else name).write_bytes(data)
        for (name, data), suffix in zip(new_files.items(), staged, strict=True):
            log.path(f"{name}.{suffix}" if suffix else name).write_bytes(data)

        log.start()

        assert log.contents() == (after if is_kept else before)
        left = [n for n in log.names() if n.endswith((".cleaned", ".swap", ".deleted"))]
        assert left == []
        cleaner.clean(log)
        assert log.contents() == after


def test_the_engine_leaves_the_live_log_alone(
    engine: CleaningEngine, make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("a=1 | a=2 | b~ | c=1")
    before = file_bytes(log)

    engine.run(cleaner.plan(log))

    assert file_bytes(log) == before
    assert len(pass_files(log)) == 3
    assert assess_log(log.real, None, 0)[0].first_dirty_offset == 0
