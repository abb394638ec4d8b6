import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import CorruptCheckpointError
from siltstone.ids import TopicPartition
from siltstone.log.checkpoint import format_epochs, format_offsets, parse_epochs, parse_offsets
from siltstone.log.leader_epochs import EpochEntry

PATH = Path("data", "cleaner-offset-checkpoint")

partitions = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)
offsets_by_partition = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=8)
epoch_entries = st.lists(
    st.builds(EpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=8
)


def test_a_checkpoint_has_kafkas_bytes() -> None:
    assert format_offsets({TopicPartition("g", 0): 1}) == b"0\n1\ng 0 1\n"
    assert format_epochs([EpochEntry(0, 0)]) == b"0\n1\n0 0\n"
    assert format_offsets({}) == b"0\n0\n"


@given(offsets_by_partition)
def test_offsets_survive_a_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(PATH, format_offsets(offsets)) == offsets


@given(epoch_entries)
def test_epochs_survive_a_round_trip(entries: list[EpochEntry]) -> None:
    assert parse_epochs(PATH, format_epochs(entries)) == entries


@given(offsets_by_partition)
def test_the_same_offsets_give_the_same_bytes_in_any_order(
    offsets: dict[TopicPartition, int],
) -> None:
    backwards = dict(reversed(offsets.items()))

    assert format_offsets(backwards) == format_offsets(offsets)


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n"])
def test_a_checkpoint_that_was_only_begun_has_no_entries(data: bytes) -> None:
    assert parse_offsets(PATH, data) == {}
    assert parse_epochs(PATH, data) == []


def test_any_run_of_blanks_separates_and_any_line_end_ends() -> None:
    data = b"0\r\n2\r\norders \t 0  42 \rorders 1 -1"

    offsets = parse_offsets(PATH, data)

    assert offsets == {TopicPartition("orders", 0): 42, TopicPartition("orders", 1): -1}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"1\n0\n", "expected version 0, found 1"),
        (b"x\n0\n", "line 1 is malformed"),
        (b"\n0\n", "line 1 is malformed"),
        (b" 0\n0\n", "line 1 is malformed"),
        (b"0\nx\n", "line 2 is malformed"),
        (b"0\n-1\n", "line 2 is malformed"),
        (b"0\n4\na 0 1\nb 0 1\nc 0 1\n", "says 4 entries, found 3"),
        (b"0\n1\na 0 1\nb 0 1\n", "says 1 entries, found 2"),
        (b"0\n1\na 0\n", "line 3 is malformed"),
        (b"0\n1\na 0 1 2\n", "line 3 is malformed"),
        (b"0\n1\n a 0 1\n", "line 3 is malformed"),
        (b"0\n1\n 0 1\n", "line 3 is malformed"),
        (b"0\n2\na 0 1\nb zero 1\n", "line 4 is malformed"),
        (b"0\n1\na -1 1\n", "line 3 is malformed"),
        (b"0\n1\na 2147483648 1\n", "line 3 is malformed"),
        (b"0\n1\na 0 9223372036854775808\n", "line 3 is malformed"),
        (b"0\n1\na 0 " + b"9" * 5000 + b"\n", "line 3 is malformed"),
        (b"0\n2\na 0 1\n\n", "line 4 is malformed"),
        (b"0\n1\na\xff 0 1\n", "line 3 is malformed"),
        (b"0\n1\na 0 1_0\n", "line 3 is malformed"),
        ("0\n1\na 0 \u0661\n".encode(), "line 3 is malformed"),
        (b"\x00" * 20, "line 1 is malformed"),
    ],
)
def test_a_checkpoint_that_makes_no_sense_is_refused_with_the_reason(
    data: bytes, reason: str
) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_offsets(PATH, data)

    assert str(caught.value) == f"{PATH}: {reason}"


@pytest.mark.parametrize("line", [b"0", b"0 0 0", b"-1 0", b"0 -1", b"2147483648 0", b"x 0"])
def test_an_epoch_that_makes_no_sense_is_refused(line: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match="line 3 is malformed"):
        parse_epochs(PATH, b"0\n1\n" + line + b"\n")


@given(st.binary(max_size=60) | st.text(" \n\r0123456789ax-", max_size=60).map(str.encode))
def test_random_bytes_are_parsed_or_refused(data: bytes) -> None:
    for parse in (parse_offsets, parse_epochs):
        with contextlib.suppress(CorruptCheckpointError):
            parse(PATH, data)
