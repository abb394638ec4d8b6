"""Loops over the keys of batches, compiled by numba: take records apart, hash, find the last.

A table of keys has rows of two words: 64 bits of the hash; 32 more of it and the number of the
key's last record, plus one. The upper bits of the hash say where a key belongs, so that a table is
in the order of hashes, and going from one table to another touches both from start to end.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.cleaner.hash_kernels import hash_batch
from siltstone.cleaner.kernels import (
    AT_END,
    COMPRESSED,
    DAMAGED,
    DATA,
    KEYLESS,
    REFUSED,
    TOMBSTONE,
    WINNER,
)
from siltstone.records.crc_kernels import join_crcs
from siltstone.records.intrinsics import load_u64, prefetch
from siltstone.records.kernels import check_batches, read_record
from siltstone.records.layout import CODEC_MASK, HEADER_SIZE

ORDINAL_MASK: Final = 0xFFFFFFFF

_ROW_BYTES: Final = 16
_AHEAD: Final = 32  # Keys whose place in the table is asked for before it is their turn.
_CACHED_BYTES: Final = 256 << 10  # What is checked is still in a near cache when it is taken apart.


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
def find_shift(capacity: int) -> int:
    """Return how far to shift a hash for its place in a table of 2^n rows."""
    shift = 64
    while capacity > 1:
        capacity >>= 1
        shift -= 1
    return np.uint64(shift)


@njit(cache=True, nogil=True)
def _enter(table: Any, shift: int, mask: int, low: int, entry: int) -> int:
    """Enter one key unless a later record of it is there; return how many rows that takes."""
    slot = np.int64(low >> shift)
    while True:
        found = table[slot, 1]
        # First what most keys find: themselves.
        if table[slot, 0] == low and (found ^ entry) <= np.uint64(ORDINAL_MASK):
            if entry > found:
                table[slot, 1] = entry
            return 0
        if found == np.uint64(0):
            table[slot, 0] = low
            table[slot, 1] = entry
            return 1
        slot = (slot + 1) & mask


@njit(cache=True, nogil=True)
def move_entries(source: Any, target: Any) -> int:
    """Enter all keys of one table into another; return how many rows that takes."""
    shift = find_shift(target.shape[0])
    mask = np.int64(target.shape[0] - 1)
    used = 0
    for i in range(source.shape[0]):
        if source[i, 1] != np.uint64(0):
            used += _enter(target, shift, mask, source[i, 0], source[i, 1])
    return used


@njit(cache=True, nogil=True)
def enter_keys(
    table: Any, used: int, lows: Any, highs: Any, marks: Any, first: int, ordinal: int
) -> tuple[int, int]:
    """Enter hashed keys from number `first` on; return (number it stopped at, used).

    `ordinal` is the number of the record that the arrays begin with. It stops if there is no room.
    """
    shift = find_shift(table.shape[0])
    mask = np.int64(table.shape[0] - 1)
    limit = table.shape[0] - table.shape[0] // 4
    count = marks.size
    for i in range(first, count):
        ahead = min(i + _AHEAD, count - 1)
        prefetch(table, np.int64(lows[ahead] >> shift) * _ROW_BYTES)
        if marks[i] & KEYLESS:
            continue
        if used == limit:
            return i, used
        entry = (highs[i] << np.uint64(32)) | np.uint64(ordinal + i + 1)
        used += _enter(table, shift, mask, lows[i], entry)
    return count, used


@njit(cache=True, nogil=True)
def hash_keys(
    data: Any,
    batches: Any,
    modes: Any,
    first: int,
    stop: int,
    is_unpacked: bool,
    key0: int,
    key1: int,
    marks: Any,
    lows: Any,
    highs: Any,
    done: int,
    keys: Any,
    words: Any,
) -> tuple[int, int, int]:
    """Hash the keys of data batches number `first` to `stop`; return (batch, done, why).

    `done` records have their marks and hashes already. Compressed batches are stopped at, unless
    `is_unpacked` says that there are none but by name. `keys` and `words` are room for the largest
    batch.
    """
    for number in range(first, stop):
        if modes[number] != DATA:
            continue
        batch = batches[number]
        count = np.int64(batch.record_count)
        if batch.attributes & CODEC_MASK != 0 and not is_unpacked:
            return number, done, COMPRESSED
        position = batch.position + HEADER_SIZE
        end = batch.position + batch.size_bytes
        offset_limit = batch.last_offset - batch.base_offset
        previous_delta = np.int64(-1)
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
                return number, done, REFUSED
            previous_delta = offset_delta
            mark = 0
            if value_length < 0:
                mark = TOMBSTONE
            if key_length < 0:
                mark = KEYLESS
            keys[0, i] = key_position
            keys[1, i] = key_length
            marks[done + i] = mark
        if position != end:
            return number, done, REFUSED
        hash_batch(data, keys, count, words, key0, key1, lows[done:], highs[done:])
        done += count
    return stop, done, AT_END


@njit(cache=True, nogil=True)
def check_and_hash_keys(
    data: Any,
    batches: Any,
    modes: Any,
    first: int,
    checked: int,
    crc: int,
    key0: int,
    key1: int,
    marks: Any,
    lows: Any,
    highs: Any,
    done: int,
    keys: Any,
    words: Any,
) -> tuple[int, int, int, int, int]:
    """Check the CRCs of batches from `checked` on, and hash keys from `first` on, side by side.

    Return (batch, checked, CRC, done, why); the CRC is that of all bytes that were checked. See
    `hash_keys`.
    """
    why = AT_END
    while first < batches.size:
        if first >= checked:
            start = checked
            size_bytes = np.int64(0)
            while checked < batches.size and size_bytes < _CACHED_BYTES:
                size_bytes += batches[checked].size_bytes
                checked += 1
            bad, part = check_batches(data, batches[start:checked])
            if bad >= 0:
                return start + bad, start, crc, done, DAMAGED
            crc = join_crcs(crc, part, size_bytes)
        first, done, why = hash_keys(
            data,
            batches,
            modes,
            first,
            checked,
            False,
            key0,
            key1,
            marks,
            lows,
            highs,
            done,
            keys,
            words,
        )
        if why != AT_END:
            break
    return first, checked, crc, done, why


@njit(cache=True, nogil=True)
def mark_winners(table: Any, marks: Any) -> None:
    """Mark the last record of each key of a table."""
    for i in range(table.shape[0]):
        found = table[i, 1]
        if found != np.uint64(0):
            marks[np.int64(found & np.uint64(ORDINAL_MASK)) - 1] |= np.uint8(WINNER)


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
            ordinal = np.int64(found & np.uint64(ORDINAL_MASK)) - 1
            number = hash_range(table[i, 0], range_count)
            slot = ends[number]
            ends[number] = slot + 1
            word = np.uint64(ordinal << 1)
            if marks[ordinal] & TOMBSTONE:
                word |= np.uint64(1)
            entries[slot, 0] = table[i, 0]
            entries[slot, 1] = (found & ~np.uint64(ORDINAL_MASK)) | word
