"""The behaviours of Kafka's ProducerStateManagerTest, and what the log's users rely on besides.

Epochs are in `test_producer_epochs`, transactions in `test_producer_transactions`. Nowhere here,
because they are no part of this state: which snapshot files exist and when they are deleted
(recovery), the verification of a transaction with its coordinator and the metric for late
transactions (broker).
"""

import pytest

from siltstone.errors import (
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from siltstone.log.producer_entry import BatchMetadata, ProducerEntry
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

MAX_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


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
