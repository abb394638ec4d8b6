"""What a log loses on purpose: its end by truncation, its beginning by deleted records."""

import pytest

from siltstone.errors import (
    OffsetOutOfRangeError,
    PolicyViolationError,
    UsageError,
)
from siltstone.log.partition_log import HIGH_WATERMARK_OFFSET
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from tests.support.clock import ManualClock
from tests.support.counting_disk import CountingDisk
from tests.support.make_log import EVERYTHING, MadeLog, MakeLog

HOUR_MS = 3_600_000


class TestTruncating:
    def test_everything_from_an_offset_on_goes(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1 d=1 | e=1")

        assert log.real.truncate_to(3)

        assert log.contents() == "0:a=1 1:b=1 | 2:c=1"
        assert log.real.log_end_offset == log.real.high_watermark == 3
        assert log.real.recovery_point == 3
        log.append("f=1")
        assert log.contents() == "0:a=1 1:b=1 | 2:c=1 3:f=1"
        log.restart()
        assert log.contents() == "0:a=1 1:b=1 | 2:c=1 3:f=1"

    def test_a_batch_goes_whole(self, make_log: MakeLog) -> None:
        log = make_log("a=1 [b=1 c=1 d=1]")

        log.real.truncate_to(3)

        assert log.contents() == "0:a=1"
        assert log.real.log_end_offset == 3  # the leader will say what belongs there
        log.append("e=1")
        assert log.readable() == "0:a=1 3:e=1"

    def test_a_segment_that_begins_at_the_offset_stays_empty(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1 | c=1")

        log.real.truncate_to(1)

        assert log.base_offsets() == [0, 1]
        log.append("d=1")
        assert log.contents() == "0:a=1 | 1:d=1"

    @pytest.mark.parametrize("offset", [2, 3, 100])
    def test_nothing_happens_at_or_after_the_end(self, make_log: MakeLog, offset: int) -> None:
        log = make_log("a=1 b=1")

        assert not log.real.truncate_to(offset)

        assert log.real.log_end_offset == 2

    def test_a_negative_offset_is_refused(self, make_log: MakeLog) -> None:
        with pytest.raises(UsageError) as error:
            make_log("a=1").real.truncate_to(-1)

        assert str(error.value) == "orders-3: cannot truncate to offset -1"

    def test_below_the_first_segment_the_log_begins_anew(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1")
        log.real.delete_records(2)
        log.real.delete_old_segments()

        log.real.truncate_to(1)

        assert log.base_offsets() == [1]
        assert log.real.log_start_offset == log.real.log_end_offset == 1

    def test_the_log_start_follows_down(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 c=1 d=1")
        log.real.delete_records(3)

        log.real.truncate_to(1)

        assert (log.real.log_start_offset, log.real.log_end_offset) == (1, 1)

    def test_epochs_that_wrote_nothing_before_the_offset_are_forgotten(
        self, make_log: MakeLog
    ) -> None:
        log = make_log()
        for epoch in (0, 1, 1, 2):
            log.append_batch(log.build("a=1"), leader_epoch=epoch)

        log.real.truncate_to(3)
        assert log.epochs() == "0\n2\n0 0\n1 1\n"
        log.real.truncate_to(1)
        assert log.epochs() == "0\n1\n0 0\n"

    def test_producers_are_as_they_were_then(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", producer=1)
        log.produce("b=1", producer=2)
        log.append("|")
        log.produce("c=1", producer=1)
        log.produce("d=1", producer=3)
        assert log.snapshots() == [2]

        log.real.truncate_to(2)

        entries = log.real.producer_state.entries
        assert {key: entry.last_sequence for key, entry in entries.items()} == {1: 0, 2: 0}
        log.produce("e=1", producer=1, sequence=1)
        assert log.contents() == "0:a=1 1:b=1 | 2:e=1"

    def test_producers_are_as_they_were_in_the_middle_of_a_segment(self, make_log: MakeLog) -> None:
        log = make_log()
        for _ in range(4):
            log.produce("a=1")

        log.real.truncate_to(2)

        assert log.real.producer_state.entries[1].last_sequence == 1
        assert log.produce("a=1", sequence=2).first_offset == 2

    def test_snapshots_after_the_offset_are_gone(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1 | c=1 | d=1")
        assert log.snapshots() == [1, 2, 3]

        log.real.truncate_to(2)

        assert log.snapshots() == [1, 2]

    def test_a_transaction_whose_marker_is_gone_is_open_again(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.produce("a=1", transactional=True)
        log.abort()
        log.append("y=1")
        assert log.real.last_stable_offset == 4

        log.real.truncate_to(2)
        assert log.real.last_stable_offset == 1
        assert log.real.collect_aborted(0, 100) == []

        log.append("z=1")
        log.abort()
        assert log.real.last_stable_offset == 4
        assert log.real.collect_aborted(0, 100) == [AbortedTxn(1, 1, 3, 4)]

    def test_a_transaction_that_is_gone_holds_nobody_back(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.produce("a=1", transactional=True)

        log.real.truncate_to(1)
        log.append("y=1 z=1")

        assert log.real.last_stable_offset == 3

    def test_timestamps_are_as_they_were_then(self, make_log: MakeLog) -> None:
        log = make_log("a=1@10 b=1@50 c=1@20 d=1@90", index_interval_bytes=0)

        log.real.truncate_to(3)

        assert log.real.find_max_timestamp() == TimestampOffset(50, 1)
        assert log.real.find_offset_by_timestamp(51) is None

    def test_a_segment_that_is_emptied_begins_now(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1@-1", segment_ms=HOUR_MS)
        clock.advance_ms(HOUR_MS)
        log.real.truncate_to(0)

        clock.advance_ms(HOUR_MS)
        log.append("b=1@-1 c=1@-1")

        assert log.base_offsets() == [0]

    @pytest.mark.parametrize("offset", [0, 2, 3, 500])
    def test_a_log_can_start_anew_anywhere(self, make_log: MakeLog, offset: int) -> None:
        log = make_log("x=1")
        log.produce("a=1", transactional=True)
        log.append("| b=1")

        log.real.truncate_fully_and_start_at(offset)

        assert log.base_offsets() == [offset]
        assert log.real.log_start_offset == log.real.log_end_offset == offset
        assert log.real.high_watermark == log.real.last_stable_offset == offset
        assert log.real.recovery_point <= offset
        assert dict(log.real.producer_state.entries) == {}
        assert log.epochs() == "0\n0\n"
        assert log.snapshots() == []
        log.append("c=1")
        log.restart()
        assert log.contents() == f"{offset}:c=1"

    def test_a_log_that_starts_anew_makes_its_new_records_durable(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log("a=1 b=1 c=1", fs=disk)
        log.real.flush()

        log.real.truncate_fully_and_start_at(1)
        log.append("d=1")
        disk.flushed.clear()
        log.real.flush()

        assert "00000000000000000001.log" in disk.flushed
        assert log.real.recovery_point == 2


class TestDeletingRecords:
    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        log = make_log("a=1 b=1 [c=1 d=1 e=1]")
        log.is_replicated = False
        log.append("f=1")
        return log

    def test_what_lies_below_cannot_be_read_any_more(self, log: MadeLog) -> None:
        assert log.real.delete_records(3) == 3

        with pytest.raises(OffsetOutOfRangeError):
            log.real.read(2, EVERYTHING)
        assert log.readable() == "2:c=1 3:d=1 4:e=1"  # whole batches, the reader skips
        assert log.contents() == "0:a=1 1:b=1 2:c=1 3:d=1 4:e=1 5:f=1"  # until retention runs

    def test_minus_one_means_all_that_is_replicated(self, log: MadeLog) -> None:
        assert log.real.delete_records(HIGH_WATERMARK_OFFSET) == 5

    def test_the_log_start_never_falls(self, log: MadeLog) -> None:
        log.real.delete_records(3)

        assert log.real.delete_records(1) == 3
        assert log.real.delete_records(0) == 3

    @pytest.mark.parametrize("offset", [-2, 6, 7])
    def test_an_offset_that_is_not_replicated_is_refused(self, log: MadeLog, offset: int) -> None:
        with pytest.raises(OffsetOutOfRangeError) as error:
            log.real.delete_records(offset)

        assert str(error.value) == f"offset {offset} of orders-3 is outside of the log (0 to 5)"

    @pytest.mark.parametrize("policy", ["delete", "compact,delete", ""])
    def test_it_is_allowed_unless_a_topic_is_compacted_only(
        self, log: MadeLog, policy: str
    ) -> None:
        log.configure(cleanup_policy=policy)

        assert log.real.delete_records(2) == 2

    def test_a_compacted_topic_refuses(self, log: MadeLog) -> None:
        log.configure(cleanup_policy="compact")

        with pytest.raises(PolicyViolationError) as error:
            log.real.delete_records(2)

        assert str(error.value) == (
            "orders-3: records of a compacted topic are deleted by tombstones; "
            "cleanup.policy must include delete"
        )
        assert log.real.log_start_offset == 0

    def test_the_new_start_counts_as_durable(self, log: MadeLog) -> None:
        log.real.delete_records(3)

        assert log.real.recovery_point == 3

    def test_the_last_stable_offset_is_not_below_the_log_start(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        log.append("b=1 c=1")

        log.real.delete_records(2)

        assert log.real.last_stable_offset == 2
