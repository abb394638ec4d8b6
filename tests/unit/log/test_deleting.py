"""Facts 8.F5 to F15, one for one: what a log deletes, keeps and refuses to take.

Where Kafka's own catalogue goes further than this layer:

- 8.F13 also asks that compaction leaves no snapshot behind: that is for the cleaner's tests.
- 8.F17 is about remote storage, which no log of this layer has: nothing is ever copied away, so
  there is no segment that must wait for its upload, and only one retention.
"""

from collections.abc import Callable

import pytest

from siltstone.errors import (
    InvalidRecordError,
    OffsetOutOfRangeError,
)
from tests.support.clock import ManualClock
from tests.support.make_log import MadeLog, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class TestRecoveryPoint:  # 8.F5
    def test_a_roll_makes_everything_below_the_new_base_durable(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 c=1")
        assert log.real.recovery_point == 0

        log.append("| d=1")

        assert log.real.recovery_point == 3


class TestCollectingEverything:  # 8.F6
    @pytest.mark.parametrize("count", [0, 1, 25])
    def test_offsets_go_on_after_all_segments_have_expired(
        self, make_log: MakeLog, clock: ManualClock, count: int
    ) -> None:
        log = make_log("a=1 " * count, segment_bytes=5 * BATCH_BYTES, retention_ms=HOUR_MS)
        clock.advance_ms(HOUR_MS + 1)

        log.real.delete_old_segments()

        assert log.base_offsets() == [count]
        assert (log.real.log_start_offset, log.real.log_end_offset) == (count, count)
        assert log.real.size_bytes == 0
        assert log.real.delete_old_segments() == 0
        log.append("z=1")
        assert log.contents() == f"{count}:z=1"


class TestKeys:  # 8.F7
    @pytest.mark.parametrize(
        ("batch", "index"), [("[=1]", 0), ("[=1 a=1 b=1]", 0), ("[a=1 =1 b=1 =2]", 1)]
    )
    @pytest.mark.parametrize("policy", ["compact", "compact,delete"])
    def test_a_compacted_topic_refuses_a_batch_with_a_record_without_key(
        self, make_log: MakeLog, batch: str, index: int, policy: str
    ) -> None:
        log = make_log(cleanup_policy=policy)

        with pytest.raises(InvalidRecordError) as error:
            log.append(batch)

        assert error.value.record_index == index
        assert str(error.value) == (
            f"orders-3: record {index} of the batch: "
            "a compacted topic takes no record without a key"
        )
        assert log.contents() == ""

    @pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
    def test_batches_with_keys_pass(self, make_log: MakeLog, policy: str) -> None:
        log = make_log("a=1 [b=1 a~]", cleanup_policy=policy)

        assert log.contents() == "0:a=1 1:b=1 2:a~"

    def test_other_topics_take_records_without_keys(self, make_log: MakeLog) -> None:
        assert make_log("[=1 a=1]").contents() == "0:=1 1:a=1"


class TestDelayedDeletion:  # 8.F8
    def test_files_are_renamed_at_once_and_gone_after_the_delay(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1 | b=1", retention_ms=HOUR_MS, file_delete_delay_ms=1_000)
        clock.advance_ms(HOUR_MS + 1)

        log.real.delete_old_segments()
        deleted = [name for name in log.names() if name.endswith(".deleted")]
        assert deleted == [
            "0.index.deleted",
            "0.log.deleted",
            "0.timeindex.deleted",
            "1.index.deleted",
            "1.log.deleted",
            "1.snapshot.deleted",
            "1.timeindex.deleted",
        ]
        assert "0.log" not in log.names()

        clock.advance_ms(999)
        log.real.delete_due_files()
        assert set(deleted) < set(log.names())

        clock.advance_ms(1)
        log.real.delete_due_files()
        assert log.names() == ["2.log", "2.snapshot"]


class TestHighWatermark:  # 8.F9
    def test_nothing_goes_before_it_is_replicated(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(segment_bytes=5 * BATCH_BYTES, retention_ms=HOUR_MS)
        log.is_replicated = False
        log.append("a=1 " * 100)
        clock.advance_ms(HOUR_MS + 1)
        assert len(log.base_offsets()) == 20
        assert log.real.delete_old_segments() == 0

        for high_watermark in range(101):
            log.real.update_high_watermark(high_watermark)
            log.real.delete_old_segments()

            expected = high_watermark - high_watermark % 5
            assert log.real.log_start_offset == log.base_offsets()[0] == expected

    def test_the_log_start_cannot_pass_it(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 c=1")
        log.is_replicated = False
        log.append("d=1 e=1")

        with pytest.raises(OffsetOutOfRangeError) as error:
            log.real.delete_records(4)

        assert str(error.value) == "offset 4 of orders-3 is outside of the log (0 to 3)"
        assert log.real.log_start_offset == 0


class TestDeletingRecords:  # 8.F10
    def test_a_segment_goes_once_all_of_it_is_below_the_log_start(self, make_log: MakeLog) -> None:
        log = make_log("a=1 " * 15, segment_bytes=5 * BATCH_BYTES)
        left = {}

        for offset in (1, 6, 15):
            log.real.delete_records(offset)
            log.real.delete_old_segments()
            left[log.real.log_start_offset] = log.base_offsets()

        assert left == {1: [0, 5, 10], 6: [5, 10], 15: [10]}


class TestRules:  # 8.F11
    @pytest.fixture
    def make(self, make_log: MakeLog) -> Callable[..., MadeLog]:
        return lambda **settings: make_log("a=1 " * 15, segment_bytes=5 * BATCH_BYTES, **settings)

    def test_the_oldest_segments_over_the_size_limit_go(self, make: Callable[..., MadeLog]) -> None:
        log = make(retention_bytes=10 * BATCH_BYTES)

        log.real.delete_old_segments()

        assert log.base_offsets() == [5, 10]

    def test_a_log_of_just_the_size_limit_is_kept(self, make: Callable[..., MadeLog]) -> None:
        log = make(retention_bytes=15 * BATCH_BYTES)

        log.real.delete_old_segments()

        assert log.base_offsets() == [0, 5, 10]

    def test_a_segment_stays_if_the_rest_alone_is_below_the_limit(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1 | c=1 | d=1 | e=1", retention_bytes=2 * BATCH_BYTES)
        log.real.delete_old_segments()
        assert log.contents() == "3:d=1 | 4:e=1"

        log = make_log("a=1 | b=1 | c=1 | d=1 | e=1", retention_bytes=2 * BATCH_BYTES + 1)
        log.real.delete_old_segments()
        assert log.contents() == "2:c=1 | 3:d=1 | 4:e=1"

    def test_expired_segments_go(self, make: Callable[..., MadeLog], clock: ManualClock) -> None:
        log = make(retention_ms=HOUR_MS)

        clock.advance_ms(HOUR_MS)
        log.real.delete_old_segments()
        assert log.base_offsets() == [0, 5, 10]  # as old as allowed is not too old

        clock.advance_ms(1)
        log.real.delete_old_segments()
        assert log.base_offsets() == [15]

    def test_a_compacted_log_is_not_subject_to_time_or_size(
        self, make: Callable[..., MadeLog], clock: ManualClock
    ) -> None:
        log = make(cleanup_policy="compact", retention_ms=HOUR_MS, retention_bytes=0)
        clock.advance_ms(DAY_MS)

        log.real.delete_old_segments()

        assert log.base_offsets() == [0, 5, 10]

    def test_a_log_that_is_compacted_and_deleted_is(
        self, make: Callable[..., MadeLog], clock: ManualClock
    ) -> None:
        log = make(cleanup_policy="compact,delete", retention_ms=HOUR_MS)
        clock.advance_ms(DAY_MS)

        log.real.delete_old_segments()

        assert log.base_offsets() == [15]

    def test_a_compacted_log_still_loses_what_is_below_its_start(
        self, make: Callable[..., MadeLog]
    ) -> None:
        log = make(cleanup_policy="compact,delete")
        log.real.delete_records(5)
        log.configure(cleanup_policy="compact")

        log.real.delete_old_segments()

        assert log.base_offsets() == [5, 10]


class TestRulesTogether:  # 8.F12
    def test_time_goes_on_where_the_log_start_has_led(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(retention_ms=HOUR_MS)
        old_ms = clock.now_ms() - HOUR_MS - 1
        # The young segment at the head alone would hold the time rule back.
        log.append(f"a=1 | b=1@{old_ms} | c=1")
        assert log.real.delete_old_segments() == 0

        log.real.delete_records(1)
        assert log.real.delete_old_segments() == 2
        assert log.contents() == "2:c=1"
        assert log.real.delete_old_segments() == 0


class TestSnapshots:  # 8.F13
    def test_retention_takes_the_snapshots_of_its_segments_along(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(retention_ms=HOUR_MS)
        log.produce("a=1")
        log.append("|")
        log.produce("b=1")
        log.append("|")
        log.produce("c=1")
        assert log.snapshots() == [1, 2]

        clock.advance_ms(HOUR_MS + 1)
        log.real.delete_old_segments()

        assert log.base_offsets() == [3]
        assert log.snapshots() == [3]

    def test_so_does_a_log_start_that_moves(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1 | c=1 | d=1")
        assert log.snapshots() == [1, 2, 3]

        log.real.delete_records(2)
        log.real.delete_old_segments()

        assert log.base_offsets() == [2, 3]
        assert log.snapshots() == [2, 3]

    def test_the_producers_are_not_forgotten(self, make_log: MakeLog, clock: ManualClock) -> None:
        log = make_log(retention_ms=HOUR_MS)
        log.produce("a=1")
        clock.advance_ms(HOUR_MS + 1)

        log.real.delete_old_segments()

        assert log.base_offsets() == [1]
        assert log.real.producer_state.entries[1].last_sequence == 0


class TestEpochs:  # 8.F14
    def make(self, make_log: MakeLog, *starts: int) -> MadeLog:
        """Three segments of five records each, with epochs that start at these offsets."""
        log = make_log(segment_bytes=5 * BATCH_BYTES)
        for offset in range(15):
            epoch = sum(start <= offset for start in starts) - 1
            log.append_batch(log.build("a=1"), leader_epoch=epoch)
        return log

    def test_an_epoch_goes_with_the_segment_below_its_end(self, make_log: MakeLog) -> None:
        log = self.make(make_log, 0, 5, 10)
        log.configure(retention_bytes=10 * BATCH_BYTES)

        log.real.delete_old_segments()

        assert log.epochs() == "0\n2\n1 5\n2 10\n"

    def test_otherwise_the_oldest_epoch_starts_at_the_log_start(self, make_log: MakeLog) -> None:
        log = self.make(make_log, 0, 7, 10)
        log.configure(retention_bytes=10 * BATCH_BYTES)

        log.real.delete_old_segments()

        assert log.epochs() == "0\n3\n0 5\n1 7\n2 10\n"

    def test_an_empty_log_keeps_the_latest(self, make_log: MakeLog, clock: ManualClock) -> None:
        log = self.make(make_log, 0, 7, 10)
        log.configure(retention_ms=HOUR_MS)
        clock.advance_ms(HOUR_MS + 1)

        log.real.delete_old_segments()

        assert log.epochs() == "0\n1\n2 15\n"
        assert log.real.latest_epoch == 2

    def test_an_empty_log_keeps_the_latest_when_it_is_opened_again(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = self.make(make_log, 0, 7)
        log.configure(retention_ms=HOUR_MS)
        clock.advance_ms(HOUR_MS + 1)
        log.real.delete_old_segments()

        log.append("z=1")  # an epoch at the very end has written nothing yet
        log.restart()

        assert log.epochs() == "0\n1\n1 15\n"


class TestTheLastSegment:  # 8.F15
    def test_it_is_never_given_up_when_it_is_empty(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1 |", retention_ms=HOUR_MS)
        clock.advance_ms(DAY_MS)

        assert log.real.delete_old_segments() == 1
        assert log.base_offsets() == [1]
        assert log.real.delete_old_segments() == 0

    def test_it_goes_when_all_of_it_is_replicated(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1 |", retention_ms=HOUR_MS)
        log.is_replicated = False
        log.append("b=1")
        clock.advance_ms(DAY_MS)

        assert log.real.delete_old_segments() == 1
        assert log.contents() == "1:b=1"

        log.real.update_high_watermark(2)
        assert log.real.delete_old_segments() == 1
        assert log.base_offsets() == [2]

    def test_the_oldest_go_first_and_a_young_one_ends_it(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(retention_ms=HOUR_MS)
        old_ms = clock.now_ms() - DAY_MS
        log.append(f"a=1@{old_ms} | b=1@{old_ms} | c=1 | d=1@{old_ms} | e=1")

        assert log.real.delete_old_segments() == 2

        assert log.contents() == "2:c=1 | 3:d=1 | 4:e=1"
