"""A table of keys, each with the number of its last record.

A key is known by 96 bits of its SipHash-128 under the pass's random key. With 20 million keys the
chance that any two share them is about 3 in 10^15, and nobody can make up keys that do.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import key_kernels
from siltstone.cleaner.key_hasher import Hashes, Marks

_FIRST_CAPACITY: Final = 1 << 16
_SMALL_CAPACITY: Final = 1 << 20  # up to which a table grows by more than it must


class KeyTable:
    """Takes keys in any order: what counts is the number of a record."""

    def __init__(self) -> None:
        self._table = np.zeros((_FIRST_CAPACITY, 2), np.uint64)
        self._used = 0

    def enter(self, lows: Hashes, highs: Hashes, marks: Marks, ordinal: int) -> None:
        """Enter the keys of records from number `ordinal` on, all that have marks."""
        first = 0
        while first < len(marks):
            first, self._used = key_kernels.enter_keys(
                self._table, self._used, lows, highs, marks, first, ordinal
            )
            if first < len(marks):
                self._grow()

    def mark_winners(self, marks: Marks) -> None:
        """Mark the last record of each key."""
        key_kernels.mark_winners(self._table, marks)

    def pack(self, marks: Marks, range_count: int) -> list[NDArray[np.uint64]]:
        """Return the keys in blocks by range of their hash, as `KeyWinners` takes them."""
        counts = np.zeros(range_count, np.int64)
        key_kernels.count_entries(self._table, range_count, counts)
        ends = np.cumsum(counts) - counts
        entries = np.empty((self._used, 2), np.uint64)
        key_kernels.pack_entries(self._table, marks, range_count, ends, entries)
        return np.split(entries, ends[:-1])

    def _grow(self) -> None:
        capacity = len(self._table)
        factor = 4 if 4 * capacity <= _SMALL_CAPACITY else 2
        larger = np.zeros((factor * capacity, 2), np.uint64)
        key_kernels.move_entries(self._table, larger)
        self._table = larger
