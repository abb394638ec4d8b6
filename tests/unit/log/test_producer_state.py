"""The behaviours of Kafka's ProducerStateManagerTest, and what the log's users rely on besides.

Not here, because they are no part of this state: which snapshot files exist and when they are
deleted (recovery), the verification of a transaction with its coordinator and the metric for late
transactions (broker).
"""

import pickle

import pytest

from siltstone.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from siltstone.ids import TopicPartition
from siltstone.log.origin import AppendOrigin
from siltstone.log.producer_entry import BatchMetadata, ProducerEntry
from siltstone.log.producer_state import CompletedTxn, ProducerState
from siltstone.records.control import ControlType, Marker
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

MAX_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


@pytest.fixture
def state() -> ProducerState:
    return ProducerState(TopicPartition("orders", 3))


class TestSequences:
    def test_a_producer_goes_on_where_its_last_batch_ended(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0, count=3, timestamp_ms=5))
        append(state, data(3, sequence=3, count=2, timestamp_ms=7))

        assert state.entries[1] == ProducerEntry(
            1, 0, -1, 7, None, (BatchMetadata(2, 2, 2, 5), BatchMetadata(4, 4, 1, 7))
        )

    @pytest.mark.parametrize("sequence", [0, 1, 3, 5, MAX_SEQUENCE])
    def test_a_batch_that_does_not_follow_the_last_one_is_refused(
        self, state: ProducerState, sequence: int
    ) -> None:
        append(state, data(0, sequence=0, count=2))

        with pytest.raises(OutOfOrderSequenceError) as error:
            state.prepare(data(2, sequence=sequence), CLIENT)

        assert str(error.value) == (
            f"orders-3: producer 1 with epoch 0 sent sequence {sequence}, expected 2"
        )

    def test_a_producer_that_is_not_known_may_start_anywhere(self, state: ProducerState) -> None:
        append(state, data(0, sequence=16, epoch=5))

        assert state.entries[1].last_sequence == 16

    def test_a_repeated_batch_is_out_of_order_for_prepare(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0))
        append(state, data(1, sequence=1))

        with pytest.raises(OutOfOrderSequenceError, match="sent sequence 1, expected 2"):
            state.prepare(data(2, sequence=1), CLIENT)

    def test_after_the_highest_sequence_comes_zero(self, state: ProducerState) -> None:
        append(state, data(735, sequence=MAX_SEQUENCE))
        append(state, data(1_235, sequence=0))

        first, last = state.entries[1].batches
        assert (first.first_sequence, last.last_sequence) == (MAX_SEQUENCE, 0)

    def test_after_the_highest_sequence_comes_nothing_but_zero(self, state: ProducerState) -> None:
        append(state, data(735, sequence=MAX_SEQUENCE))

        with pytest.raises(OutOfOrderSequenceError, match="sent sequence 1, expected 0"):
            state.prepare(data(1_235, sequence=1), CLIENT)

    def test_the_sequences_of_one_batch_may_wrap(self, state: ProducerState) -> None:
        append(state, data(2_000, sequence=MAX_SEQUENCE - 10, count=21))

        (batch,) = state.entries[1].batches
        assert (batch.first_sequence, batch.last_sequence) == (MAX_SEQUENCE - 10, 9)
        assert (batch.first_offset, batch.last_offset) == (2_000, 2_020)
        append(state, data(2_021, sequence=10))

    def test_a_follower_takes_gaps_as_the_leader_left_them(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0))

        append(state, data(1, sequence=3), origin=REPLICATION)

        assert state.entries[1].last_sequence == 3

    def test_a_coordinator_writes_without_sequences(self, state: ProducerState) -> None:
        append(state, data(99, sequence=-1, transactional=True), origin=COORDINATOR)
        append(state, data(100, sequence=-1, transactional=True), origin=COORDINATOR)

        assert state.entries[1].last_sequence == -1
        assert state.entries[1].last_data_offset == 100

    def test_an_empty_data_batch_counts_like_any_other(self, state: ProducerState) -> None:
        state.replay(data(4, sequence=0, count=3, empty=True))

        assert state.entries[1].batches == (BatchMetadata(2, 6, 2, 0),)


class TestDuplicates:
    def test_each_of_the_last_five_batches_is_found_again(self, state: ProducerState) -> None:
        for n in range(6):
            append(state, data(100 + 2 * n, sequence=2 * n, count=2))

        found = [state.find_duplicate(data(0, sequence=2 * n, count=2)) for n in range(7)]

        assert [batch and batch.first_offset for batch in found] == [
            None,
            102,
            104,
            106,
            108,
            110,
            None,
        ]

    def test_a_duplicate_has_the_same_first_and_last_sequence(self, state: ProducerState) -> None:
        append(state, data(0, sequence=4, count=3))

        assert state.find_duplicate(data(0, sequence=4, count=2)) is None
        assert state.find_duplicate(data(0, sequence=5, count=2)) is None
        assert state.find_duplicate(data(0, sequence=4, count=3)) == BatchMetadata(6, 2, 2, 0)

    def test_a_duplicate_has_the_same_epoch(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0, epoch=3))

        assert state.find_duplicate(data(0, sequence=0, epoch=4)) is None
        assert state.find_duplicate(data(0, sequence=0, epoch=2)) is None

    def test_a_batch_whose_sequences_wrap_is_found_again(self, state: ProducerState) -> None:
        append(state, data(0, sequence=MAX_SEQUENCE, count=2))

        duplicate = state.find_duplicate(data(0, sequence=MAX_SEQUENCE, count=2))

        assert duplicate == BatchMetadata(0, 1, 1, 0)

    def test_a_batch_of_another_producer_or_of_none_is_no_duplicate(
        self, state: ProducerState
    ) -> None:
        append(state, data(0))

        assert state.find_duplicate(data(0, producer=2)) is None
        assert state.find_duplicate(data(0, producer=-1)) is None

    def test_batches_without_sequences_are_never_duplicates(self, state: ProducerState) -> None:
        append(state, data(0, sequence=-1), origin=COORDINATOR)

        assert state.find_duplicate(data(0, sequence=-1)) is None


class TestEpochs:
    def test_a_new_epoch_starts_at_sequence_zero(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0, count=3))

        with pytest.raises(OutOfOrderSequenceError) as error:
            state.prepare(data(3, epoch=1, sequence=3), CLIENT)
        append(state, data(3, epoch=1, sequence=0))

        assert str(error.value) == (
            "orders-3: producer 1 with epoch 1 (new, after 0) sent sequence 3, expected 0"
        )
        assert state.entries[1].batches == (BatchMetadata(0, 3, 0, 0),)

    @pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
    def test_an_older_epoch_is_fenced(self, state: ProducerState, origin: AppendOrigin) -> None:
        append(state, data(0, epoch=4))

        with pytest.raises(InvalidProducerEpochError) as error:
            state.prepare(data(1, epoch=3), origin)

        assert str(error.value) == (
            "orders-3: batch of producer 1 has epoch 3, older than epoch 4 seen before"
        )

    def test_a_follower_takes_an_older_epoch(self, state: ProducerState) -> None:
        append(state, data(0, epoch=4))

        append(state, data(1, epoch=3), origin=REPLICATION)

        assert state.entries[1].epoch == 3

    def test_a_marker_alone_fences_older_epochs(self, state: ProducerState) -> None:
        append(state, end(27, epoch=2), COMMIT, origin=COORDINATOR)
        assert state.entries[1] == ProducerEntry(1, 2, 0, 0, None, ())

        with pytest.raises(InvalidProducerEpochError):
            state.prepare(data(28, epoch=0), CLIENT)
        with pytest.raises(OutOfOrderSequenceError, match="sent sequence 17, expected 0"):
            state.prepare(data(28, epoch=2, sequence=17), CLIENT)
        append(state, data(28, epoch=2, sequence=0))

        assert state.entries[1].last_sequence == 0

    def test_a_marker_with_a_new_epoch_forgets_the_batches(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0, transactional=True))
        append(state, data(1, sequence=1, transactional=True))

        append(state, end(2, epoch=1), ABORT, origin=COORDINATOR)

        entry = state.entries[1]
        assert (entry.epoch, entry.last_sequence, entry.last_data_offset) == (1, -1, None)
        for epoch in (1, 2):
            with pytest.raises(OutOfOrderSequenceError, match="sent sequence 2, expected 0"):
                state.prepare(data(3, epoch=epoch, sequence=2, transactional=True), CLIENT)
        append(state, data(3, epoch=1, sequence=0, transactional=True))

    def test_a_marker_with_the_same_epoch_leaves_the_batches(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0, timestamp_ms=5, transactional=True))

        append(state, end(1, timestamp_ms=9), Marker(ControlType.COMMIT, 6), origin=COORDINATOR)

        assert state.entries[1] == ProducerEntry(1, 0, 6, 9, None, (BatchMetadata(0, 0, 0, 5),))
        append(state, data(2, sequence=1, transactional=True))

    def test_a_marker_with_an_older_epoch_is_refused(self, state: ProducerState) -> None:
        append(state, data(99, epoch=5, transactional=True))

        with pytest.raises(InvalidProducerEpochError) as error:
            state.prepare(end(100, epoch=3), COORDINATOR, COMMIT)

        assert str(error.value) == (
            "orders-3: marker of producer 1 has epoch 3, older than epoch 5 seen before"
        )
        assert state.first_undecided_offset == 99

    def test_a_follower_takes_a_marker_with_an_older_epoch(self, state: ProducerState) -> None:
        append(state, data(99, epoch=5, transactional=True))

        append(state, end(100, epoch=3), COMMIT, origin=REPLICATION)

        assert state.entries[1].epoch == 3


class TestEpochRaisingMarkers:
    """From version 2 of the transaction protocol on, a marker bears the next epoch."""

    def test_the_epoch_of_the_open_transaction_is_too_low(self, state: ProducerState) -> None:
        append(state, data(0, epoch=5, transactional=True))

        with pytest.raises(InvalidProducerEpochError) as error:
            state.prepare(end(1, epoch=5), COORDINATOR, COMMIT, transaction_version=2)

        assert str(error.value) == (
            "orders-3: marker of producer 1 has epoch 5, not above epoch 5 seen before"
        )

    def test_the_next_epoch_ends_the_transaction(self, state: ProducerState) -> None:
        append(state, data(0, epoch=5, transactional=True))

        (completed,) = append(
            state, end(1, epoch=6), COMMIT, origin=COORDINATOR, transaction_version=2
        )

        assert completed == CompletedTxn(1, 0, 1, False, 2)

    def test_a_repeated_marker_is_taken_again(self, state: ProducerState) -> None:
        append(state, data(0, epoch=5, transactional=True))
        append(state, end(1, epoch=6), COMMIT, origin=COORDINATOR, transaction_version=2)

        completed = append(
            state, end(2, epoch=6), COMMIT, origin=COORDINATOR, transaction_version=2
        )

        assert completed == ()

    def test_the_highest_epoch_can_still_be_ended(self, state: ProducerState) -> None:
        append(state, data(0, epoch=32_767, transactional=True))

        completed = append(
            state, end(1, epoch=32_767), ABORT, origin=COORDINATOR, transaction_version=2
        )

        assert completed == (CompletedTxn(1, 0, 1, True, 2),)

    def test_an_older_epoch_is_too_low_with_or_without_a_transaction(
        self, state: ProducerState
    ) -> None:
        append(state, data(0, epoch=5))

        with pytest.raises(InvalidProducerEpochError, match="older than"):
            state.prepare(end(1, epoch=4), COORDINATOR, COMMIT, transaction_version=2)


class TestCoordinators:
    def test_a_marker_of_an_older_coordinator_is_fenced(self, state: ProducerState) -> None:
        append(state, data(99, epoch=5, transactional=True))
        append(state, end(100, epoch=5), Marker(ControlType.COMMIT, 1), origin=COORDINATOR)
        append(state, end(101, epoch=5), Marker(ControlType.COMMIT, 1), origin=COORDINATOR)
        append(state, end(102, epoch=5), Marker(ControlType.COMMIT, 2), origin=COORDINATOR)

        with pytest.raises(CoordinatorFencedError) as error:
            state.prepare(end(103, epoch=5), COORDINATOR, Marker(ControlType.COMMIT, 1))

        assert str(error.value) == (
            "orders-3: marker for producer 1 from coordinator epoch 1, older than 2 seen before"
        )
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)

    def test_a_follower_takes_markers_of_an_older_coordinator(self, state: ProducerState) -> None:
        append(state, end(0), Marker(ControlType.COMMIT, 2), origin=COORDINATOR)

        append(state, end(1), Marker(ControlType.COMMIT, 1), origin=REPLICATION)

        assert state.entries[1].coordinator_epoch == 1


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


class TestTwoSteps:
    def test_prepare_changes_nothing(self, state: ProducerState) -> None:
        first = state.prepare(data(15, sequence=0, count=6, transactional=True), CLIENT)
        assert state.is_empty
        assert state.first_unstable_offset is None
        state.apply(first)

        state.prepare(data(26, sequence=6, count=5, transactional=True), CLIENT)

        assert state.entries[1].batches == (BatchMetadata(5, 20, 5, 0),)

    def test_a_refused_batch_changes_nothing(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0, transactional=True))
        before = state.write_snapshot()

        for header, error in (
            (data(1, sequence=2, transactional=True), OutOfOrderSequenceError),
            (data(1, sequence=1), InvalidTxnStateError),
        ):
            with pytest.raises(error):
                state.prepare(header, CLIENT)

        assert state.write_snapshot() == before

    def test_a_batch_without_a_producer_leaves_no_trace(self, state: ProducerState) -> None:
        assert append(state, data(0, producer=-1, sequence=-1)) == ()
        assert state.is_empty

    def test_batches_of_one_append_see_each_other(self, state: ProducerState) -> None:
        append(state, data(16, sequence=0, count=5, transactional=True))
        state.on_high_watermark_updated(21)

        update = state.prepare_all(
            [
                (end(21), COMMIT),
                (end(22), COMMIT),  # empty transactions are skipped
                (end(23), ABORT),
                (data(24, sequence=5, count=4, transactional=True), None),
                (end(28), ABORT),
                (end(29), ABORT),
                (data(30, producer=-1, sequence=-1), None),
                (data(31, sequence=9, count=2, transactional=True), None),
            ],
            CLIENT,
        )
        assert state.entries[1].last_sequence == 4
        completed = state.apply(update)

        assert completed == (
            CompletedTxn(1, 16, 21, False, 22),
            CompletedTxn(1, 24, 28, True, 29),
        )
        assert state.first_unstable_offset == 16
        state.on_high_watermark_updated(33)
        assert state.first_unstable_offset == 31

    def test_a_gap_inside_of_an_append_is_refused(self, state: ProducerState) -> None:
        append(state, data(0, sequence=0))

        with pytest.raises(OutOfOrderSequenceError, match="sent sequence 3, expected 2"):
            state.prepare_all([(data(1, sequence=1), None), (data(2, sequence=3), None)], CLIENT)

        assert state.entries[1].last_sequence == 0

    def test_markers_of_one_append_see_the_transactions_that_others_have_open(
        self, state: ProducerState
    ) -> None:
        update = state.prepare_all(
            [
                (data(0, producer=1, transactional=True), None),
                (data(1, producer=2, transactional=True), None),
                (end(2, producer=1), ABORT),
                (end(3, producer=2), ABORT),
                (data(4, producer=-1, sequence=-1), None),
                (data(5, producer=3, transactional=True), None),
            ],
            REPLICATION,
        )

        completed = state.apply(update)

        assert [txn.last_stable_offset for txn in completed] == [1, 5]

    def test_replay_moves_the_map_end_offset_past_every_batch(self, state: ProducerState) -> None:
        state.replay(data(5, sequence=2, count=3))
        assert state.map_end_offset == 8

        state.replay(data(8, producer=-1, sequence=-1, count=2))

        assert state.map_end_offset == 10
        assert list(state.entries) == [1]


class TestForgetting:
    def test_a_producer_expires_by_the_time_of_its_records(self, state: ProducerState) -> None:
        append(state, data(0, producer=1, timestamp_ms=1_000))
        append(state, data(1, producer=2, timestamp_ms=1_001))

        assert state.remove_expired(1_999, 1_000) == 0
        assert state.remove_expired(2_000, 1_000) == 1

        assert list(state.entries) == [2]

    def test_an_expired_producer_may_go_on_from_any_sequence(self, state: ProducerState) -> None:
        append(state, data(1, epoch=5, sequence=0))
        state.remove_expired(DAY_MS, DAY_MS)

        append(state, data(2, epoch=5, sequence=1))

        assert state.entries[1].batches == (BatchMetadata(1, 2, 0, 0),)

    def test_a_producer_with_an_open_transaction_does_not_expire(
        self, state: ProducerState
    ) -> None:
        append(state, data(99, transactional=True))

        assert state.remove_expired(10 * DAY_MS, DAY_MS) == 0
        assert state.first_undecided_offset == 99

    def test_truncating_fully_forgets_everything(self, state: ProducerState) -> None:
        append(state, data(0, producer=1, transactional=True))
        append(state, end(1, producer=1), COMMIT, origin=COORDINATOR)
        append(state, data(2, producer=2, transactional=True))

        state.truncate_fully_and_start_at(150)

        assert state.is_empty
        assert state.first_unstable_offset is None
        assert state.map_end_offset == 150
        append(state, data(150, producer=1, sequence=0))

    def test_a_state_with_only_unreplicated_transactions_is_not_empty(
        self, state: ProducerState
    ) -> None:
        append(state, data(0, transactional=True))
        append(state, end(1), COMMIT, origin=COORDINATOR)
        state.remove_expired(DAY_MS, DAY_MS)

        assert not state.entries
        assert not state.is_empty

    def test_clearing_keeps_the_map_end_offset(self, state: ProducerState) -> None:
        state.replay(data(7))

        state.clear()

        assert state.is_empty
        assert state.map_end_offset == 8

    def test_the_active_producers_are_a_copy_and_the_entries_a_view(
        self, state: ProducerState
    ) -> None:
        view, copy = state.entries, state.active_producers()

        append(state, data(0))

        assert (list(view), list(copy)) == ([1], [])
