"""Who is fenced: epochs of producers and of coordinators, and what a new one forgets."""

import pickle

import pytest

from siltstone.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
)
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
