"""Loops of a pass over batches, compiled by numba: judge and rewrite. Those over keys come before.

The rules are those of `survival`, whose functions are the twins of what is decided here; the plain
engine in `reference` is the twin of the whole. As in `records.kernels`, a kernel never raises and
reads only between the positions it was given.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.records.crc_kernels import crc32c
from siltstone.records.intrinsics import copy_bytes
from siltstone.records.kernels import read_varint
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

# What a byte of marks says about a record.
WINNER: Final = 1  # the last one of its key
TOMBSTONE: Final = 2
KEYLESS: Final = 4

# What the transaction tracker says about a batch.
DATA: Final = 0
ABORTED: Final = 1
MARKER: Final = 2
SPENT_MARKER: Final = 3  # no data of its transaction is left

# What becomes of a batch; the names are those of survival.BatchFate.
COPIED: Final = 0
REBUILT: Final = 1
EMPTIED: Final = 2
DISCARDED: Final = 3

# Why a kernel stopped.
AT_END: Final = 0
REFUSED: Final = 1  # the bytes are no sound records
COMPRESSED: Final = 2  # the next batch must be decompressed first
DAMAGED: Final = 3  # the CRC is another

# Slots of the counts that `judge_batches` adds up.
SUPERSEDED: Final = 0
KEYLESS_REMOVED: Final = 1
ABORTED_REMOVED: Final = 2
TOMBSTONES_KEPT: Final = 3
TOMBSTONES_REMOVED: Final = 4
MARKERS_KEPT: Final = 5
MARKERS_REMOVED: Final = 6
RECORDS_KEPT: Final = 7
RECORDS_READ: Final = 8
BATCHES_EMPTIED: Final = 9
COUNTS: Final = 10

_MAX_VARINT_BYTES: Final = 5
_MAX_VARLONG_BYTES: Final = 10
# What a rebuilt record can grow by: a longer timestamp delta, and a longer length before it.
RECORD_GROWTH_BYTES: Final = 14


@njit(cache=True, nogil=True)
def judge_batches(
    batches: Any,
    modes: Any,
    keeps_header: Any,
    marks: Any,
    ordinal: int,
    now_ms: int,
    fates: Any,
    has_tombstones: Any,
    counts: Any,
) -> int:
    """Decide what becomes of each batch, and return the ordinal after the last.

    Twins: `survival.batch_rule`, `survives` and `batch_fate`; `keeps_header` comes from outside.
    """
    for number in range(batches.size):
        batch = batches[number]
        count = batch.record_count
        mode = modes[number]
        has_horizon = batch.attributes & DELETE_HORIZON_BIT != 0
        is_due = has_horizon and batch.base_timestamp_ms <= now_ms
        counts[RECORDS_READ] += count
        survivors = np.int64(0)
        tombstones = np.int64(0)
        needs_horizon = False
        if mode == DATA:
            winners = np.int64(0)
            keyless = np.int64(0)
            for i in range(ordinal, ordinal + count):
                mark = marks[i]
                if mark & WINNER:
                    winners += 1
                    if mark & TOMBSTONE:
                        tombstones += 1
                elif mark & KEYLESS:
                    keyless += 1
            ordinal += count
            counts[SUPERSEDED] += count - winners - keyless
            counts[KEYLESS_REMOVED] += keyless
            survivors = winners
            if is_due:
                counts[TOMBSTONES_REMOVED] += tombstones
                survivors -= tombstones
                tombstones = np.int64(0)
            counts[TOMBSTONES_KEPT] += tombstones
            counts[RECORDS_KEPT] += survivors
            needs_horizon = tombstones > 0 and not has_horizon
        elif mode == ABORTED:
            counts[ABORTED_REMOVED] += count
        elif mode == SPENT_MARKER and is_due:
            counts[MARKERS_REMOVED] += count
        else:
            survivors = np.int64(count)
            counts[MARKERS_KEPT] += count
            needs_horizon = mode == SPENT_MARKER and not has_horizon
        has_tombstones[number] = tombstones > 0
        if survivors == 0:
            if keeps_header[number]:
                fates[number] = EMPTIED
                counts[BATCHES_EMPTIED] += 1
            else:
                fates[number] = DISCARDED
        elif survivors == count and not needs_horizon:
            fates[number] = COPIED
        else:
            fates[number] = REBUILT
    return ordinal


@njit(cache=True, nogil=True)
def _write_i64(out: Any, position: int, value: int) -> None:
    word = np.uint64(value)
    for i in range(8):
        out[position + i] = np.uint8((word >> np.uint64(56 - 8 * i)) & np.uint64(0xFF))


@njit(cache=True, nogil=True)
def write_i32(out: Any, position: int, value: int) -> None:
    """Write a big-endian number of 4 bytes."""
    word = np.uint32(value)
    for i in range(4):
        out[position + i] = np.uint8((word >> np.uint32(24 - 8 * i)) & np.uint32(0xFF))


@njit(cache=True, nogil=True)
def _write_varint(out: Any, position: int, value: int) -> int:
    raw = np.uint64((value << 1) ^ (value >> 63))
    while raw >= np.uint64(0x80):
        out[position] = np.uint8((raw & np.uint64(0x7F)) | np.uint64(0x80))
        raw >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(raw)
    return position + 1


@njit(cache=True, nogil=True)
def _varint_size(value: int) -> int:
    raw = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while raw >= np.uint64(0x80):
        raw >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True)
def _finish_header(
    out: Any, start: int, end: int, attributes: int, base_timestamp_ms: int, count: int
) -> None:
    """Write the header fields that a rebuilt batch does not share with its original, and sign."""
    write_i32(out, start + 8, end - start - LOG_OVERHEAD)
    out[start + ATTRIBUTES_POSITION] = np.uint8(0)
    out[start + ATTRIBUTES_POSITION + 1] = np.uint8(attributes)
    _write_i64(out, start + 27, base_timestamp_ms)
    write_i32(out, start + 57, count)
    write_i32(out, start + 17, np.int64(crc32c(out, start + ATTRIBUTES_POSITION, end)))


@njit(cache=True, nogil=True)
def _rebuild(
    data: Any,
    batch: Any,
    is_data: bool,
    marks: Any,
    ordinal: int,
    drops_tombstones: bool,
    horizon_ms: int,
    out: Any,
    start: int,
) -> tuple[int, int]:
    """Write a batch anew with its survivors; return (position after it or -1, max timestamp).

    `horizon_ms` is NO_TIMESTAMP for none. Twin: `rebuild.rebuild_batch`.
    """
    is_append_time = batch.attributes & TIMESTAMP_TYPE_BIT != 0
    source = batch.position + HEADER_SIZE
    source_end = batch.position + batch.size_bytes
    position = start + HEADER_SIZE
    base_timestamp_ms = horizon_ms
    has_base = horizon_ms != NO_TIMESTAMP
    max_timestamp_ms = np.int64(-(2**63))
    count = 0
    for i in range(batch.record_count):
        length = np.int64(-1)
        if source_end - source >= 3:
            # As most are: of a length in one byte or two, which is all that a loser must tell.
            low = np.int64(data[source])
            high = np.int64(data[source + 1])
            if low < 0x80:
                length = low >> 1
                body = source + 1
            elif high < 0x80:
                length = (low & 0x7F | high << 7) >> 1
                body = source + 2
        if length < 0 or low & 1:
            length, body = read_varint(data, source, source_end, _MAX_VARINT_BYTES)
        if body < 0 or length < 1 or length > source_end - body:
            return -1, 0
        source = body + length
        if is_data:
            mark = marks[ordinal + i]
            if mark & WINNER == 0 or (drops_tombstones and mark & TOMBSTONE):
                continue
        delta, rest = read_varint(data, body + 1, source, _MAX_VARLONG_BYTES)
        if rest < 0:
            return -1, 0
        if is_append_time:
            timestamp_ms = batch.max_timestamp_ms
        else:
            timestamp_ms = batch.base_timestamp_ms + delta
        if not has_base:
            base_timestamp_ms = timestamp_ms
            has_base = True
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        new_delta = timestamp_ms - base_timestamp_ms
        rest_bytes = source - rest
        position = _write_varint(out, position, 1 + _varint_size(new_delta) + rest_bytes)
        out[position] = np.uint8(0)
        position = _write_varint(out, position + 1, new_delta)
        copy_bytes(out, position, data, rest, rest_bytes)
        position += rest_bytes
        count += 1
    if is_append_time:
        max_timestamp_ms = batch.max_timestamp_ms
    copy_bytes(out, start, data, batch.position, HEADER_SIZE)
    kept_bits = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
    attributes = batch.attributes & kept_bits
    if horizon_ms != NO_TIMESTAMP:
        attributes |= DELETE_HORIZON_BIT
    _write_i64(out, start + MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _finish_header(out, start, position, attributes, base_timestamp_ms, count)
    return position, max_timestamp_ms


@njit(cache=True, nogil=True)
def rewrite_batches(
    data: Any,
    batches: Any,
    modes: Any,
    fates: Any,
    has_tombstones: Any,
    marks: Any,
    ordinal: int,
    now_ms: int,
    new_horizon_ms: int,
    out: Any,
    written: Any,
) -> tuple[int, int]:
    """Write what is left of batches; return (position in `out`, number of one refused or -1).

    `ordinal` is that of the first record. `written` gets a row of (size, base offset, last offset,
    max timestamp) for each batch. The caller has made room; batches to be rebuilt are plain.
    """
    written_count = 0
    position = np.int64(0)
    for number in range(batches.size):
        batch = batches[number]
        fate = fates[number]
        is_data = modes[number] == DATA
        if fate != DISCARDED:
            start = position
            max_timestamp_ms = batch.max_timestamp_ms
            if fate == COPIED:
                position += batch.size_bytes
                copy_bytes(out, start, data, batch.position, batch.size_bytes)
            elif fate == EMPTIED:
                position += HEADER_SIZE
                copy_bytes(out, start, data, batch.position, HEADER_SIZE)
                kept_bits = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
                attributes = batch.attributes & kept_bits
                _finish_header(out, start, position, attributes, NO_TIMESTAMP, 0)
            else:
                horizon_ms = np.int64(NO_TIMESTAMP)
                if batch.attributes & DELETE_HORIZON_BIT:
                    horizon_ms = batch.base_timestamp_ms
                elif has_tombstones[number] or modes[number] == SPENT_MARKER:
                    horizon_ms = np.int64(new_horizon_ms)
                drops = batch.attributes & DELETE_HORIZON_BIT != 0 and horizon_ms <= now_ms
                position, max_timestamp_ms = _rebuild(
                    data, batch, is_data, marks, ordinal, drops, horizon_ms, out, start
                )
                if position < 0:
                    return start, number
            written[written_count, 0] = position - start
            written[written_count, 1] = batch.base_offset
            written[written_count, 2] = batch.last_offset
            written[written_count, 3] = max_timestamp_ms
            written_count += 1
        if is_data:
            ordinal += batch.record_count
    return position, -1
