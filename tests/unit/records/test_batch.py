import struct

import pytest

from siltstone.errors import ChecksumError, DecodeError, MalformedDataError, TruncatedDataError
from siltstone.records.batch import (
    BatchHeader,
    TimestampType,
    is_legacy_batch,
    iter_batches,
    read_batch,
    read_header,
)
from siltstone.records.builder import build_batch, encode_batch
from siltstone.records.compression import Codec, compress
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.record import Record, encode_record

T0_MS = 1_600_000_000_000
RECORDS = [Record(57 + i, T0_MS + i, b"k%d" % i, b"v%d" % i) for i in range(3)]
DATA = build_batch(RECORDS, leader_epoch=4)
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
# "hello" at offset 0 in magic 1, as Kafka 0.10 wrote it: CRC-32, magic, attributes, timestamp.
LEGACY = bytes.fromhex(
    "0000000000000000 0000001b 61df48e7 01 00 00000174876e8000 ffffffff 00000005 68656c6c6f"
)


def header_with(**changes: int) -> BatchHeader:
    return read_header(DATA)._replace(**changes)


def with_byte(position: int, value: int) -> bytes:
    changed = bytearray(DATA)
    changed[position] = value
    return bytes(changed)


def with_length(length: int) -> bytes:
    return DATA[:8] + struct.pack(">i", length) + DATA[12:]


def reason_of(data: bytes, expected: type[DecodeError]) -> str:
    with pytest.raises(expected) as caught:
        list(read_batch(data).iter_records())
    return caught.value.reason


def test_a_header_has_its_fields_in_wire_order() -> None:
    header = read_header(DATA)

    assert header == (
        57,
        len(DATA) - 12,
        4,
        2,
        header.crc,
        0,
        2,
        T0_MS,
        T0_MS + 2,
        -1,
        -1,
        -1,
        3,
    )
    assert (header.size_bytes, header.last_offset, header.next_offset) == (len(DATA), 59, 60)


@pytest.mark.parametrize(
    ("attributes", "codec", "timestamp_type", "is_transactional", "is_control", "horizon_ms"),
    [
        (0x00, Codec.NONE, TimestampType.CREATE_TIME, False, False, None),
        (0x01, Codec.GZIP, TimestampType.CREATE_TIME, False, False, None),
        (0x0A, Codec.SNAPPY, TimestampType.LOG_APPEND_TIME, False, False, None),
        (0x13, Codec.LZ4, TimestampType.CREATE_TIME, True, False, None),
        (0x34, Codec.ZSTD, TimestampType.CREATE_TIME, True, True, None),
        (0x40, Codec.NONE, TimestampType.CREATE_TIME, False, False, T0_MS),
        (-0x80, Codec.NONE, TimestampType.CREATE_TIME, False, False, None),
        (0x7F00, Codec.NONE, TimestampType.CREATE_TIME, False, False, None),
    ],
)
def test_only_the_low_bits_of_the_attributes_mean_something(
    attributes: int,
    codec: Codec,
    timestamp_type: TimestampType,
    is_transactional: bool,
    is_control: bool,
    horizon_ms: int | None,
) -> None:
    header = header_with(attributes=attributes)

    assert header.codec is codec
    assert header.timestamp_type is timestamp_type
    assert header.is_transactional is is_transactional
    assert header.is_control is is_control
    assert header.delete_horizon_ms == horizon_ms


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [(-1, 5, -1), (0, 0, 0), (10, 5, 15), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 3, 2)],
)
def test_sequences_go_on_at_zero_after_the_highest(
    base_sequence: int, last_offset_delta: int, last_sequence: int
) -> None:
    header = header_with(base_sequence=base_sequence, last_offset_delta=last_offset_delta)

    assert header.last_sequence == last_sequence


@pytest.mark.parametrize(("producer_id", "expected"), [(-1, False), (0, True), (2**63 - 1, True)])
def test_a_producer_id_of_zero_is_one(producer_id: int, expected: bool) -> None:
    assert header_with(producer_id=producer_id).has_producer_id is expected


def test_a_batch_is_a_view_of_the_bytes_it_came_from() -> None:
    buffer = bytearray(b"xx" + DATA)

    batch = read_batch(buffer, 2)
    buffer[2 + 57 : 2 + 61] = b"\0\0\0\x01"

    assert batch.data.obj is buffer
    assert batch.payload() == DATA[HEADER_SIZE:]
    assert read_header(batch.data).record_count == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read(
    kind: type[bytes] | type[bytearray] | type[memoryview],
) -> None:
    assert list(read_batch(kind(DATA)).iter_records()) == RECORDS


def test_batches_come_with_their_positions() -> None:
    found = list(iter_batches(DATA + DATA, 0))

    assert [position for position, _ in found] == [0, len(DATA)]
    assert list(iter_batches(DATA + DATA, len(DATA) * 2)) == []


def test_batches_before_a_torn_one_are_given_out() -> None:
    batches = iter_batches(DATA + DATA[:-1])

    assert next(batches)[0] == 0
    with pytest.raises(TruncatedDataError) as caught:
        next(batches)
    assert caught.value.position == len(DATA)
    assert caught.value.reason == f"batch of {len(DATA)} bytes ends after the file"


@pytest.mark.parametrize("left", [1, 12, 16, 17, 60])
def test_less_than_a_header_is_truncated(left: int) -> None:
    with pytest.raises(TruncatedDataError) as caught:
        read_header(b"xxx" + DATA[:left], 3)
    assert str(caught.value) == f"position 3: {left} bytes left after the last batch"


def test_a_header_can_be_read_without_the_rest() -> None:
    assert read_header(DATA[:HEADER_SIZE]) == read_header(DATA)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (with_length(9), "batch length 9 is too small"),
        (with_length(48), "batch length 48 is too small"),
        (with_length(-1), "batch length -1 is too small"),
        (bytes(100), "batch length 0 is too small"),
        (with_byte(16, 3), "unknown magic 3"),
        (with_byte(16, 255), "unknown magic -1"),
        (with_byte(22, 5), "unknown codec 5"),
        (with_byte(22, 15), "unknown codec 7"),
    ],
)
def test_a_header_that_makes_no_sense_is_malformed(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedDataError) as caught:
        read_header(b"xxx" + data, 3)
    assert str(caught.value) == f"position 3: {reason}"


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_magic_is_refused_with_what_to_do(magic: int) -> None:
    data = LEGACY[:16] + bytes([magic]) + LEGACY[17:]

    with pytest.raises(MalformedDataError) as caught:
        read_batch(data)
    assert caught.value.reason == (
        f"magic {magic} is not supported: let a Kafka copy the topic into a new one, "
        "which rewrites it as magic 2"
    )


def test_an_old_batch_is_told_from_garbage_by_its_checksum() -> None:
    assert is_legacy_batch(LEGACY)
    assert is_legacy_batch(LEGACY + b"more")
    assert not is_legacy_batch(LEGACY[:-1])
    assert not is_legacy_batch(LEGACY[:-1] + b"x")
    assert not is_legacy_batch(LEGACY[:12])
    assert not is_legacy_batch(bytes(100))
    assert not is_legacy_batch(DATA)


def test_a_sound_checksum_passes_and_a_bad_one_says_both() -> None:
    batch = read_batch(DATA)
    batch.check_crc()
    changed = DATA[:-1] + bytes([DATA[-1] ^ 1])

    with pytest.raises(ChecksumError) as caught:
        read_batch(changed).check_crc()

    assert caught.value.reason.startswith(f"header says CRC 0x{batch.header.crc:08x}, bytes give ")


def test_the_checksum_leaves_offset_and_epoch_to_the_leader() -> None:
    read_batch(b"\x11" * 8 + DATA[8:12] + b"\x22" * 4 + DATA[16:]).check_crc()


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (4, "header says 4 records, found 3"),
        (2**31 - 1, "header says 2147483647 records, found 3"),
        (2, f"{len(encode_record(RECORDS[2], 57, T0_MS))} bytes after the last record"),
        (0, f"{len(DATA) - HEADER_SIZE} bytes after the last record"),
        (-3, "header says -3 records, found 0"),
    ],
)
@pytest.mark.parametrize("codec", Codec)
def test_a_count_that_lies_is_malformed(codec: Codec, count: int, reason: str) -> None:
    header = header_with(record_count=count, attributes=codec)

    data = encode_batch(header, compress(codec, DATA[HEADER_SIZE:]))

    assert reason_of(data, MalformedDataError) == reason


@pytest.mark.parametrize("offsets", [[57, 57], [58, 57], [57, 61], [56, 57]])
def test_offset_deltas_must_rise_inside_of_the_span(offsets: list[int]) -> None:
    payload = b"".join(
        encode_record(Record(offset, T0_MS, None, None), 57, T0_MS) for offset in offsets
    )
    header = header_with(last_offset_delta=3, record_count=2)
    wrong = 0 if offsets[0] == 56 else 1

    reason = reason_of(encode_batch(header, payload), MalformedDataError)

    assert reason == f"malformed record {wrong}: offset delta"


def test_records_before_a_malformed_one_are_given_out() -> None:
    size = len(encode_record(RECORDS[0], 57, T0_MS))
    records = read_batch(with_byte(HEADER_SIZE + size, 0)).iter_records()

    assert next(records) == RECORDS[0]
    with pytest.raises(MalformedDataError) as caught:
        next(records)
    assert str(caught.value) == f"position {HEADER_SIZE + size + 1}: malformed record 1: attributes"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_an_error_inside_of_a_compressed_payload_points_at_the_payload(codec: Codec) -> None:
    header = header_with(attributes=codec)
    broken = compress(codec, DATA[HEADER_SIZE:-1])
    batch = read_batch(encode_batch(header, broken))

    with pytest.raises(MalformedDataError) as caught:
        list(batch.iter_records())
    assert str(caught.value) == "position 61: malformed record 2: length"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_payload_that_cannot_be_decompressed_names_the_codec(codec: Codec) -> None:
    data = encode_batch(header_with(attributes=codec), b"\xff\xff\xff\xff\xff\xff no such payload")

    assert reason_of(data, MalformedDataError) == f"cannot decompress {codec.label} payload"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_by_the_callers_limit(codec: Codec) -> None:
    bomb = build_batch([Record(0, 0, b"k", bytes(1 << 20))], codec=codec)

    batch = read_batch(bomb)

    with pytest.raises(MalformedDataError) as caught:
        list(batch.iter_records(limit_bytes=100_000))
    assert str(caught.value) == "position 61: payload exceeds 100000 bytes"
    assert len(list(batch.iter_records())) == 1


@pytest.mark.parametrize("codec", Codec)
def test_an_empty_batch_has_no_records_whatever_its_codec(codec: Codec) -> None:
    data = encode_batch(header_with(attributes=codec, record_count=0), b"")

    batch = read_batch(data)
    assert batch.header.is_empty
    assert list(batch.iter_records()) == []


def test_a_control_batch_of_another_kind_has_no_marker() -> None:
    leader_change = Record(0, 0, bytes.fromhex("00000002"), b"whatever")
    data = build_batch([leader_change], is_control=True)

    batch = read_batch(data)
    assert batch.header.is_control
    assert batch.marker() is None
