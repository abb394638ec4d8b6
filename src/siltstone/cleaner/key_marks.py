"""Which record is the last one of its key: a hash table over all keys of a pass, and a byte each.

A key is known by 96 bits of its SipHash-128 under the pass's random key. With 20 million keys the
chance that any two share them is about 3 in 10^15, and nobody can make up keys that do.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.errors import CleaningError

_FIRST_CAPACITY: Final = 1 << 16
_GROWTH: Final = 4
_FIRST_BATCH_RECORDS: Final = 1024
_MAX_RECORDS: Final = 2**32 - 2  # a record's number must fit 32 bits
_MAX_PACKED_RECORDS: Final = 2**31  # and leave one of them, where it says if it is a tombstone


class KeyMarks:
    """Marks for the records of a pass, in the order in which they are entered."""

    def __init__(self, hash_key: bytes) -> None:
        self.marks: NDArray[np.uint8] = np.empty(_FIRST_CAPACITY, np.uint8)
        self.entered = 0
        # As numpy's own type, or numba would take a large one for a float.
        self._key0: Any = np.uint64(int.from_bytes(hash_key[:8], "little"))
        self._key1: Any = np.uint64(int.from_bytes(hash_key[8:], "little"))
        self._table = np.zeros((_FIRST_CAPACITY, 2), np.uint64)
        self._used = 0
        self._make_room(_FIRST_BATCH_RECORDS)

    def enter(
        self, data: Any, batches: Any, modes: Any, first: int, *, is_unpacked: bool = False
    ) -> tuple[int, int]:
        """Enter the keys of data batches from number `first` on, also of compressed if unpacked.

        Return the number of the batch that it stopped at, and why: `kernels.AT_END`, REFUSED, or
        COMPRESSED.
        """
        counts = batches["record_count"]
        self._reserve(int(counts.sum()))
        largest = int(counts.max(initial=0))
        if largest > len(self._keys):
            self._make_room(largest)
        while True:
            first, self._used, self.entered, why = kernels.index_keys(
                data,
                batches,
                modes,
                first,
                is_unpacked,
                self._key0,
                self._key1,
                self._table,
                self._used,
                self.marks,
                self.entered,
                self._keys,
                self._words,
                self._states,
                self._hashes,
            )
            if why != kernels.FULL:
                return first, why
            self._grow()

    def pack(self, range_count: int) -> list[NDArray[np.uint64]]:
        """Return the keys in blocks by range of their hash, as `KeyWinners` takes them."""
        if self.entered > _MAX_PACKED_RECORDS:
            raise CleaningError(f"{self.entered} records are too many for one slice")
        counts = np.zeros(range_count, np.int64)
        kernels.count_entries(self._table, range_count, counts)
        ends = np.cumsum(counts) - counts
        entries = np.empty((self._used, 2), np.uint64)
        kernels.pack_entries(self._table, self.marks, range_count, ends, entries)
        return np.split(entries, ends[:-1])

    def mark_winners(self) -> None:
        """Mark the last record of each key, now that all are entered."""
        kernels.mark_winners(self._table, self.marks)

    def keyless_count(self) -> int:
        """Count the records without a key."""
        return int(np.count_nonzero(self.marks[: self.entered] & kernels.KEYLESS))

    def _make_room(self, record_count: int) -> None:
        """Make scratch room for the largest batch."""
        self._keys = np.empty((record_count, 2), np.int64)
        # Zeros, because columns of records without a key are hashed too, and thrown away.
        self._words = np.zeros((kernels.MAX_WORDS, record_count), np.uint64)
        self._states = np.empty((4, record_count), np.uint64)
        self._hashes = np.zeros((2, record_count), np.uint64)

    def _reserve(self, record_count: int) -> None:
        needed = self.entered + record_count
        if needed > _MAX_RECORDS:
            raise CleaningError(f"{needed} records are too many for one task")
        if needed > len(self.marks):
            marks = np.empty(max(needed, 2 * len(self.marks)), np.uint8)
            marks[: self.entered] = self.marks[: self.entered]
            self.marks = marks

    def _grow(self) -> None:
        larger = np.zeros((self._table.shape[0] * _GROWTH, 2), np.uint64)
        kernels.move_entries(self._table, larger)
        self._table = larger
