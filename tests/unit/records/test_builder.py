"""The byte vectors A1 to A8: what Kafka's own classes wrote, before and after cleaning."""

import pytest

from siltstone.records.batch import Batch, TimestampType, read_batch
from siltstone.records.builder import (
    build_batch,
    build_empty_batch,
    build_marker,
    encode_batch,
    stamp,
)
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType, Marker
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.record import Record

T0_MS = 1_600_000_000_000
DAY_MS = 86_400_000

K1, K2, K1_AGAIN = (
    Record(0, T0_MS, b"k1", b"v1"),
    Record(1, T0_MS + 5, b"k2", None),
    Record(2, T0_MS + 3, b"k1", b"v2"),
)
A1 = (
    "00000000000000000000005000000000025e63fcf400000000000200000174876e800000000174876e8005"
    "ffffffffffffffffffffffffffff0000000314000000046b310476310010000a02046b3201001400060404"
    "6b3104763200"
)
A2 = (
    "00000000000000030000003b000000000265a97a1000100000000000000174876e800700000174876e8007"
    "00000000000000070003000000000000000112000000046b33027800"
)
A3 = (
    "0000000000000004000000420000000002c1f0dcf000300000000000000174876e800900000174876e8009"
    "00000000000000070003ffffffff000000012000000008000000000c00000000000500"
)
A5_DATA = (
    "00000000000000000000004b0000000002d5d6371a004000000002000001748c94dfe800000174876e8005"
    "ffffffffffffffffffffffffffff000000021600c5ffb25202046b3201001a00c9ffb25204046b31047632"
    "00"
)
A5_EMPTY = (
    "000000000000000300000031000000000269d700f9001000000000ffffffffffffffff00000174876e8007"
    "000000000000000700030000000000000000"
)
A6 = (
    "00000000000000000000003f0000000002f31f7bf9004000000002000001748c94dfe800000174876e8003"
    "ffffffffffffffffffffffffffff000000011a00c9ffb25204046b3104763200"
)
A7_CLEANED = (
    "00000000000000000000004500000000029f20f29a007000000000000001748c94dc0000000174876e8000"
    "00000000000000090004ffffffff000000012600ffefb2520008000000010c00000000000100"
)
A7_EMPTY = (
    "000000000000000000000031000000000225abc46d003000000000ffffffffffffffff00000174876e8000"
    "00000000000000090004ffffffff00000000"
)
A8 = (
    "0000000000000000000000420000000002f8968307000800000001000000000000000500000174876e8000"
    "ffffffffffffffffffffffffffff000000021000000002610231000e00020202620100"
)
A8_CLEANED = (
    "0000000000000000000000480000000002599bb5ba004800000001000001748c94dc6400000174876e8000"
    "ffffffffffffffffffffffffffff000000021600c7f1b2520002610231001400c7f1b2520202620100"
)


def read_checked(data: str) -> Batch:
    batch = read_batch(bytes.fromhex(data))
    batch.check_crc()
    return batch


def test_a1_records_without_a_producer() -> None:
    batch = read_checked(A1)

    assert build_batch([K1, K2, K1_AGAIN], leader_epoch=0).hex() == A1
    assert list(batch.iter_records()) == [K1, K2, K1_AGAIN]
    assert batch.header.max_timestamp_ms == T0_MS + 5


def test_a2_a_transactional_batch() -> None:
    record = Record(3, T0_MS + 7, b"k3", b"x")
    batch = read_checked(A2)

    built = build_batch(
        [record],
        leader_epoch=0,
        producer_id=7,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )

    assert built.hex() == A2
    assert list(batch.iter_records()) == [record]
    assert batch.header.is_transactional
    assert batch.marker() is None


def test_a3_an_abort_marker() -> None:
    batch = read_checked(A3)

    built = build_marker(
        ControlType.ABORT,
        offset=4,
        timestamp_ms=T0_MS + 9,
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=5,
        leader_epoch=0,
    )

    assert built.hex() == A3
    assert batch.header.is_control
    assert batch.marker() == Marker(ControlType.ABORT, 5)


def test_a5_a_thinned_batch_with_a_delete_horizon() -> None:
    horizon_ms = T0_MS + 1_000 + DAY_MS
    batch = read_checked(A5_DATA)

    built = build_batch(
        [K2, K1_AGAIN],
        base_offset=0,
        last_offset_delta=2,
        leader_epoch=0,
        delete_horizon_ms=horizon_ms,
    )

    assert built.hex() == A5_DATA
    assert list(batch.iter_records()) == [K2, K1_AGAIN]
    assert batch.header.delete_horizon_ms == horizon_ms
    assert batch.header.max_timestamp_ms == T0_MS + 5


def test_a5_an_emptied_batch_keeps_the_producers_place() -> None:
    batch = read_checked(A5_EMPTY)

    assert build_empty_batch(read_checked(A2).header).hex() == A5_EMPTY
    assert batch.header.is_empty
    assert list(batch.iter_records()) == []
    assert batch.header.delete_horizon_ms is None


def test_a6_the_horizon_stays_when_the_tombstone_is_gone() -> None:
    header = read_checked(A5_DATA).header

    built = build_batch(
        [K1_AGAIN],
        base_offset=0,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=0,
        delete_horizon_ms=header.delete_horizon_ms,
    )

    assert built.hex() == A6
    assert list(read_checked(A6).iter_records()) == [K1_AGAIN]


def test_a7_a_lone_marker_gets_a_horizon_and_is_emptied_then() -> None:
    marker = build_marker(
        ControlType.COMMIT,
        offset=0,
        timestamp_ms=T0_MS,
        producer_id=9,
        producer_epoch=4,
        coordinator_epoch=1,
        leader_epoch=0,
        delete_horizon_ms=T0_MS + DAY_MS,
    )
    batch = read_checked(A7_CLEANED)

    assert marker.hex() == A7_CLEANED
    assert batch.marker() == Marker(ControlType.COMMIT, 1)
    assert next(batch.iter_records()).timestamp_ms == T0_MS
    assert build_empty_batch(batch.header).hex() == A7_EMPTY
    assert read_checked(A7_EMPTY).marker() is None


def test_a8_with_log_append_time_every_record_reads_the_max_timestamp() -> None:
    written = [Record(0, 5, b"a", b"1"), Record(1, 6, b"b", None)]
    read = [record._replace(timestamp_ms=T0_MS) for record in written]

    before = build_batch(
        written,
        leader_epoch=0,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp_ms=T0_MS,
    )
    after = build_batch(
        read,
        leader_epoch=0,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        delete_horizon_ms=T0_MS + 100 + DAY_MS,
    )

    assert before.hex() == A8
    assert after.hex() == A8_CLEANED
    assert list(read_checked(A8).iter_records()) == read
    assert list(read_checked(A8_CLEANED).iter_records()) == read


def test_emptying_drops_codec_and_horizon_and_keeps_the_timestamp_type() -> None:
    data = build_batch(
        [Record(7, 5, b"a", b"1")],
        base_offset=3,
        last_offset_delta=9,
        codec=Codec.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp_ms=T0_MS,
        delete_horizon_ms=T0_MS + DAY_MS,
        leader_epoch=6,
    )

    header = read_batch(build_empty_batch(read_batch(data).header)).header

    assert (header.base_offset, header.last_offset, header.leader_epoch) == (3, 12, 6)
    assert header.codec is Codec.NONE
    assert header.delete_horizon_ms is None
    assert header.base_timestamp_ms == -1
    assert header.max_timestamp_ms == T0_MS
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_batch_for_a_producer_needs_nothing_but_records() -> None:
    header = read_batch(build_batch([K1, K2])).header

    assert (header.base_offset, header.last_offset_delta) == (0, 1)
    assert header.leader_epoch == -1
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize("codec", Codec)
def test_compression_leaves_the_header_outside(codec: Codec) -> None:
    data = build_batch([K1, K2], codec=codec)

    batch = read_batch(data)
    batch.check_crc()
    assert batch.header.codec is codec
    assert list(batch.iter_records()) == [K1, K2]


def test_a_stamp_changes_offset_and_epoch_but_not_the_checksum() -> None:
    data = build_batch([K1, K2, K1_AGAIN])

    stamped = stamp(data, base_offset=57, leader_epoch=4) + data[16:]

    batch = read_batch(stamped)
    batch.check_crc()
    assert (batch.header.base_offset, batch.header.leader_epoch) == (57, 4)
    assert [record.offset for record in batch.iter_records()] == [57, 58, 59]


def test_a_changed_header_is_signed_anew() -> None:
    before = read_batch(build_batch([K1, K2]))
    header = before.header._replace(max_timestamp_ms=T0_MS + 99, attributes=0x08)

    after = read_batch(encode_batch(header, before.data[HEADER_SIZE:]))

    after.check_crc()
    assert [record.timestamp_ms for record in after.iter_records()] == [T0_MS + 99] * 2


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch needs a record: build_empty_batch"):
        build_batch([])


@pytest.mark.parametrize(
    ("offsets", "base_offset", "last_offset_delta", "message"),
    [
        ([5, 5], 5, None, "offset 5 is not between 6 and 5"),
        ([5, 4], 3, 9, "offset 4 is not between 6 and 12"),
        ([2], 3, 9, "offset 2 is not between 3 and 12"),
        ([13], 3, 9, "offset 13 is not between 3 and 12"),
        ([2], 3, None, "last offset delta -1 does not fit a batch"),
        ([2**31], 0, None, "last offset delta 2147483648 does not fit a batch"),
    ],
)
def test_offsets_that_do_not_rise_inside_of_the_batch_are_refused(
    offsets: list[int], base_offset: int, last_offset_delta: int | None, message: str
) -> None:
    records = [Record(offset, 0, None, None) for offset in offsets]

    with pytest.raises(ValueError, match=message):
        build_batch(records, base_offset=base_offset, last_offset_delta=last_offset_delta)


def test_a_producer_without_epoch_or_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="producer 7 has no epoch"):
        build_batch([K1], producer_id=7, base_sequence=0)
    with pytest.raises(ValueError, match="producer 7 has no sequence"):
        build_batch([K1], producer_id=7, producer_epoch=0)
    with pytest.raises(ValueError, match="a transactional batch needs a producer id"):
        build_batch([K1], is_transactional=True)
