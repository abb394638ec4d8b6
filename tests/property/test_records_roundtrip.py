import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import DecodeError, MalformedDataError
from siltstone.records.batch import BatchHeader, iter_batches, read_batch
from siltstone.records.builder import build_batch, encode_batch, stamp
from siltstone.records.compression import Codec, compress, decompress
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.record import Record, decode_record, encode_record
from siltstone.records.varint import (
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)
from tests.support.strategies import (
    INT64,
    BatchCase,
    batch_cases,
    codecs,
    damaged,
    join_batches,
    records,
    segments,
)

LIMIT_BYTES = 1 << 20


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=4))
def test_a_varint_reads_back_and_ends_where_the_next_byte_begins(value: int, rest: bytes) -> None:
    encoded = encode_varint(value)

    assert decode_varint(encoded + rest, 0) == (value, len(encoded))
    assert len(encoded) <= 5


@given(INT64, st.binary(max_size=4))
def test_a_varlong_reads_back_and_ends_where_the_next_byte_begins(value: int, rest: bytes) -> None:
    encoded = encode_varlong(value)

    assert decode_varlong(encoded + rest, 0) == (value, len(encoded))
    assert len(encoded) <= 10


@given(records(base_offset=57, max_size=1), INT64)
def test_a_record_reads_back_whatever_its_base_timestamp(
    originals: tuple[Record, ...], base_timestamp_ms: int
) -> None:
    encoded = encode_record(originals[0], 57, base_timestamp_ms)

    assert decode_record(encoded, 0, 57, base_timestamp_ms) == (originals[0], len(encoded))


@given(codecs, st.binary(max_size=2_000), st.integers(1, 60))
def test_every_codec_gives_back_the_payload(codec: Codec, seed: bytes, repeats: int) -> None:
    payload = seed * repeats

    assert decompress(codec, compress(codec, payload), len(payload)) == payload


@given(batch_cases())
def test_a_built_batch_reads_back_as_it_was_meant(case: BatchCase) -> None:
    data = case.build()

    batch = read_batch(data)
    batch.check_crc()
    header = batch.header
    assert header.size_bytes == len(data)
    assert list(batch.iter_records()) == case.read_records()
    assert (header.base_offset, header.last_offset_delta) == (
        case.base_offset,
        case.last_offset_delta,
    )
    assert header.timestamp_type is case.timestamp_type
    assert header.leader_epoch == case.leader_epoch
    assert header.producer_id == case.producer.producer_id
    assert header.producer_epoch == case.producer.producer_epoch
    assert header.base_sequence == case.producer.base_sequence
    assert header.is_transactional == case.producer.is_transactional
    assert header.is_control == (case.marker is not None)
    assert header.is_empty == case.is_emptied
    assert batch.marker() == (None if case.is_emptied else case.marker)
    assert header.delete_horizon_ms == (None if case.is_emptied else case.delete_horizon_ms)
    assert header.codec is (Codec.NONE if case.is_emptied else case.codec)


@given(batch_cases())
def test_reading_and_building_again_gives_the_same_bytes(case: BatchCase) -> None:
    data = case.build()
    header = read_batch(data).header

    assert encode_batch(header, data[HEADER_SIZE:]) == data
    assert stamp(data, header.base_offset, header.leader_epoch) + data[16:] == data


@given(records(), codecs)
def test_the_same_records_always_give_the_same_bytes(
    originals: tuple[Record, ...], codec: Codec
) -> None:
    assert build_batch(originals, codec=codec) == build_batch(originals, codec=codec)


@given(segments())
def test_a_segment_reads_back_batch_by_batch(cases: list[BatchCase]) -> None:
    data = join_batches(cases)

    found = [(position, list(batch.iter_records())) for position, batch in iter_batches(data)]

    position = 0
    expected = []
    for case in cases:
        expected.append((position, case.read_records()))
        position += len(case.build())
    assert found == expected


@given(damaged(segments().map(join_batches)) | st.binary(max_size=300))
def test_damaged_bytes_raise_decode_errors_and_nothing_else(data: bytes) -> None:
    position = 0
    try:
        for _, batch in iter_batches(data):
            list(batch.iter_records(LIMIT_BYTES))
            batch.marker()
    except DecodeError as error:
        position = error.position
    assert 0 <= position <= len(data)


@given(codecs, damaged(st.binary(max_size=200).map(lambda seed: seed * 9)))
def test_no_codec_fails_in_another_way_than_with_a_decode_error(codec: Codec, data: bytes) -> None:
    for candidate in (data, compress(codec, data)[:-1]):
        with contextlib.suppress(MalformedDataError):
            decompress(codec, candidate, LIMIT_BYTES)


@given(batch_cases(), st.data())
def test_no_changed_byte_under_the_checksum_goes_unnoticed(
    case: BatchCase, data: st.DataObject
) -> None:
    original = case.build()
    position = data.draw(st.integers(21, len(original) - 1))
    changed = bytearray(original)
    changed[position] ^= data.draw(st.integers(1, 255))

    with pytest.raises(DecodeError):
        read_batch(changed).check_crc()


@given(batch_cases())
def test_a_header_is_cheap_to_change(case: BatchCase) -> None:
    header = read_batch(case.build()).header

    moved = header._replace(base_offset=header.base_offset + 1)

    assert isinstance(moved, BatchHeader)
    assert moved.last_offset == header.last_offset + 1
