"""Loops over the bytes of batches, compiled by numba: CRC, batch headers, records.

A kernel never raises and never reads outside of the positions it was given: it fills arrays and
says where and why it stopped. Whoever calls it (`scan`) asks the plain twin for the reason.
Numba checks no bounds, so every read below stands behind a comparison with the end.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.records.crc_kernels import crc32c, extend_crc, join_crcs
from siltstone.records.intrinsics import load_u64, swap_u64
from siltstone.records.kernel_types import AT_END, FULL, INCOMPLETE, REFUSED
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MIN_LEGACY_LENGTH,
    MIN_LENGTH,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

_JOINED_BYTES: Final = 4096  # A CRC of fewer is sooner taken again than joined.
_MAX_VARINT_BYTES: Final = 5
_MAX_VARLONG_BYTES: Final = 10
_MAX_OFFSET: Final = 2**63 - 1


@njit(cache=True, nogil=True)
def check_batches(data: Any, batches: Any) -> tuple[int, int]:
    """Check the CRCs of neighbouring batches; return (number of the first bad one, CRC of all).

    The number is -1 if all are good. Twins: `Batch.check_crc`, and the `crc32c` package.
    """
    whole = np.uint64(0)
    for number in range(batches.size):
        start = batches[number].position
        signed = start + ATTRIBUTES_POSITION
        end = start + batches[number].size_bytes
        crc = crc32c(data, signed, end)
        if crc != np.uint64(_read_i32(data, start + 17)) & np.uint64(0xFFFFFFFF):
            return number, np.uint64(0)
        whole = extend_crc(whole, data, start, signed)
        if end - signed < _JOINED_BYTES:
            whole = extend_crc(whole, data, signed, end)
        else:
            whole = join_crcs(whole, crc, end - signed)
    return -1, whole


@njit(cache=True, nogil=True)
def _read_i64(data: Any, position: int) -> int:
    return np.int64(swap_u64(load_u64(data, position)))


@njit(cache=True, nogil=True)
def _read_i32(data: Any, position: int) -> int:
    return np.int64(
        np.int32(
            (np.uint32(data[position]) << np.uint32(24))
            | (np.uint32(data[position + 1]) << np.uint32(16))
            | (np.uint32(data[position + 2]) << np.uint32(8))
            | np.uint32(data[position + 3])
        )
    )


@njit(cache=True, nogil=True)
def _read_i16(data: Any, position: int) -> int:
    return np.int64(np.int16((np.uint16(data[position]) << 8) | np.uint16(data[position + 1])))


@njit(cache=True, nogil=True)
def walk_batches(
    data: Any, start: int, end: int, next_offset: int, check_crc: bool, batches: Any
) -> tuple[int, int, int]:
    """Fill `batches` from `data[start:end]`; return (count, stop position, why).

    Batches must rise: each begins at `next_offset` or later, and the next one after its end.
    Twin: `scan.plain_walk`.
    """
    position = start
    count = 0
    while True:
        if position == end:
            return count, position, AT_END
        if end - position < HEADER_SIZE:
            # A batch of an old format may be smaller than our header.
            if (
                end - position > MAGIC_POSITION
                and data[position + MAGIC_POSITION] < MAGIC
                and _read_i32(data, position + 8) >= MIN_LEGACY_LENGTH
            ):
                return count, position, REFUSED
            return count, position, INCOMPLETE
        length = _read_i32(data, position + 8)
        attributes = _read_i16(data, position + ATTRIBUTES_POSITION)
        if (
            length < MIN_LENGTH
            or data[position + MAGIC_POSITION] != MAGIC
            or attributes & CODEC_MASK > 4
        ):
            return count, position, REFUSED
        size = length + LOG_OVERHEAD
        if end - position < size:
            return count, position, INCOMPLETE
        if count == batches.size:
            return count, position, FULL
        base_offset = _read_i64(data, position)
        last_offset_delta = _read_i32(data, position + 23)
        record_count = _read_i32(data, position + 57)
        if (
            base_offset < next_offset
            or base_offset > _MAX_OFFSET - last_offset_delta
            or last_offset_delta < 0
            or record_count < 0
            or record_count > last_offset_delta + 1
        ):
            return count, position, REFUSED
        if check_crc:
            expected = np.uint64(_read_i32(data, position + 17)) & np.uint64(0xFFFFFFFF)
            if crc32c(data, position + ATTRIBUTES_POSITION, position + size) != expected:
                return count, position, REFUSED

        row = batches[count]
        row.position = position
        row.base_offset = base_offset
        row.last_offset = base_offset + last_offset_delta
        row.base_timestamp_ms = _read_i64(data, position + 27)
        row.max_timestamp_ms = _read_i64(data, position + 35)
        row.producer_id = _read_i64(data, position + 43)
        row.size_bytes = size
        row.leader_epoch = _read_i32(data, position + 12)
        row.base_sequence = _read_i32(data, position + 53)
        row.record_count = record_count
        row.producer_epoch = _read_i16(data, position + 51)
        row.attributes = attributes
        count += 1
        next_offset = base_offset + last_offset_delta + 1
        position += size


@njit(cache=True, nogil=True)
def read_varint(data: Any, position: int, end: int, max_bytes: int) -> tuple[int, int]:
    """Return (value, position after it), the position -1 if there is no sound varint."""
    if position < end and data[position] < 0x80:
        byte = np.int64(data[position])
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = np.uint64(0)
    for i in range(max_bytes):
        if position >= end:
            return 0, -1
        byte = np.uint64(data[position])
        position += 1
        raw |= (byte & np.uint64(0x7F)) << np.uint64(7 * i)
        if byte < np.uint64(0x80):
            # The last byte of the longest form may only use the bits that the type has left.
            if max_bytes == _MAX_VARINT_BYTES:
                raw &= np.uint64(0xFFFFFFFF)
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
    return 0, -1


@njit(cache=True, nogil=True)
def read_record(data: Any, position: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """Take one record apart.

    Return (position after it, timestamp delta, offset delta, key position, key length, value
    length, header count); the position is -1 if it is no sound record.
    """
    bad = (-1, 0, 0, 0, 0, 0, 0)
    length, position = read_varint(data, position, end, _MAX_VARINT_BYTES)
    if position < 0 or length < 1 or length > end - position:
        return bad
    record_end = position + length
    position += 1  # attributes, which nobody uses
    timestamp_delta, position = read_varint(data, position, record_end, _MAX_VARLONG_BYTES)
    if position < 0:
        return bad
    offset_delta, position = read_varint(data, position, record_end, _MAX_VARINT_BYTES)
    if position < 0:
        return bad
    key_length, position = read_varint(data, position, record_end, _MAX_VARINT_BYTES)
    if position < 0 or key_length < -1 or key_length > record_end - position:
        return bad
    key_position = position
    position += max(key_length, 0)
    value_length, position = read_varint(data, position, record_end, _MAX_VARINT_BYTES)
    if position < 0 or value_length < -1 or value_length > record_end - position:
        return bad
    position += max(value_length, 0)
    header_count, position = read_varint(data, position, record_end, _MAX_VARINT_BYTES)
    if position < 0 or header_count < 0 or header_count > record_end - position:
        return bad
    for _ in range(header_count):
        name_length, position = read_varint(data, position, record_end, _MAX_VARINT_BYTES)
        if position < 0 or name_length < 0 or name_length > record_end - position:
            return bad
        position += name_length
        header_length, position = read_varint(data, position, record_end, _MAX_VARINT_BYTES)
        if position < 0 or header_length < -1 or header_length > record_end - position:
            return bad
        position += max(header_length, 0)
    if position != record_end:
        return bad
    return (
        position,
        timestamp_delta,
        offset_delta,
        key_position,
        key_length,
        value_length,
        header_count,
    )


@njit(cache=True, nogil=True)
def index_records(data: Any, start: int, end: int, batch: Any, records: Any, first: int) -> int:
    """Fill `records[first:]` with the records of one batch in `data[start:end]`.

    Return the position after the last record, or -1 if they are no sound records. The caller has
    made room for the batch's record count. Twin: `Batch.iter_records`.
    """
    log_append_time = batch.attributes & TIMESTAMP_TYPE_BIT != 0
    offset_limit = batch.last_offset - batch.base_offset
    previous_delta = np.int64(-1)
    position = start
    for number in range(batch.record_count):
        record_start = position
        (
            position,
            timestamp_delta,
            offset_delta,
            key_position,
            key_length,
            value_length,
            header_count,
        ) = read_record(data, position, end)
        if position < 0 or offset_delta <= previous_delta or offset_delta > offset_limit:
            return -1
        previous_delta = offset_delta

        row = records[first + number]
        row.position = record_start
        row.offset = batch.base_offset + offset_delta
        row.timestamp_ms = (
            batch.max_timestamp_ms if log_append_time else batch.base_timestamp_ms + timestamp_delta
        )
        row.key_position = key_position
        row.size_bytes = position - record_start
        row.key_length = key_length
        row.value_length = value_length
        row.header_count = header_count
    return position if position == end else -1


@njit(cache=True, nogil=True)
def check_records(
    data: Any,
    start: int,
    end: int,
    record_count: int,
    base_timestamp_ms: int,
    needs_keys: bool,
    oldest_ms: int,
    newest_ms: int,
) -> tuple[int, int, int, int]:
    """Check the records of a producer's batch, whose offset deltas must be 0, 1, 2 and so on.

    Return (position after the last or -1, first record without a key where one is needed or -1,
    first record with a timestamp outside of the limits or -1, newest timestamp).
    Twin: `scan.plain_check_records`.
    """
    keyless = -1
    untimely = -1
    max_timestamp_ms = NO_TIMESTAMP
    position = start
    for number in range(record_count):
        position, timestamp_delta, offset_delta, _, key_length, _, _ = read_record(
            data, position, end
        )
        if position < 0 or offset_delta != number:
            return -1, -1, -1, NO_TIMESTAMP
        if needs_keys and key_length < 0 and keyless < 0:
            keyless = number
        timestamp_ms = base_timestamp_ms + timestamp_delta
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        if (
            timestamp_ms != NO_TIMESTAMP
            and (timestamp_ms < oldest_ms or timestamp_ms > newest_ms)
            and untimely < 0
        ):
            untimely = number
    if position != end:
        return -1, -1, -1, NO_TIMESTAMP
    return position, keyless, untimely, max_timestamp_ms


@njit(cache=True, nogil=True)
def is_usual_batch(data: Any, needs_keys: bool, oldest_ms: int, newest_ms: int) -> bool:
    """Say whether a producer's batch, uncompressed, can be appended as it is, if its CRC is right.

    False says nothing: it may be another kind of batch, or wrong.
    """
    if (
        data.size < HEADER_SIZE
        or data[MAGIC_POSITION] != MAGIC
        or _read_i16(data, ATTRIBUTES_POSITION) & ~TRANSACTIONAL_BIT != 0
        or _read_i64(data, 0) != 0
        or _read_i32(data, 8) + LOG_OVERHEAD != data.size
    ):
        return False
    record_count = _read_i32(data, 57)
    if record_count < 1 or record_count != _read_i32(data, 23) + 1:
        return False
    if _read_i64(data, 43) >= 0 and _read_i32(data, 53) < 0:
        return False
    end, keyless, untimely, max_timestamp_ms = check_records(
        data,
        HEADER_SIZE,
        data.size,
        record_count,
        _read_i64(data, 27),
        needs_keys,
        oldest_ms,
        newest_ms,
    )
    return end >= 0 and keyless < 0 and untimely < 0 and max_timestamp_ms == _read_i64(data, 35)


@njit(cache=True, nogil=True)
def index_batches(data: Any, batches: Any, records: Any) -> tuple[int, int]:
    """Index the records of all uncompressed batches; return (records, batch refused or -1).

    The caller has made room for the sum of the record counts. Compressed batches are left out.
    """
    count = 0
    for i in range(batches.size):
        batch = batches[i]
        if batch.attributes & CODEC_MASK != 0:
            continue
        start = batch.position + HEADER_SIZE
        end = batch.position + batch.size_bytes
        if index_records(data, start, end, batch, records, count) < 0:
            return count, i
        count += batch.record_count
    return count, -1
