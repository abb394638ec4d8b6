"""Open and ended transactions of a log's producers, and up to where its readers may read."""

import pytest

from siltstone.errors import (
    InvalidTxnStateError,
)
from siltstone.log.origin import AppendOrigin
from siltstone.log.producer_entry import ProducerEntry
from siltstone.log.producer_state import CompletedTxn, ProducerState
from tests.support.producers import (
    ABORT,
    CLIENT,
    COMMIT,
    COORDINATOR,
    REPLICATION,
    append,
    data,
    end,
)

DAY_MS = 86_400_000


class TestTransactions:
    def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker(
        self, state: ProducerState
    ) -> None:
        append(state, data(9, sequence=0))
        append(state, data(16, sequence=1, count=5, transactional=True))
        append(state, data(26, sequence=6, count=5, transactional=True))
        assert state.first_undecided_offset == 16

        completed = append(state, end(40), COMMIT, origin=COORDINATOR)

        assert completed == (CompletedTxn(1, 16, 40, False, 41),)
        assert state.entries[1].current_txn_first_offset is None
        assert state.entries[1].last_data_offset == 30

    @pytest.mark.parametrize("origin", [CLIENT, COORDINATOR, REPLICATION])
    def test_a_batch_outside_of_the_open_transaction_is_refused(
        self, state: ProducerState, origin: AppendOrigin
    ) -> None:
        append(state, data(5, sequence=0, transactional=True))

        with pytest.raises(InvalidTxnStateError) as error:
            state.prepare(data(6, sequence=1), origin)

        assert str(error.value) == (
            "orders-3: producer 1 with epoch 0 sent a batch outside of its transaction, "
            "which it began at offset 5 and has not ended"
        )

    def test_a_new_epoch_does_not_end_a_transaction(self, state: ProducerState) -> None:
        append(state, data(5, epoch=0, sequence=0, transactional=True))

        append(state, data(6, epoch=1, sequence=0, transactional=True))

        assert state.entries[1].current_txn_first_offset == 5
        with pytest.raises(InvalidTxnStateError):
            state.prepare(data(7, epoch=2, sequence=0), CLIENT)

    def test_a_marker_without_data_before_it_ends_nothing(self, state: ProducerState) -> None:
        completed = append(state, end(0), ABORT, origin=COORDINATOR)

        assert completed == ()
        assert state.first_unstable_offset is None

    def test_an_emptied_marker_changes_no_producer(self, state: ProducerState) -> None:
        append(state, data(0, epoch=1, transactional=True))
        before = state.entries[1]

        completed = state.replay(end(1, epoch=4, empty=True))

        assert completed == ()
        assert state.entries[1] is before
        assert state.first_undecided_offset == 0

    def test_an_emptied_marker_of_an_unknown_producer_leaves_an_entry_without_epoch(
        self, state: ProducerState
    ) -> None:
        state.replay(end(15, producer=23_423, epoch=4, empty=True))

        assert state.entries[23_423] == ProducerEntry(23_423)
        assert state.first_undecided_offset is None

    def test_a_fencing_abort_keeps_the_producer(self, state: ProducerState) -> None:
        append(state, data(0, transactional=True))
        append(state, end(1, epoch=1), ABORT, origin=COORDINATOR)

        assert state.remove_expired(0, DAY_MS) == 0
        assert state.entries[1] == ProducerEntry(1, 1, 0, 0, None, ())


class TestUnstableOffsets:
    def test_the_first_unstable_offset_waits_for_the_high_watermark(
        self, state: ProducerState
    ) -> None:
        def offsets() -> tuple[int | None, int | None]:
            return state.first_undecided_offset, state.first_unstable_offset

        assert offsets() == (None, None)
        append(state, data(99, producer=1, transactional=True))
        assert offsets() == (99, 99)
        append(state, data(105, producer=2, transactional=True))
        assert offsets() == (99, 99)
        append(state, end(109, producer=1), COMMIT, origin=COORDINATOR)
        assert offsets() == (105, 99)
        state.on_high_watermark_updated(109)
        assert offsets() == (105, 99)
        state.on_high_watermark_updated(110)
        assert offsets() == (105, 105)
        append(state, end(112, producer=2), ABORT, origin=COORDINATOR)
        assert offsets() == (None, 105)
        state.on_high_watermark_updated(113)
        assert offsets() == (None, None)

    def test_a_replicated_transaction_behind_an_unreplicated_one_is_gone_too(
        self, state: ProducerState
    ) -> None:
        append(state, data(0, producer=1, transactional=True))
        append(state, data(1, producer=2, transactional=True))
        append(state, end(2, producer=2), COMMIT, origin=COORDINATOR)
        append(state, end(3, producer=1), COMMIT, origin=COORDINATOR)

        state.on_high_watermark_updated(3)
        assert state.first_unstable_offset == 0
        state.on_high_watermark_updated(4)

        assert state.first_unstable_offset is None

    def test_the_last_stable_offset_ignores_the_producer_itself(self, state: ProducerState) -> None:
        for n, offset in enumerate((0, 25, 57)):
            append(state, data(offset, producer=n, transactional=True))

        completed = [
            append(state, end(72, producer=0), ABORT, origin=COORDINATOR),
            append(state, end(92, producer=2), ABORT, origin=COORDINATOR),
            append(state, end(170, producer=1), ABORT, origin=COORDINATOR),
        ]

        assert [txn.last_stable_offset for (txn,) in completed] == [25, 25, 171]

    def test_transactions_below_the_log_start_are_let_go(self, state: ProducerState) -> None:
        append(state, data(0, transactional=True))
        append(state, end(1), COMMIT, origin=COORDINATOR)
        state.update_map_end_offset(2)

        state.on_log_start_offset_incremented(1)
        assert (state.first_unstable_offset, state.map_end_offset) == (0, 2)
        state.on_log_start_offset_incremented(10)

        assert (state.first_unstable_offset, state.map_end_offset) == (None, 10)
        assert 1 in state.entries

    def test_offsets_that_went_backwards_do_not_hide_an_open_transaction(
        self, state: ProducerState
    ) -> None:
        state.replay(data(50, producer=1, transactional=True))
        state.replay(data(20, producer=2, transactional=True))

        assert state.first_undecided_offset == 20
