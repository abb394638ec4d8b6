"""The last record of every key over all slices of a log, one range of hashes at a time.

A slice sends the keys of a range as a block of 16 bytes each: 96 bits of the hash, the number of
the key's last record in the slice, and whether that is a tombstone. Blocks may come in any order.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels, winner_kernels

Uint64s = NDArray[np.uint64]
Survivors = NDArray[np.uint32]  # number of a record in its slice times two, plus one: a tombstone

_FIRST_CAPACITY: Final = 1 << 12
_WORD: Final = 1 << 32


class KeyWinners:
    """Finds the winners among the keys of one of `range_count` ranges of hashes."""

    def __init__(self, range_count: int) -> None:
        self._range_count = range_count
        self._table = np.zeros((_FIRST_CAPACITY, 2), np.uint64)
        self._winners = np.empty(_FIRST_CAPACITY, np.uint32)
        self._used = 0

    def enter(self, slice_number: int, block: bytes) -> None:
        """Take in the keys of one slice; a later slice wins."""
        entries = np.frombuffer(block, np.uint64).reshape(-1, 2)
        self.reserve(self._used + len(entries))
        self._used = winner_kernels.enter_winners(
            entries, slice_number, self._range_count, self._table, self._winners, self._used
        )

    def survivors(self, slice_count: int) -> list[Survivors]:
        """Return what survives of each slice."""
        counts = np.zeros(slice_count, np.int64)
        winner_kernels.count_winners(self._table, counts)
        ends = np.cumsum(counts) - counts
        survivors = np.empty(int(counts.sum()), np.uint32)
        winner_kernels.sort_winners(self._table, self._winners, ends, survivors)
        return np.split(survivors, ends[:-1])

    def reserve(self, key_count: int) -> None:
        """Make room for so many keys.

        Beforehand: keys come in the order of their hashes, which is that of the table. One that
        grew on the way would have all of them at its start, and none at its end.
        """
        capacity = len(self._table)
        while 4 * key_count > 3 * capacity:
            capacity *= 2
        if capacity == len(self._table):
            return
        table = np.zeros((capacity, 2), np.uint64)
        winners = np.empty(capacity, np.uint32)
        winner_kernels.move_winners(self._table, self._winners, self._range_count, table, winners)
        self._table, self._winners = table, winners


def mark_survivors(survivors: Survivors, marks: NDArray[np.uint8]) -> None:
    """Mark the records of a slice that survive; `marks` begins with the slice's first record."""
    tombstones = (survivors & np.uint32(1)).astype(np.uint8) * np.uint8(kernels.TOMBSTONE)
    marks[survivors >> np.uint32(1)] = np.uint8(kernels.WINNER) | tombstones


def plain_range(low: int, range_count: int) -> int:
    """Return the range of a hash: its upper 32 bits, as a fraction of all. Twin: `hash_range`."""
    return (low // _WORD) * range_count // _WORD


def plain_survivors(blocks: Iterable[tuple[int, bytes]], slice_count: int) -> list[set[int]]:
    """Do what `KeyWinners` does, with a dict: its twin."""
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    for slice_number, block in blocks:
        for low, word in np.frombuffer(block, np.uint64).reshape(-1, 2).tolist():
            key, found = (low, word // _WORD), (slice_number, word % _WORD)
            latest[key] = max(found, latest.get(key, found))
    survivors: list[set[int]] = [set() for _ in range(slice_count)]
    for slice_number, survivor in latest.values():
        survivors[slice_number].add(survivor)
    return survivors
