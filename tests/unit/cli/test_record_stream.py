import pytest

from siltstone.log.reading import AbortedFilter
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import Batch, read_batch
from siltstone.records.builder import build_batch, build_empty_batch, build_marker
from siltstone.records.control import ControlType
from siltstone.records.record import Record


def data(offset: int, producer_id: int, *, is_transactional: bool = True) -> Batch:
    return read_batch(
        build_batch(
            [Record(offset, 0, b"k", b"v")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=is_transactional,
        )
    )


def marker(offset: int, producer_id: int, control_type: ControlType) -> Batch:
    return read_batch(
        build_marker(
            control_type,
            offset=offset,
            timestamp_ms=0,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
    )


def visible_offsets(batches: list[Batch], *aborted: AbortedTxn) -> list[int]:
    hidden = AbortedFilter(aborted)
    return [batch.header.base_offset for batch in batches if not hidden.hides(batch)]


def test_transactions_that_overlap_are_told_apart() -> None:
    batches = [
        data(0, 1),
        data(1, 2),
        data(2, 1),
        marker(3, 1, ControlType.ABORT),
        data(4, 2),
        data(5, 1),
        marker(6, 2, ControlType.COMMIT),
        marker(7, 1, ControlType.COMMIT),
    ]

    assert visible_offsets(batches, AbortedTxn(1, 0, 3, 1)) == [1, 4, 5]


def test_a_producer_may_abort_twice() -> None:
    batches = [
        data(0, 1),
        marker(1, 1, ControlType.ABORT),
        data(2, 1),
        marker(3, 1, ControlType.COMMIT),
        data(4, 1),
        marker(5, 1, ControlType.ABORT),
    ]

    assert visible_offsets(batches, AbortedTxn(1, 4, 5, 6), AbortedTxn(1, 0, 1, 2)) == [2]


def test_a_read_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    batches = [data(7, 1), marker(8, 1, ControlType.ABORT), data(9, 1)]

    assert visible_offsets(batches, AbortedTxn(1, 0, 8, 9)) == [9]


def test_what_is_no_part_of_the_transaction_is_seen() -> None:
    batches = [data(0, 1), data(1, 1, is_transactional=False), data(2, 3)]

    assert visible_offsets(batches, AbortedTxn(1, 0, 9, 10)) == [1, 2]


@pytest.mark.parametrize("control_type", [ControlType.ABORT, ControlType.COMMIT])
def test_markers_are_never_seen_not_even_emptied_ones(control_type: ControlType) -> None:
    whole = marker(0, 1, control_type)
    emptied = read_batch(build_empty_batch(whole.header))

    assert visible_offsets([whole, emptied]) == []
