import pytest

from siltstone.errors import MalformedDataError
from siltstone.records.record import Record, decode_record, encode_record
from siltstone.records.varint import encode_varint

T0_MS = 1_600_000_000_000


def framed(body: str) -> bytes:
    """Put the right length before the bytes of a record."""
    data = bytes.fromhex(body)
    return encode_varint(len(data)) + data


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        (Record(57, T0_MS, b"k1", b"v1"), "14000000046b3104763100"),
        (Record(58, T0_MS + 5, b"k2", None), "10000a02046b320100"),
        (Record(57, T0_MS, None, None), "0c000000010100"),
        (Record(57, T0_MS, b"", b""), "0c000000000000"),
        (Record(57, T0_MS, None, b"", (("h", None),)), "120000000100020268" + "01"),
        (
            Record(57, T0_MS, None, b"", (("", b""), ("é", b"\xff"))),
            "1a0000000100040000" + "04c3a9" + "02ff",
        ),
        (Record(57, T0_MS - 1, b"", b""), "0c000100000000"),
    ],
)
def test_a_record_has_kafkas_bytes(record: Record, encoded: str) -> None:
    data = bytes.fromhex(encoded)

    assert encode_record(record, 57, T0_MS).hex() == encoded
    assert decode_record(data, 0, 57, T0_MS) == (record, len(data))
    assert decode_record(memoryview(b"xx" + data + b"yy"), 2, 57, T0_MS) == (record, len(data) + 2)


def test_a_timestamp_delta_of_more_than_63_bits_wraps_as_in_java() -> None:
    record = Record(0, 2**63 - 1, None, None)

    encoded = encode_record(record, 0, -1)

    assert decode_record(encoded, 0, 0, -1)[0] == record


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [(b"k", None, True), (b"k", b"", False), (None, None, False), (b"", None, True)],
)
def test_a_tombstone_has_a_key_and_a_null_value(
    key: bytes | None, value: bytes | None, expected: bool
) -> None:
    assert Record(0, 0, key, value).is_tombstone is expected


def test_a_header_key_that_is_no_utf8_reads_with_replacement_characters() -> None:
    record, _ = decode_record(framed("00 00 00 01 01 02 06 61ff62 01"), 0, 0, 0)

    assert record.headers == (("a\ufffdb", None),)


def test_a_header_key_that_has_no_utf8_is_written_with_a_question_mark() -> None:
    encoded = encode_record(Record(0, 0, None, None, (("a\udc80", None),)), 0, 0)

    assert decode_record(encoded, 0, 0, 0)[0].headers == (("a?", None),)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "length"),
        (b"\x80\x80\x80\x80\x80\x00", "length"),
        (encode_varint(-1), "length"),
        (encode_varint(7) + bytes(6), "length"),
        (framed(""), "attributes"),
        (framed("00"), "timestamp delta"),
        (framed("00 8080808080808080808000"), "timestamp delta"),
        (framed("00 00"), "offset delta"),
        (framed("00 00 808080808000 01 01 00"), "offset delta"),
        (framed("00 00 00"), "key length"),
        (framed("00 00 00 03 01 00"), "key length"),  # -2
        (framed("00 00 00 08 61"), "key length"),  # 4 bytes, 1 left
        (framed("00 00 00 01"), "value length"),
        (framed("00 00 00 01 03 00"), "value length"),
        (framed("00 00 00 01 feffffff0f 00"), "value length"),
        (framed("00 00 00 01 01"), "header count"),
        (framed("00 00 00 01 01 01"), "header count"),  # -1
        (framed("00 00 00 01 01 feffffff0f 00 00"), "header count"),
        (framed("00 00 00 01 01 02 01 00"), "header key length"),  # null
        (framed("00 00 00 01 01 02 08 61"), "header key length"),
        (framed("00 00 00 01 01 02 02 61"), "header value length"),
        (framed("00 00 00 01 01 02 02 61 03"), "header value length"),
        (framed("00 00 00 01 01 02 02 61 04 61"), "header value length"),
        (framed("00 00 00 01 01 00 00"), "length"),  # one byte more than the fields take
    ],
)
def test_a_malformed_record_is_named_with_its_number_and_field(data: bytes, field: str) -> None:
    # Sound bytes after the record must not help a field that reaches past its end.
    for rest in (b"", bytes(20)) if field not in ("length", "attributes") else (b"",):
        with pytest.raises(MalformedDataError) as caught:
            decode_record(data + rest, 0, 0, 0, index=4)
        assert caught.value.reason == f"malformed record 4: {field}"


def test_the_position_of_a_bad_field_counts_from_the_start_of_the_buffer() -> None:
    data = b"\xff\xff\xff" + framed("00 00 00 04 6b31 03 00")

    with pytest.raises(MalformedDataError) as caught:
        decode_record(data, 3, 0, 0)
    assert str(caught.value) == "position 10: malformed record 0: value length"
