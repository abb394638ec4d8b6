"""Loops over Arrow's buffers, compiled by numba: which partition a key goes to, rows as records."""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.records.intrinsics import copy_bytes

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_POSITIVE: Final = 0x7FFFFFFF


@njit(cache=True, nogil=True)
def choose_partitions(
    data: Any, offsets: Any, valid: Any, partition_count: int, keyless: int, partitions: Any
) -> None:
    """Give each key its partition, and rows without a key `keyless`. Twin: `java_partition`."""
    factor = np.uint32(_FACTOR)
    for row in range(partitions.size):
        if not valid[row]:
            partitions[row] = keyless
            continue
        start, end = offsets[row], offsets[row + 1]
        length = end - start
        hashed = np.uint32(_SEED) ^ np.uint32(length)
        position = start
        while position + 4 <= end:
            word = (
                np.uint32(data[position])
                | (np.uint32(data[position + 1]) << np.uint32(8))
                | (np.uint32(data[position + 2]) << np.uint32(16))
                | (np.uint32(data[position + 3]) << np.uint32(24))
            )
            word = np.uint32(word * factor)
            word = np.uint32((word ^ (word >> np.uint32(24))) * factor)
            hashed = np.uint32(np.uint32(hashed * factor) ^ word)
            position += 4
        if position < end:
            rest = np.uint32(0)
            shift = np.uint32(0)
            while position < end:
                rest |= np.uint32(data[position]) << shift
                shift += np.uint32(8)
                position += 1
            hashed = np.uint32((hashed ^ rest) * factor)
        hashed = np.uint32((hashed ^ (hashed >> np.uint32(13))) * factor)
        hashed = np.uint32(hashed ^ (hashed >> np.uint32(15)))
        partitions[row] = np.int64(hashed & np.uint32(_POSITIVE)) % partition_count


@njit(cache=True, nogil=True)
def _varint_size(value: int) -> int:
    raw = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while raw >= np.uint64(0x80):
        raw >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True)
def _write_varint(out: Any, position: int, value: int) -> int:
    raw = np.uint64((value << 1) ^ (value >> 63))
    while raw >= np.uint64(0x80):
        out[position] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(raw)
    return position + 1


@njit(cache=True, nogil=True)
def _field_size(offsets: Any, valid: Any, row: int) -> int:
    if not valid[row]:
        return 1
    length: int = offsets[row + 1] - offsets[row]
    return _varint_size(length) + length


@njit(cache=True, nogil=True)
def _write_field(out: Any, position: int, data: Any, offsets: Any, valid: Any, row: int) -> int:
    if not valid[row]:
        return _write_varint(out, position, -1)
    start, end = offsets[row], offsets[row + 1]
    position = _write_varint(out, position, end - start)
    copy_bytes(out, position, data, start, end - start)
    return position + end - start


@njit(cache=True, nogil=True)
def _body_size(columns: Any, row: int, delta: int) -> int:
    """Return the size of a record without its length."""
    keys, values, headers = columns
    first, last = headers[0][row], headers[0][row + 1]
    size = 1 + 1 + _varint_size(delta)  # attributes, timestamp delta 0
    size += _field_size(keys[1], keys[2], row) + _field_size(values[1], values[2], row)
    size += _varint_size(last - first)
    for header in range(first, last):
        size += _field_size(headers[2], headers[3], header)
        size += _field_size(headers[5], headers[6], header)
    return size


@njit(cache=True, nogil=True)
def pack_records(columns: Any, rows: Any, first: int, limit: int, out: Any) -> tuple[int, int]:
    """Write rows as the records of one batch, all with the base timestamp.

    Begins with `rows[first]`; ends before the record that would not fit `limit` bytes, but not
    before the first. Return (number after the last row, bytes), or (`first`, size of the record) if
    that one does not fit `out`. Twin: `record.encode_record`.

    `columns`: keys and values, each (data, offsets, valid); headers as (offsets of the lists, data,
    offsets and valid of the names, the same of the values).
    """
    keys, values, headers = columns
    position = 0
    for number in range(first, rows.size):
        row = rows[number]
        delta = number - first
        size = _body_size(columns, row, delta)
        whole = size + _varint_size(size)
        if number > first and position + whole > limit:
            return number, position
        if position + whole > out.size:
            return first, whole
        position = _write_varint(out, position, size)
        out[position] = 0
        out[position + 1] = 0
        position = _write_varint(out, position + 2, delta)
        position = _write_field(out, position, keys[0], keys[1], keys[2], row)
        position = _write_field(out, position, values[0], values[1], values[2], row)
        first_header, last_header = headers[0][row], headers[0][row + 1]
        position = _write_varint(out, position, last_header - first_header)
        for header in range(first_header, last_header):
            position = _write_field(out, position, headers[1], headers[2], headers[3], header)
            position = _write_field(out, position, headers[4], headers[5], headers[6], header)
    return rows.size, position
