from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import FileSystem
from siltstone.log.transaction_index import AbortedTxn, TransactionIndex

BASE = 100
ENTRY_BYTES = 34
FIRST = AbortedTxn(producer_id=7, first_offset=90, last_offset=110, last_stable_offset=95)
SECOND = AbortedTxn(producer_id=8, first_offset=95, last_offset=120, last_stable_offset=121)
THIRD = AbortedTxn(producer_id=7, first_offset=122, last_offset=130, last_stable_offset=131)


def open_index(directory: Path, *, writable: bool = True) -> TransactionIndex:
    return TransactionIndex(FileSystem(), directory / "100.txnindex", BASE, writable=writable)


def fill(directory: Path, *entries: AbortedTxn) -> TransactionIndex:
    index = open_index(directory)
    for txn in entries:
        index.append(txn)
    return index


def test_an_entry_has_a_version_and_four_numbers(tmp_path: Path) -> None:
    index = fill(tmp_path, FIRST)

    assert index.path.read_bytes().hex(" ", -2) == (
        "0000"  # version
        " 0000 0000 0000 0007"
        " 0000 0000 0000 005a"
        " 0000 0000 0000 006e"
        " 0000 0000 0000 005f"
    )


def test_there_is_no_file_before_the_first_entry(tmp_path: Path) -> None:
    index = open_index(tmp_path)

    assert index.entries == []
    index.truncate_to(0)
    index.reset()
    index.flush()
    index.check()
    assert not index.exists()


def test_entries_are_found_again(tmp_path: Path) -> None:
    fill(tmp_path, FIRST, SECOND)

    index = open_index(tmp_path)
    assert index.entries == [FIRST, SECOND]
    index.append(THIRD)

    assert open_index(tmp_path).entries == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("last_offset", [110, 109, 0])
def test_markers_must_rise(tmp_path: Path, last_offset: int) -> None:
    index = fill(tmp_path, FIRST)

    with pytest.raises(CorruptIndexError, match=f"marker {last_offset} after 110"):
        index.append(SECOND._replace(last_offset=last_offset))

    assert open_index(tmp_path).entries == [FIRST]


@pytest.mark.parametrize(
    ("offset", "kept"),
    [
        (131, [FIRST, SECOND, THIRD]),
        (130, [FIRST, SECOND]),
        (121, [FIRST, SECOND]),
        (120, [FIRST]),
        (110, []),
        (0, []),
    ],
)
def test_truncating_drops_markers_at_or_above_an_offset(
    tmp_path: Path, offset: int, kept: list[AbortedTxn]
) -> None:
    index = fill(tmp_path, FIRST, SECOND, THIRD)

    index.truncate_to(offset)

    assert index.entries == kept
    assert open_index(tmp_path).entries == kept
    assert index.path.stat().st_size == len(kept) * ENTRY_BYTES


def test_a_reset_drops_everything_even_what_should_not_be_there(tmp_path: Path) -> None:
    index = fill(tmp_path, FIRST._replace(last_offset=BASE - 1), SECOND)

    index.reset()
    index.append(THIRD)

    assert index.entries == open_index(tmp_path).entries == [THIRD]


def test_a_torn_entry_is_left_out_and_written_over(tmp_path: Path) -> None:
    index = fill(tmp_path, FIRST, SECOND)
    data = index.path.read_bytes()
    index.path.write_bytes(data[:-1])

    index = open_index(tmp_path)
    assert index.entries == [FIRST]
    index.append(SECOND)

    assert index.path.read_bytes() == data


def test_a_marker_before_the_segment_is_corrupt(tmp_path: Path) -> None:
    index = fill(tmp_path, FIRST._replace(last_offset=BASE - 1))

    with pytest.raises(CorruptIndexError) as error:
        index.check()

    assert str(error.value) == (f"{tmp_path.name}/100.txnindex: marker 99 before base offset 100")


def test_a_marker_at_the_base_is_sound(tmp_path: Path) -> None:
    fill(tmp_path, FIRST._replace(last_offset=BASE)).check()


def test_nothing_is_written_for_a_reader(tmp_path: Path) -> None:
    fill(tmp_path, FIRST, SECOND)
    before = (tmp_path / "100.txnindex").read_bytes()

    index = open_index(tmp_path, writable=False)
    index.truncate_to(115)
    index.append(THIRD)
    assert index.entries == [FIRST, THIRD]
    index.reset()
    assert index.entries == []

    assert (tmp_path / "100.txnindex").read_bytes() == before


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.builds(AbortedTxn, INT64, INT64, INT64, INT64), max_size=5))
def test_any_numbers_survive_a_round_trip(entries: list[AbortedTxn]) -> None:
    rising = sorted({txn.last_offset: txn for txn in entries}.items())
    with TemporaryDirectory() as directory:
        fill(Path(directory), *(txn for _, txn in rising))

        assert open_index(Path(directory)).entries == [txn for _, txn in rising]
