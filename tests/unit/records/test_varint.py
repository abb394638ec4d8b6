import pytest

from siltstone.errors import MalformedDataError, TruncatedDataError
from siltstone.records.varint import (
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_a_varint_is_zig_zag_with_the_low_bits_first(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (-86_400_995, "c5ffb252"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_a_varlong_takes_up_to_ten_bytes(value: int, encoded: str) -> None:
    assert encode_varlong(value).hex() == encoded
    assert decode_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_a_varint_is_read_where_it_is_asked_for() -> None:
    assert decode_varint(b"\xff\x80\x01\x02", 1) == (64, 3)


def test_bits_above_the_32nd_are_dropped_as_in_java() -> None:
    assert decode_varint(bytes.fromhex("feffffff7f"), 0) == (2**31 - 1, 5)


def test_a_varint_of_six_bytes_is_malformed() -> None:
    with pytest.raises(MalformedDataError) as caught:
        decode_varint(bytes.fromhex("00808080808000"), 1)
    assert str(caught.value) == "position 1: varint is longer than 5 bytes"


def test_a_varlong_of_eleven_bytes_is_malformed() -> None:
    with pytest.raises(MalformedDataError, match="varint is longer than 10 bytes"):
        decode_varlong(b"\x80" * 10 + b"\0", 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x80\x80\x80"])
def test_a_varint_that_does_not_end_is_truncated(data: bytes) -> None:
    with pytest.raises(TruncatedDataError, match="the bytes end inside of a varint"):
        decode_varint(data, 0)


def test_a_number_with_too_many_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="2147483648 does not fit in 32 bits"):
        encode_varint(2**31)
    with pytest.raises(ValueError, match="does not fit in 64 bits"):
        encode_varlong(2**63)
