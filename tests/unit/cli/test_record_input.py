import io
import os

import pytest

from siltstone.cli.record_input import InputFormat, KeyValue, iter_pieces
from siltstone.errors import UsageError


class Trickle(io.BytesIO):
    """Gives a few bytes at a time, as a pipe may."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(3)


@pytest.mark.parametrize("stream_type", [io.BytesIO, Trickle])
@pytest.mark.parametrize(
    ("data", "delimiter", "pieces"),
    [
        (b"one\ntwo\n", b"\n", [b"one", b"two"]),
        (b"one\ntwo", b"\n", [b"one", b"two"]),
        (b"\n\none\n\n", b"\n", [b"one"]),
        (b"", b"\n", []),
        (b"a--b----c-d", b"--", [b"a", b"b", b"c-d"]),
    ],
)
def test_input_is_cut_at_delimiters_and_nothing_is_left_out_but_emptiness(
    stream_type: type[io.BytesIO], data: bytes, delimiter: bytes, pieces: list[bytes]
) -> None:
    assert list(iter_pieces(stream_type(data), delimiter)) == pieces


def test_a_pause_of_the_input_is_told() -> None:
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as stream, os.fdopen(write_fd, "wb", buffering=0) as writer:
        pieces = iter_pieces(stream, b"\n")
        writer.write(b"one\n")

        assert next(pieces) == b"one"
        assert next(pieces) is None


def test_input_without_any_delimiter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltstone.cli.record_input._MAX_PIECE_BYTES", 10)

    with pytest.raises(UsageError, match=r"^12 bytes without a delimiter: is -D right\?$"):
        list(iter_pieces(Trickle(b"x" * 100), b"\n"))


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (b"k:v", KeyValue(b"k", b"v")),
        (b"k:v:w", KeyValue(b"k", b"v:w")),
        (b"no key", KeyValue(None, b"no key")),
        (b"k:", KeyValue(b"k", b"")),
        (b":v", KeyValue(b"", b"v")),
    ],
)
def test_a_key_stands_before_the_first_delimiter(piece: bytes, expected: KeyValue) -> None:
    assert InputFormat(key_delimiter=b":").parse(piece) == expected


def test_what_is_empty_is_null_if_asked_for() -> None:
    input_format = InputFormat(key_delimiter=b":", empty_is_null=True)

    assert input_format.parse(b"k:") == KeyValue(b"k", None)
    assert input_format.parse(b":v") == KeyValue(None, b"v")


def test_a_fixed_key_steps_in_where_there_is_none() -> None:
    input_format = InputFormat(key_delimiter=b":", fixed_key=b"fixed", empty_is_null=True)

    assert input_format.parse(b"k:v") == KeyValue(b"k", b"v")
    assert input_format.parse(b"v") == KeyValue(b"fixed", b"v")
    assert input_format.parse(b":") == KeyValue(b"fixed", None)
