"""Loops over the keys of one range of hashes, compiled by numba: where the last record is."""

from typing import Any

import numpy as np
from numba import njit

from siltstone.cleaner.key_kernels import ORDINAL_MASK, find_shift


@njit(cache=True, nogil=True)
def _place(low: int, range_count: int, shift: int) -> int:
    """Return where in a table a hash belongs: as far as it is in its range.

    Blocks come in nearly the order of hashes, and so does what they touch.
    """
    return np.int64((low * np.uint64(range_count)) >> shift)


@njit(cache=True, nogil=True)
def enter_winners(
    entries: Any, slice_number: int, range_count: int, table: Any, winners: Any, used: int
) -> int:
    """Enter the keys of one slice, for which there is room; return how many rows are used.

    `table` holds 96 bits of each key's hash and the number of the latest slice it was found in,
    `winners` the other 32 bits of the entry from there. Twin: `key_winners.plain_survivors`.
    """
    shift = find_shift(table.shape[0])
    mask = np.int64(table.shape[0] - 1)
    mark = np.uint64(slice_number + 1)
    for i in range(entries.shape[0]):
        low = entries[i, 0]
        high = entries[i, 1] & ~np.uint64(ORDINAL_MASK)
        slot = _place(low, range_count, shift)
        while True:
            found = table[slot, 1]
            if found == np.uint64(0):
                used += 1
            elif table[slot, 0] != low or (found ^ high) > np.uint64(ORDINAL_MASK):
                slot = (slot + 1) & mask
                continue
            elif (found & np.uint64(ORDINAL_MASK)) > mark:
                break
            table[slot, 0] = low
            table[slot, 1] = high | mark
            winners[slot] = np.uint32(entries[i, 1] & np.uint64(ORDINAL_MASK))
            break
    return used


@njit(cache=True, nogil=True)
def move_winners(old: Any, old_winners: Any, range_count: int, new: Any, new_winners: Any) -> None:
    """Enter what is in one table of winners into a larger, empty one."""
    shift = find_shift(new.shape[0])
    mask = np.int64(new.shape[0] - 1)
    for i in range(old.shape[0]):
        if old[i, 1] != np.uint64(0):
            slot = _place(old[i, 0], range_count, shift)
            while new[slot, 1] != np.uint64(0):
                slot = (slot + 1) & mask
            new[slot, 0] = old[i, 0]
            new[slot, 1] = old[i, 1]
            new_winners[slot] = old_winners[i]


@njit(cache=True, nogil=True)
def count_winners(table: Any, counts: Any) -> None:
    """Count the winners by the slice that they are in."""
    for i in range(table.shape[0]):
        found = table[i, 1] & np.uint64(ORDINAL_MASK)
        if found != np.uint64(0):
            counts[np.int64(found) - 1] += 1


@njit(cache=True, nogil=True)
def sort_winners(table: Any, winners: Any, ends: Any, sorted_winners: Any) -> None:
    """Sort the winners by slice; `ends` says where each begins, and afterwards where it ends."""
    for i in range(table.shape[0]):
        found = table[i, 1] & np.uint64(ORDINAL_MASK)
        if found != np.uint64(0):
            number = np.int64(found) - 1
            sorted_winners[ends[number]] = winners[i]
            ends[number] += 1
