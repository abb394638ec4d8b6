"""Loops of a pass over batch bytes, compiled by numba: hash keys, find winners, judge, rewrite.

The rules are those of `survival`, whose functions are the twins of what is decided here; the plain
engine in `reference` is the twin of the whole. As in `records.kernels`, a kernel never raises and
reads only between the positions it was given.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from siltstone.records.kernels import crc32c, load_u64, read_record, read_varint
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
FULL: Final = 2  # the table, or the output, must grow first
COMPRESSED: Final = 3  # the next batch must be decompressed first

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

MAX_WORDS: Final = 8  # of a key that is hashed together with others: up to 63 bytes

_ORDINAL_MASK: Final = 0xFFFFFFFF
_MAX_VARINT_BYTES: Final = 5
_MAX_VARLONG_BYTES: Final = 10
# What a rebuilt record can grow by: a longer timestamp delta, and a longer length before it.
_RECORD_GROWTH_BYTES: Final = 14


@intrinsic
def _prefetch(typing_context: Any, table: Any, slot: Any) -> Any:
    """Ask for a line of the table ahead of time."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        i32 = ir.IntType(32)
        pointer = builder.bitcast(
            builder.gep(array.data, [builder.mul(arguments[1], ir.Constant(ir.IntType(64), 2))]),
            ir.IntType(8).as_pointer(),
        )
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [ir.IntType(8).as_pointer()],
            ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), i32, i32, i32]),
        )
        builder.call(
            function, [pointer, ir.Constant(i32, 1), ir.Constant(i32, 1), ir.Constant(i32, 1)]
        )
        return context.get_dummy_value()

    return types.void(table, types.int64), generate


@njit(cache=True, nogil=True, inline="always")  # or the loops around it are not vectorised
def _sip_round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = v0 + v1
    v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
    v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
    v2 = v2 + v3
    v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
    v0 = v0 + v3
    v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
    v2 = v2 + v1
    v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
    v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    return v0, v1, v2, v3


@njit(cache=True, nogil=True)
def siphash128(data: Any, start: int, length: int, key0: int, key1: int) -> tuple[int, int]:
    """Return SipHash-2-4 with 128 bits of `data[start:start + length]`. Twin: `siphash`."""
    v0 = key0 ^ np.uint64(0x736F6D6570736575)
    v1 = key1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = key0 ^ np.uint64(0x6C7967656E657261)
    v3 = key1 ^ np.uint64(0x7465646279746573)
    position = start
    end = start + length
    block = np.uint64(0)
    while position + 8 <= end:
        block = load_u64(data, position)
        v3 ^= block
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= block
        position += 8
    word = np.uint64(length & 0xFF) << np.uint64(56)
    shift = 0
    while position < end:
        word |= np.uint64(data[position]) << np.uint64(shift)
        shift += 8
        position += 1
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@njit(cache=True, nogil=True)
def _absorb_column(words: Any, states: Any, count: int) -> None:
    """Take one more word of each of many keys into their states."""
    s0, s1, s2, s3 = states[0], states[1], states[2], states[3]
    for i in range(count):
        word = words[i]
        v0, v1, v2, v3 = _sip_round(s0[i], s1[i], s2[i], s3[i] ^ word)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        s0[i] = v0 ^ word
        s1[i] = v1
        s2[i] = v2
        s3[i] = v3


@njit(cache=True, nogil=True)
def _finish_columns(states: Any, lows: Any, highs: Any, count: int) -> None:
    """Turn the states of many keys into their hashes."""
    s0, s1, s2, s3 = states[0], states[1], states[2], states[3]
    for i in range(count):
        v0, v1, v2, v3 = _sip_round(s0[i], s1[i], s2[i] ^ np.uint64(0xEE), s3[i])
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        lows[i] = v0 ^ v1 ^ v2 ^ v3
        v0, v1, v2, v3 = _sip_round(v0, v1 ^ np.uint64(0xDD), v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        highs[i] = v0 ^ v1 ^ v2 ^ v3


@njit(cache=True, nogil=True)
def _hash_columns(
    words: Any, word_count: int, count: int, key0: int, key1: int, states: Any, hashes: Any
) -> None:
    """Hash many keys of as many words at once: column i of `words` is key i.

    Straight lines over neighbouring columns, so that the compiler does several at a time: three
    times as fast as one by one. Twin: `siphash128`.
    """
    states[0, :count] = key0 ^ np.uint64(0x736F6D6570736575)
    states[1, :count] = key1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    states[2, :count] = key0 ^ np.uint64(0x6C7967656E657261)
    states[3, :count] = key1 ^ np.uint64(0x7465646279746573)
    for row in range(word_count):
        _absorb_column(words[row], states, count)
    _finish_columns(states, hashes[0], hashes[1], count)


@njit(cache=True, nogil=True)
def read_short_record(data: Any, position: int, end: int) -> tuple[int, int, int, int, int]:
    """Take one record apart that is as most are: below 8 kB, a key below 64 bytes, no headers.

    Return (position after it, offset delta, key position, key length, value length); the position
    is -1 if it may be any other, sound or not: ask `read_record`, the twin. The position comes from
    the length alone, so that the processor can go on with the next record at once.
    """
    other = (-1, 0, 0, 0, 0)
    if end - position < 16:
        return other
    word: Any = load_u64(data, position)
    length = np.int64(word & np.uint64(0x7F))
    body = position + 2  # after the attributes
    word >>= np.uint64(8)
    if data[position] & 0x80:
        if word & np.uint64(0x80):
            return other
        length |= np.int64(word & np.uint64(0x7F)) << 7
        body += 1
        word >>= np.uint64(8)
    record_end = body - 1 + (length >> 1)
    if length & 1 or record_end > end:
        return other
    word >>= np.uint64(8)
    if word & np.uint64(0x80):  # the timestamp delta, of two bytes at most
        if word & np.uint64(0x8000):
            return other
        body += 1
        word >>= np.uint64(8)
    body += 1
    word >>= np.uint64(8)
    offset_delta = np.int64(word & np.uint64(0x7F))
    if word & np.uint64(0x80):
        if word & np.uint64(0x8000):
            return other
        offset_delta |= np.int64((word >> np.uint64(8)) & np.uint64(0x7F)) << 7
        body += 1
        word >>= np.uint64(8)
    body += 1
    word >>= np.uint64(8)
    # Now at most five of the eight bytes are used up.
    key_length = np.int64(word & np.uint64(0xFF))
    key_position = body + 1
    value = key_position + (key_length >> 1)
    if offset_delta & 1 or key_length & 0x81 or value + 3 > record_end:
        return other
    value_length = np.int64(data[value])
    value += 1
    if value_length & 0x80:
        if data[value] & 0x80:
            return other
        value_length = (value_length & 0x7F) | (np.int64(data[value]) << 7)
        value += 1
    if (
        value_length & 1
        or value + (value_length >> 1) + 1 != record_end
        or data[record_end - 1] != 0
    ):
        return other
    return record_end, offset_delta >> 1, key_position, key_length >> 1, value_length >> 1


@njit(cache=True, nogil=True)
def _put_words(data: Any, start: int, length: int, words: Any, column: int) -> None:
    """Cut a key into words as SipHash takes them, the last one with the length in it."""
    end = start + length
    row = length >> 3
    for i in range(row):
        words[i, column] = load_u64(data, start + 8 * i)
    word = np.uint64(length & 0xFF) << np.uint64(56)
    left = length & 7
    position = end - left
    if end >= 8 and left > 0:
        # The last bytes by one load that ends with them.
        word |= load_u64(data, end - 8) >> np.uint64(64 - 8 * left)
    else:
        for i in range(left):
            word |= np.uint64(data[position + i]) << np.uint64(8 * i)
    words[row, column] = word


@njit(cache=True, nogil=True)
def _insert(table: Any, hashes: Any, marks: Any, ordinal: int, count: int, used: int) -> int:
    """Enter hashed keys, of records from number `ordinal` on; return how many slots are used."""
    mask = np.int64(table.shape[0] - 1)
    lows = hashes[0]
    highs = hashes[1]
    for i in range(count):
        if marks[ordinal + i] & KEYLESS:
            continue
        low = lows[i]
        high = highs[i] << np.uint64(32)
        slot = np.int64(low) & mask
        entry = high | np.uint64(ordinal + i + 1)
        while True:
            found = table[slot, 1]
            if found == np.uint64(0):
                table[slot, 0] = low
                table[slot, 1] = entry
                used += 1
                break
            if table[slot, 0] == low and (found ^ high) <= np.uint64(_ORDINAL_MASK):
                table[slot, 1] = entry
                break
            slot = (slot + 1) & mask
    return used


@njit(cache=True, nogil=True)
def index_keys(
    data: Any,
    batches: Any,
    modes: Any,
    first: int,
    is_unpacked: bool,
    key0: int,
    key1: int,
    table: Any,
    used: int,
    marks: Any,
    ordinal: int,
    keys: Any,
    words: Any,
    states: Any,
    hashes: Any,
) -> tuple[int, int, int, int]:
    """Enter the keys of data batches from number `first` on; return (batch, used, ordinal, why).

    `table` holds 96 bits of each key's hash and the number of its last record, from which
    `mark_winners` takes the marks once all are entered. Compressed batches are stopped at, unless
    `is_unpacked` says that there are none but by name. `keys`, `words`, `states` and `hashes` are
    room for the largest batch. The caller has made room in `marks`.
    """
    mask = np.int64(table.shape[0] - 1)
    limit = table.shape[0] - table.shape[0] // 4
    lows = hashes[0]
    highs = hashes[1]
    for number in range(first, batches.size):
        if modes[number] != DATA:
            continue
        batch = batches[number]
        count = np.int64(batch.record_count)
        if batch.attributes & CODEC_MASK != 0 and not is_unpacked:
            return number, used, ordinal, COMPRESSED
        if used + count > limit:
            return number, used, ordinal, FULL
        position = batch.position + HEADER_SIZE
        end = batch.position + batch.size_bytes
        offset_limit = batch.last_offset - batch.base_offset
        previous_delta = np.int64(-1)
        word_count = np.int64(0)
        is_uniform = True
        for i in range(count):
            record_position = position
            position, offset_delta, key_position, key_length, value_length = read_short_record(
                data, record_position, end
            )
            if position < 0:
                position, _, offset_delta, key_position, key_length, value_length, _ = read_record(
                    data, record_position, end
                )
            if position < 0 or offset_delta <= previous_delta or offset_delta > offset_limit:
                return number, used, ordinal, REFUSED
            previous_delta = offset_delta
            mark = 0
            if value_length < 0:
                mark = TOMBSTONE
            if key_length < 0:
                mark = KEYLESS
            else:
                key_words = key_length // 8 + 1
                if word_count == 0:
                    word_count = key_words
                if key_words == word_count and key_words <= MAX_WORDS:
                    _put_words(data, key_position, key_length, words, i)
                else:
                    is_uniform = False
            keys[i, 0] = key_position
            keys[i, 1] = key_length
            marks[ordinal + i] = mark
        if position != end:
            return number, used, ordinal, REFUSED
        if is_uniform:
            _hash_columns(words, word_count, count, key0, key1, states, hashes)
        else:
            for i in range(count):
                if keys[i, 1] >= 0:
                    lows[i], highs[i] = siphash128(data, keys[i, 0], keys[i, 1], key0, key1)
        for i in range(count):
            _prefetch(table, np.int64(lows[i]) & mask)
        used = _insert(table, hashes, marks, ordinal, count, used)
        ordinal += count
    return batches.size, used, ordinal, AT_END


@njit(cache=True, nogil=True)
def mark_winners(table: Any, marks: Any) -> None:
    """Mark the last record of each key of a table."""
    for i in range(table.shape[0]):
        found = table[i, 1]
        if found != np.uint64(0):
            marks[np.int64(found & np.uint64(_ORDINAL_MASK)) - 1] |= np.uint8(WINNER)


@njit(cache=True, nogil=True)
def move_entries(old: Any, new: Any) -> None:
    """Enter what is in one table into a larger, empty one."""
    mask = np.int64(new.shape[0] - 1)
    for i in range(old.shape[0]):
        if old[i, 1] != np.uint64(0):
            slot = np.int64(old[i, 0]) & mask
            while new[slot, 1] != np.uint64(0):
                slot = (slot + 1) & mask
            new[slot, 0] = old[i, 0]
            new[slot, 1] = old[i, 1]


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
def _write_i32(out: Any, position: int, value: int) -> None:
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
    _write_i32(out, start + 8, end - start - LOG_OVERHEAD)
    out[start + ATTRIBUTES_POSITION] = np.uint8(0)
    out[start + ATTRIBUTES_POSITION + 1] = np.uint8(attributes)
    _write_i64(out, start + 27, base_timestamp_ms)
    _write_i32(out, start + 57, count)
    _write_i32(out, start + 17, np.int64(crc32c(out, start + ATTRIBUTES_POSITION, end)))


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
        length, body = read_varint(data, source, source_end, _MAX_VARINT_BYTES)
        if body < 0 or length < 1 or length > source_end - body:
            return -1, 0
        source = body + length
        delta, rest = read_varint(data, body + 1, source, _MAX_VARLONG_BYTES)
        if rest < 0:
            return -1, 0
        if is_data:
            mark = marks[ordinal + i]
            if mark & WINNER == 0 or (drops_tombstones and mark & TOMBSTONE):
                continue
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
        out[position : position + rest_bytes] = data[rest:source]
        position += rest_bytes
        count += 1
    if is_append_time:
        max_timestamp_ms = batch.max_timestamp_ms
    out[start : start + HEADER_SIZE] = data[batch.position : batch.position + HEADER_SIZE]
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
    first: int,
    ordinal: int,
    now_ms: int,
    new_horizon_ms: int,
    is_unpacked: bool,
    out: Any,
    written: Any,
) -> tuple[int, int, int, int, int]:
    """Write what is left of the batches from number `first` on.

    Return (batch, ordinal, batches written, position in `out`, why). `written` gets a row of
    (size, base offset, last offset, max timestamp) for each batch. A compressed batch to be
    rebuilt is stopped at, unless it is compressed but by name.
    """
    written_count = 0
    position = 0
    for number in range(first, batches.size):
        batch = batches[number]
        fate = fates[number]
        is_data = modes[number] == DATA
        if fate != DISCARDED:
            room = batch.size_bytes
            if fate == REBUILT:
                if batch.attributes & CODEC_MASK != 0 and not is_unpacked:
                    return number, ordinal, written_count, position, COMPRESSED
                room += batch.record_count * _RECORD_GROWTH_BYTES
            if room > out.size - position or written_count == written.shape[0]:
                return number, ordinal, written_count, position, FULL
            start = position
            max_timestamp_ms = batch.max_timestamp_ms
            if fate == COPIED:
                position += batch.size_bytes
                out[start:position] = data[batch.position : batch.position + batch.size_bytes]
            elif fate == EMPTIED:
                position += HEADER_SIZE
                out[start:position] = data[batch.position : batch.position + HEADER_SIZE]
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
                    return number, ordinal, written_count, start, REFUSED
            written[written_count, 0] = position - start
            written[written_count, 1] = batch.base_offset
            written[written_count, 2] = batch.last_offset
            written[written_count, 3] = max_timestamp_ms
            written_count += 1
        if is_data:
            ordinal += batch.record_count
    return batches.size, ordinal, written_count, position, AT_END


@njit(cache=True, nogil=True)
def hash_range(low: int, range_count: int) -> int:
    """Return the range that a key with this hash belongs to. Twin: `key_winners.plain_range`."""
    return np.int64(((low >> np.uint64(32)) * np.uint64(range_count)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def count_entries(table: Any, range_count: int, counts: Any) -> None:
    """Count the keys of a table by their range."""
    for i in range(table.shape[0]):
        if table[i, 1] != np.uint64(0):
            counts[hash_range(table[i, 0], range_count)] += 1


@njit(cache=True, nogil=True)
def pack_entries(table: Any, marks: Any, range_count: int, ends: Any, entries: Any) -> None:
    """Copy the keys of a table into `entries`, sorted by range.

    `ends` says where each range begins, and afterwards where it ends. An entry has 96 bits of the
    hash, and in the other 32 the number of the key's last record and whether that is a tombstone.
    """
    for i in range(table.shape[0]):
        found = table[i, 1]
        if found != np.uint64(0):
            ordinal = np.int64(found & np.uint64(_ORDINAL_MASK)) - 1
            number = hash_range(table[i, 0], range_count)
            slot = ends[number]
            ends[number] = slot + 1
            word = np.uint64(ordinal << 1)
            if marks[ordinal] & TOMBSTONE:
                word |= np.uint64(1)
            entries[slot, 0] = table[i, 0]
            entries[slot, 1] = (found & ~np.uint64(_ORDINAL_MASK)) | word


@njit(cache=True, nogil=True)
def enter_winners(
    entries: Any, first: int, slice_number: int, table: Any, winners: Any, used: int
) -> tuple[int, int]:
    """Enter the keys of one slice from number `first` on; return (number it stopped at, used).

    `table` holds 96 bits of each key's hash and the number of the latest slice it was found in,
    `winners` the other 32 bits of the entry from there. Twin: `key_winners.plain_survivors`.
    """
    mask = np.int64(table.shape[0] - 1)
    limit = table.shape[0] - table.shape[0] // 4
    mark = np.uint64(slice_number + 1)
    for i in range(first, entries.shape[0]):
        if used == limit:
            return i, used
        low = entries[i, 0]
        high = entries[i, 1] & ~np.uint64(_ORDINAL_MASK)
        # All keys of a range share the upper bits, which is why the slot comes from the lower.
        slot = np.int64(low) & mask
        while True:
            found = table[slot, 1]
            if found == np.uint64(0):
                used += 1
            elif table[slot, 0] != low or (found ^ high) > np.uint64(_ORDINAL_MASK):
                slot = (slot + 1) & mask
                continue
            elif (found & np.uint64(_ORDINAL_MASK)) > mark:
                break
            table[slot, 0] = low
            table[slot, 1] = high | mark
            winners[slot] = np.uint32(entries[i, 1] & np.uint64(_ORDINAL_MASK))
            break
    return entries.shape[0], used


@njit(cache=True, nogil=True)
def move_winners(old: Any, old_winners: Any, new: Any, new_winners: Any) -> None:
    """Enter what is in one table of winners into a larger, empty one."""
    mask = np.int64(new.shape[0] - 1)
    for i in range(old.shape[0]):
        if old[i, 1] != np.uint64(0):
            slot = np.int64(old[i, 0]) & mask
            while new[slot, 1] != np.uint64(0):
                slot = (slot + 1) & mask
            new[slot, 0] = old[i, 0]
            new[slot, 1] = old[i, 1]
            new_winners[slot] = old_winners[i]


@njit(cache=True, nogil=True)
def count_winners(table: Any, counts: Any) -> None:
    """Count the winners by the slice that they are in."""
    for i in range(table.shape[0]):
        found = table[i, 1] & np.uint64(_ORDINAL_MASK)
        if found != np.uint64(0):
            counts[np.int64(found) - 1] += 1


@njit(cache=True, nogil=True)
def sort_winners(table: Any, winners: Any, ends: Any, sorted_winners: Any) -> None:
    """Sort the winners by slice; `ends` says where each begins, and afterwards where it ends."""
    for i in range(table.shape[0]):
        found = table[i, 1] & np.uint64(_ORDINAL_MASK)
        if found != np.uint64(0):
            number = np.int64(found) - 1
            sorted_winners[ends[number]] = winners[i]
            ends[number] += 1
