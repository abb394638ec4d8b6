"""What the tracker says of each batch, as it walks a log (facts 6.7)."""

from siltstone.cleaner.transactions import TransactionTracker
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import BatchHeader
from siltstone.records.control import ControlType, Marker
from tests.support.producers import ABORT, COMMIT, data, end


def txn(offset: int, *, producer: int = 1, count: int = 1, empty: bool = False) -> BatchHeader:
    return data(offset, producer=producer, count=count, transactional=True, empty=empty)


def aborted(first: int, last: int, *, producer: int = 1) -> AbortedTxn:
    return AbortedTxn(producer, first, last, last + 1)


class TestData:
    def test_a_batch_outside_of_transactions_is_never_aborted(self) -> None:
        tracker = TransactionTracker([aborted(0, 9)])

        assert not tracker.is_aborted(data(3))

    def test_a_batch_of_an_aborted_transaction_is(self) -> None:
        tracker = TransactionTracker([aborted(3, 9)])

        assert [tracker.is_aborted(txn(offset)) for offset in (1, 2, 3, 4)] == [
            False,
            False,
            True,
            True,
        ]

    def test_a_transaction_begins_with_the_batch_that_reaches_its_first_offset(self) -> None:
        tracker = TransactionTracker([aborted(3, 9)])

        assert tracker.is_aborted(txn(1, count=3))

    def test_only_its_own_producer_is_aborted(self) -> None:
        tracker = TransactionTracker([aborted(0, 9, producer=1)])

        assert tracker.is_aborted(txn(0, producer=1))
        assert not tracker.is_aborted(txn(1, producer=2))

    def test_what_a_producer_writes_after_its_abort_is_not_aborted(self) -> None:
        tracker = TransactionTracker([aborted(0, 1)])
        tracker.is_aborted(txn(0))
        tracker.is_marker_discardable(end(1), ABORT)

        assert not tracker.is_aborted(txn(2))

    def test_several_aborted_transactions_of_a_producer_follow_each_other(self) -> None:
        tracker = TransactionTracker([aborted(4, 5), aborted(0, 1)])  # in any order

        assert tracker.is_aborted(txn(0))
        assert not tracker.is_marker_discardable(end(1), ABORT)
        assert not tracker.is_aborted(txn(2))
        assert not tracker.is_marker_discardable(end(3), COMMIT)
        assert tracker.is_aborted(txn(4))
        assert not tracker.is_marker_discardable(end(5), ABORT)
        assert tracker.kept_aborts == [aborted(0, 1), aborted(4, 5)]

    def test_a_transaction_whose_marker_lies_above_the_pass_is_aborted_below(self) -> None:
        tracker = TransactionTracker([aborted(0, 1_000_000)])

        assert tracker.is_aborted(txn(0))
        assert tracker.kept_aborts == []


class TestMarkers:
    def test_an_abort_marker_stays_while_its_data_was_in_the_input(self) -> None:
        tracker = TransactionTracker([aborted(0, 1)])
        tracker.is_aborted(txn(0))

        assert not tracker.is_marker_discardable(end(1), ABORT)
        assert tracker.kept_aborts == [aborted(0, 1)]

    def test_an_abort_marker_without_data_can_go_and_is_listed_no_more(self) -> None:
        tracker = TransactionTracker([aborted(0, 1)])

        assert tracker.is_marker_discardable(end(1), ABORT)
        assert tracker.kept_aborts == []

    def test_an_abort_marker_that_no_index_lists_can_go(self) -> None:
        assert TransactionTracker([]).is_marker_discardable(end(1), ABORT)

    def test_a_commit_marker_stays_while_its_data_was_in_the_input(self) -> None:
        tracker = TransactionTracker([])
        tracker.is_aborted(txn(0))

        assert not tracker.is_marker_discardable(end(1), COMMIT)
        assert tracker.is_marker_discardable(end(2), COMMIT)  # that was another transaction

    def test_an_empty_batch_counts_as_data(self) -> None:
        tracker = TransactionTracker([aborted(3, 4)])
        tracker.is_aborted(txn(0, empty=True))
        assert not tracker.is_marker_discardable(end(1), COMMIT)

        tracker.is_aborted(txn(3, empty=True))
        assert not tracker.is_marker_discardable(end(4), ABORT)

    def test_data_of_another_producer_keeps_no_marker(self) -> None:
        tracker = TransactionTracker([])
        tracker.is_aborted(txn(0, producer=2))

        assert tracker.is_marker_discardable(end(1, producer=1), COMMIT)
        assert not tracker.is_marker_discardable(end(2, producer=2), COMMIT)

    def test_data_outside_of_transactions_keeps_no_marker(self) -> None:
        tracker = TransactionTracker([])
        tracker.is_aborted(data(0))

        assert tracker.is_marker_discardable(end(1), COMMIT)

    def test_an_aborted_transaction_keeps_no_commit_marker(self) -> None:
        tracker = TransactionTracker([aborted(0, 1)])
        tracker.is_aborted(txn(0))
        tracker.is_marker_discardable(end(1), ABORT)

        assert tracker.is_marker_discardable(end(2), COMMIT)

    def test_a_control_batch_that_was_emptied_can_go(self) -> None:
        assert TransactionTracker([]).is_marker_discardable(end(1, empty=True), None)

    def test_a_control_batch_that_ends_no_transaction_never_goes(self) -> None:
        tracker = TransactionTracker([])

        assert not tracker.is_marker_discardable(end(1), None)  # of a kind that is not known
        leader_change = Marker(ControlType.LEADER_CHANGE, 0)
        assert not tracker.is_marker_discardable(end(2), leader_change)
