"""A table of keys, each with the number of its last record; one thread's at a time.

A key is known by 96 bits of its SipHash-128 under the pass's random key. With 20 million keys the
chance that any two share them is about 3 in 10^15, and nobody can make up keys that do.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels, key_kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.hash_kernels import MAX_WORDS

Marks = NDArray[np.uint8]

_FIRST_CAPACITY: Final = 1 << 16
_FIRST_BATCH_RECORDS: Final = 1016  # Not a power of two, or rows would share their cache lines.


@dataclass(slots=True)
class Progress:
    """How far a chunk is entered."""

    number: int = 0  # of the next batch
    checked: int = 0  # batches whose CRC was
    marked: int = 0  # records
    crc: int = 0  # of the bytes that were checked


class KeyTable:
    """Takes the keys of batches, in any order: what counts is the number of a record."""

    def __init__(self, hash_key: bytes) -> None:
        # As numpy's own type, or numba would take a large one for a float.
        self._key0: Any = np.uint64(int.from_bytes(hash_key[:8], "little"))
        self._key1: Any = np.uint64(int.from_bytes(hash_key[8:], "little"))
        self._table = np.zeros((_FIRST_CAPACITY, 2), np.uint64)
        self._used = 0
        self._keys = np.empty((0, 2), np.int64)

    def check_and_enter(self, chunk: Chunk, progress: Progress, marks: Marks, ordinal: int) -> int:
        """Check batches, and enter the keys of data batches, from where `progress` says.

        `marks` begins with the record of number `ordinal`. Return why it stopped: `kernels.AT_END`,
        DAMAGED, REFUSED or COMPRESSED.
        """
        self._make_room(chunk.batches)
        while True:
            crc: Any = np.uint64(progress.crc)
            number, checked, crc, self._used, marked, why = key_kernels.check_and_index_keys(
                chunk.data,
                chunk.batches,
                chunk.modes,
                progress.number,
                progress.checked,
                crc,
                self._key0,
                self._key1,
                self._table,
                self._used,
                marks,
                progress.marked,
                ordinal,
                self._keys,
                self._words,
                self._hashes,
            )
            progress.number, progress.checked, progress.marked = number, checked, marked
            progress.crc = int(crc)
            if why != kernels.FULL:
                return int(why)
            self._grow()

    def enter_unpacked(
        self, data: Any, batches: Any, modes: Any, progress: Progress, marks: Marks, ordinal: int
    ) -> int:
        """Enter the keys of batches that were checked, and then unpacked; return why it stopped."""
        self._make_room(batches)
        while True:
            progress.number, self._used, progress.marked, why = key_kernels.index_keys(
                data,
                batches,
                modes,
                progress.number,
                len(batches),
                True,
                self._key0,
                self._key1,
                self._table,
                self._used,
                marks,
                progress.marked,
                ordinal,
                self._keys,
                self._words,
                self._hashes,
            )
            if why != kernels.FULL:
                return int(why)
            self._grow()

    def absorb(self, other: "KeyTable") -> None:
        """Take in all keys of another table."""
        while self._used + other._used > 3 * len(self._table) // 4:
            self._grow()
        self._used += key_kernels.move_entries(other._table, self._table)

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

    def _make_room(self, batches: Any) -> None:
        """Make scratch room for the largest batch."""
        largest = int(batches["record_count"].max(initial=_FIRST_BATCH_RECORDS))
        if largest <= len(self._keys):
            return
        self._keys = np.empty((largest, 2), np.int64)
        # Zeros, because columns of records without a key are hashed too, and thrown away.
        self._words = np.zeros((MAX_WORDS, largest), np.uint64)
        self._hashes = np.zeros((2, largest), np.uint64)

    def _grow(self) -> None:
        larger = np.zeros((2 * len(self._table), 2), np.uint64)
        key_kernels.move_entries(self._table, larger)
        self._table = larger
