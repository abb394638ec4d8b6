"""Idempotent producers and transactions, as a log sees them."""

import pytest

from siltstone.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from siltstone.log.origin import AppendOrigin
from siltstone.log.reading import Isolation
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.builder import build_marker
from siltstone.records.control import ControlType
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import EVERYTHING, MakeLog

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
COMMITTED = Isolation.COMMITTED
HIGH_WATERMARK = Isolation.HIGH_WATERMARK


class TestIdempotentProducers:
    def test_a_repeated_batch_is_answered_but_not_appended(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("x=1")
        first = log.produce("[a=1 b=1]")
        clock.advance_ms(100)

        again = log.produce("[a=1 b=1]", sequence=0)

        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
        assert again.max_timestamp_ms == first.max_timestamp_ms
        assert log.contents() == "0:x=1 1:a=1 2:b=1"

    def test_the_last_five_batches_are_known(self, make_log: MakeLog) -> None:
        log = make_log()
        for value in range(6):
            log.produce(f"a={value}")

        for sequence in range(1, 6):
            assert log.produce("a=again", sequence=sequence).first_offset == sequence
        with pytest.raises(OutOfOrderSequenceError):
            log.produce("a=again", sequence=0)
        assert log.real.log_end_offset == 6

    def test_the_last_batch_is_known_after_a_restart(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("[a=1 b=1]")
        log.produce("c=1")

        log.restart()

        assert log.produce("c=1", sequence=2).first_offset == 2
        assert log.produce("d=1", sequence=3).first_offset == 3

    def test_all_of_them_are_known_after_a_crash_that_had_no_snapshot(
        self, make_log: MakeLog
    ) -> None:
        log = make_log()
        for value in range(6):
            log.produce(f"a={value}")

        log.recover()

        assert log.produce("a=again", sequence=1).first_offset == 1

    def test_a_gap_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1")

        with pytest.raises(OutOfOrderSequenceError) as error:
            log.produce("b=1", sequence=2)

        assert str(error.value) == ("orders-3: producer 1 with epoch 0 sent sequence 2, expected 1")
        assert log.contents() == "0:a=1"

    def test_a_fenced_producer_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", epoch=1)

        with pytest.raises(InvalidProducerEpochError) as error:
            log.produce("b=1", epoch=0)

        assert str(error.value) == (
            "orders-3: batch of producer 1 has epoch 0, older than epoch 1 seen before"
        )

    def test_a_silent_producer_is_forgotten(self, make_log: MakeLog, clock: ManualClock) -> None:
        log = make_log()
        log.produce("a=1")

        clock.advance_ms(DAY_MS - 1)
        assert log.real.remove_expired_producers() == 0
        clock.advance_ms(1)
        assert log.real.remove_expired_producers() == 1

        log.produce("b=1", sequence=7)  # from anywhere
        assert log.contents() == "0:a=1 1:b=1"


class TestTransactions:
    def test_the_last_stable_offset_waits_for_the_oldest_one(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.produce("a=1", producer=1, transactional=True)
        log.produce("b=1", producer=2, transactional=True)
        assert log.real.last_stable_offset == 1

        log.commit(producer=2)
        assert log.real.last_stable_offset == 1
        log.abort(producer=1)
        assert log.real.last_stable_offset == 5

    def test_a_marker_must_be_replicated_before_it_counts(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.is_replicated = False
        log.produce("a=1", transactional=True)
        log.commit()

        for high_watermark, last_stable_offset in [(1, 1), (2, 1), (3, 3)]:
            log.real.update_high_watermark(high_watermark)
            assert log.real.last_stable_offset == last_stable_offset

    def test_a_plain_batch_in_a_transaction_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)

        with pytest.raises(InvalidTxnStateError):
            log.produce("b=1")

    def test_a_marker_of_a_replaced_coordinator_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        markers = [
            build_marker(
                ControlType.COMMIT,
                offset=0,
                timestamp_ms=START_MS,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=epoch,
            )
            for epoch in (5, 4)
        ]

        log.append_batch(markers[0], origin=AppendOrigin.COORDINATOR)
        with pytest.raises(CoordinatorFencedError):
            log.append_batch(markers[1], origin=AppendOrigin.COORDINATOR)

    def test_a_reader_of_committed_records_is_told_what_was_aborted(
        self, make_log: MakeLog
    ) -> None:
        log = make_log("x=1")
        log.produce("a=1", producer=1, transactional=True)
        log.produce("b=1", producer=2, transactional=True)
        log.abort(producer=1)
        log.append("y=1")
        log.commit(producer=2)
        log.produce("c=1", producer=1, transactional=True)  # still open
        aborted = AbortedTxn(producer_id=1, first_offset=1, last_offset=3, last_stable_offset=2)

        result = log.real.read(0, EVERYTHING, COMMITTED)

        assert result.aborted == (aborted,)
        assert result.last_stable_offset == 6
        assert [batch.header.base_offset for batch in result.batches()] == [0, 1, 2, 3, 4, 5]
        assert log.real.read(0, EVERYTHING, HIGH_WATERMARK).aborted == ()

    def test_what_was_aborted_before_a_read_is_left_out(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        log.abort()
        log.append("x=1")
        log.produce("b=1", transactional=True)
        log.abort()

        aborted = {
            offset: log.real.read(offset, EVERYTHING, COMMITTED).aborted for offset in (1, 2)
        }

        assert [txn.first_offset for txn in aborted[1]] == [0, 3]  # 1 is the marker of the first
        assert [txn.first_offset for txn in aborted[2]] == [3]

    def test_an_abort_in_a_later_segment_is_found(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        log.append("| x=1 | y=1 |")
        log.abort()

        result = log.real.read(0, EVERYTHING, COMMITTED)

        assert [batch.header.base_offset for batch in result.batches()] == [0]
        assert result.aborted == (AbortedTxn(1, 0, 3, 4),)

    @pytest.mark.parametrize("interval_bytes", [0, 4096])
    def test_a_small_read_is_told_of_every_abort_in_its_bytes(
        self, make_log: MakeLog, interval_bytes: int
    ) -> None:
        log = make_log(index_interval_bytes=interval_bytes)
        for _ in range(5):
            log.produce("a=1", transactional=True)
            log.abort()
        log.append("x=1")

        for offset in range(0, 10, 2):
            result = log.real.read(offset, 1, COMMITTED)

            (batch,) = result.batches()
            assert batch.header.base_offset == offset
            assert (offset, offset + 1) in [(t.first_offset, t.last_offset) for t in result.aborted]
