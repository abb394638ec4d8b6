"""Loops over the keys of batches on their way into a key index, compiled by numba.

As in `cleaner.kernels`, a kernel never raises, and reads only between the positions it was given.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.cleaner.hash_kernels import hash_batch
from siltstone.cleaner.kernels import AT_END, COMPRESSED, REFUSED
from siltstone.cleaner.key_kernels import read_short_record
from siltstone.records.kernels import read_record
from siltstone.records.layout import CODEC_MASK, CONTROL_BIT, HEADER_SIZE

FULL: Final = 100  # One more reason to stop: there is no room for the entries of the next batch.


@njit(cache=True, nogil=True)
def collect_keys(
    data: Any,
    batches: Any,
    places: Any,
    first: int,
    is_unpacked: bool,
    base_offset: int,
    key0: int,
    key1: int,
    entries: Any,
    count: int,
    keys: Any,
    words: Any,
    hashes: Any,
) -> tuple[int, int, int]:
    """Add an entry for each record with a key from batch number `first` on.

    `places` are the positions of the batches in their segment; `keys`, `words` and `hashes`
    are room for the largest batch. Return (batch, entries, why); compressed batches are
    stopped at, unless `is_unpacked`.
    """
    for number in range(first, batches.size):
        batch = batches[number]
        if batch.attributes & CONTROL_BIT:
            continue
        if batch.attributes & CODEC_MASK != 0 and not is_unpacked:
            return number, count, COMPRESSED
        if count + batch.record_count > entries.shape[0]:
            return number, count, FULL
        position = batch.position + HEADER_SIZE
        end = batch.position + batch.size_bytes
        place = np.uint64(places[number]) << np.uint64(32)
        shift = batch.base_offset - base_offset
        found = 0
        for _ in range(batch.record_count):
            start = position
            position, delta, key_position, key_length, _ = read_short_record(data, start, end)
            if position < 0:
                position, _, delta, key_position, key_length, _, _ = read_record(data, start, end)
                if position < 0:
                    return number, count, REFUSED
            if key_length < 0:
                continue
            keys[0, found] = key_position
            keys[1, found] = key_length
            entries[count + found, 1] = place | np.uint64(shift + delta)
            found += 1
        hash_batch(data, keys, found, words, key0, key1, hashes[0], hashes[1])
        entries[count : count + found, 0] = hashes[0, :found]
        count += found
    return batches.size, count, AT_END


@njit(cache=True, nogil=True)
def sort_entries(entries: Any, shift: int, ends: Any, found: Any) -> None:
    """Fill `found` with the entries, by hash and offset.

    `ends` has a zero for each value that the bits of a hash above `shift` can have. Hashes are
    spread evenly, so that few have the same, and those are sorted one by one.
    """
    bits = np.uint64(shift)
    for i in range(entries.shape[0]):
        ends[entries[i, 0] >> bits] += 1
    end = 0
    for bucket in range(ends.size):
        end += ends[bucket]
        ends[bucket] = end - ends[bucket]
    for i in range(entries.shape[0]):
        bucket = entries[i, 0] >> bits
        slot = ends[bucket]
        found[slot, 0] = entries[i, 0]
        found[slot, 1] = entries[i, 1]
        ends[bucket] = slot + 1
    start = 0
    for bucket in range(ends.size):
        for i in range(start + 1, ends[bucket]):
            low, high = found[i, 0], found[i, 1]
            slot = i - 1
            while slot >= start and (
                found[slot, 0] > low
                or (
                    found[slot, 0] == low
                    and np.uint32(found[slot, 1]) > np.uint32(high)  # the offset alone
                )
            ):
                found[slot + 1, 0] = found[slot, 0]
                found[slot + 1, 1] = found[slot, 1]
                slot -= 1
            found[slot + 1, 0] = low
            found[slot + 1, 1] = high
        start = ends[bucket]
