"""Loops over records on their way into Arrow columns, compiled by numba.

As in `records.kernels`, a kernel never raises, and reads only what `scan` has found to be sound.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.cleaner.key_kernels import read_short_record
from siltstone.records.intrinsics import copy_bytes
from siltstone.records.kernels import read_record, read_varint
from siltstone.records.layout import HEADER_SIZE, TIMESTAMP_TYPE_BIT

_MAX_VARINT_BYTES: Final = 5
_MAX_VARLONG_BYTES: Final = 10


@njit(cache=True, nogil=True)
def locate_values(data: Any, records: Any, positions: Any) -> None:
    """Find where the value of each record begins; a null one would begin there."""
    for i in range(records.size):
        record = records[i]
        at = record.key_position + max(record.key_length, 0)
        _, positions[i] = read_varint(data, at, np.int64(data.size), _MAX_VARINT_BYTES)


@njit(cache=True, nogil=True)
def copy_spans(data: Any, positions: Any, lengths: Any, offsets: Any, out: Any) -> None:
    """Copy spans of bytes one after the other; `offsets` gets where each begins, and the end.

    A length below zero stands for null. The caller has made room for the sum of the others.
    """
    at = np.int64(0)
    for i in range(positions.size):
        offsets[i] = at
        start = positions[i]
        length = np.int64(lengths[i])
        if length > 0:
            copy_bytes(out, at, data, start, length)
            at += length
    offsets[positions.size] = at


@njit(cache=True, nogil=True)
def fill_columns(
    data: Any,
    batches: Any,
    stays: Any,
    wanted: Any,
    keys: Any,
    key_offsets: Any,
    values: Any,
    value_offsets: Any,
    is_null: Any,
    offsets: Any,
    timestamps_ms: Any,
) -> tuple[int, int]:
    """Fill the columns from plain batches; return (rows, batch refused or -1).

    Only with the records that are marked in `stays`, unless that is empty; only with those at the
    offsets in `wanted`, which rise, unless that is empty: of others, in a batch in which no offset
    is missing, just the lengths are looked at, up to the last that is wanted. `is_null` gets a row
    for keys and one for values. The caller has made room for all. Twin: `Batch.iter_records`.
    """
    row = 0
    number = 0
    next_wanted = 0
    key_at = np.int64(0)
    value_at = np.int64(0)
    key_offsets[0] = 0
    value_offsets[0] = 0
    for i in range(batches.size):
        batch = batches[i]
        position = batch.position + HEADER_SIZE
        end = batch.position + batch.size_bytes
        log_append_time = batch.attributes & TIMESTAMP_TYPE_BIT != 0
        offset_limit = batch.last_offset - batch.base_offset
        previous_delta = np.int64(-1)
        while next_wanted < wanted.size and wanted[next_wanted] < batch.base_offset:
            next_wanted += 1
        is_dense = wanted.size > 0 and offset_limit + 1 == batch.record_count
        for expected_delta in range(batch.record_count):
            if is_dense:
                expected = batch.base_offset + expected_delta
                if next_wanted < wanted.size and wanted[next_wanted] < expected:
                    next_wanted += 1
                if next_wanted == wanted.size or wanted[next_wanted] > batch.last_offset:
                    position = end
                    break
                if wanted[next_wanted] > expected:
                    position = _step_over(data, position, end)
                    if position < 0:
                        return row, i
                    previous_delta = expected_delta
                    continue
            start = position
            position, offset_delta, key_position, key_length, value_length = read_short_record(
                data, start, end
            )
            timestamp_delta = np.int64(0)
            value_start = position - 1 - value_length  # The count of headers, none, comes after it.
            is_short = position >= 0
            if not is_short:
                (
                    position,
                    timestamp_delta,
                    offset_delta,
                    key_position,
                    key_length,
                    value_length,
                    _,
                ) = read_record(data, start, end)
            if position < 0 or offset_delta <= previous_delta or offset_delta > offset_limit:
                return row, i
            if is_dense and offset_delta != expected_delta:
                return row, i
            previous_delta = offset_delta
            offset = batch.base_offset + offset_delta
            is_taken = stays.size == 0 or stays[number]
            number += 1
            if wanted.size > 0:
                while next_wanted < wanted.size and wanted[next_wanted] < offset:
                    next_wanted += 1
                is_taken = next_wanted < wanted.size and wanted[next_wanted] == offset
            if not is_taken:
                continue
            after_key = key_position + max(key_length, 0)
            if is_short:
                # After the length, of one byte or two, and the attributes.
                at = start + (3 if data[start] & 0x80 else 2)
                timestamp_delta, _ = read_varint(data, at, end, _MAX_VARLONG_BYTES)
            else:
                _, value_start = read_varint(data, after_key, end, _MAX_VARINT_BYTES)
            offsets[row] = offset
            timestamps_ms[row] = (
                batch.max_timestamp_ms
                if log_append_time
                else batch.base_timestamp_ms + timestamp_delta
            )
            is_null[0, row] = key_length < 0
            is_null[1, row] = value_length < 0
            if key_length > 0:
                copy_bytes(keys, key_at, data, key_position, key_length)
                key_at += key_length
            if value_length > 0:
                copy_bytes(values, value_at, data, value_start, value_length)
                value_at += value_length
            row += 1
            key_offsets[row] = key_at
            value_offsets[row] = value_at
        if position != end:
            return row, i
    return row, -1


@njit(cache=True, nogil=True)
def _step_over(data: Any, position: int, end: int) -> int:
    """Return the position after a record, by its length alone; -1 if that makes no sense."""
    length, body = read_varint(data, position, end, _MAX_VARINT_BYTES)
    if body < 0 or not 1 <= length <= end - body:
        return -1
    return body + length


@njit(cache=True, nogil=True)
def locate_headers(data: Any, records: Any, value_positions: Any, spans: Any) -> None:
    """Fill a row of `spans` for each header: position and length of its name, and of its value.

    The caller has made room for the sum of the header counts.
    """
    end = np.int64(data.size)
    row = 0
    for i in range(records.size):
        at = value_positions[i] + max(np.int64(records[i].value_length), 0)
        count, at = read_varint(data, at, end, _MAX_VARINT_BYTES)
        for _ in range(count):
            length, at = read_varint(data, at, end, _MAX_VARINT_BYTES)
            spans[row, 0] = at
            spans[row, 1] = length
            at += length
            length, at = read_varint(data, at, end, _MAX_VARINT_BYTES)
            spans[row, 2] = at
            spans[row, 3] = length
            at += max(length, 0)
            row += 1


@njit(cache=True, nogil=True)
def mark_prefixed(data: Any, records: Any, prefix: Any, stays: Any) -> None:
    """Take the mark of every record away whose key does not begin with `prefix`."""
    for i in range(records.size):
        if stays[i]:
            if records[i].key_length < prefix.size:
                stays[i] = False
            else:
                start = records[i].key_position
                for j in range(prefix.size):
                    if data[start + j] != prefix[j]:
                        stays[i] = False
                        break
