"""The entries of a key index, collected from the batches of a segment that a pass has left.

It has no aborted records and each key once, so that every record gets an entry, and nothing need be
looked up to know which is the last of its key.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels as cleaner_kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.hash_kernels import MAX_WORDS
from siltstone.cleaner.key_indexing import kernels
from siltstone.cleaner.unpacking import Unpacker, is_compressed
from siltstone.log.filesystem import File
from siltstone.log.key_index import IndexedRange, pack_key_index

Entries = NDArray[np.uint64]  # rows of two words, as they lie in the file

_FIRST_CAPACITY: Final = 1 << 12
_FIRST_BATCH_RECORDS: Final = 1 << 8
_GROWTH: Final = 4
_ENTRIES_PER_BUCKET: Final = 4
_HASH_BITS: Final = 64


class KeyEntries:
    """The entries of one segment, in the order of its records until they are packed."""

    def __init__(self, base_offset: int, hash_key: bytes) -> None:
        self._base_offset = base_offset
        self._hash_key = hash_key
        self._end_offset = base_offset
        self._positions: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._entries: Entries = np.empty((_FIRST_CAPACITY, 2), np.uint64)
        self._count = 0
        self._unpacker = Unpacker()
        words = np.frombuffer(hash_key, "<u8").astype(np.uint64)
        # As numpy's own type, or numba would take a large one for a float.
        self._key0: Any = words[0]
        self._key1: Any = words[1]
        self._make_scratch(_FIRST_BATCH_RECORDS)

    def add(self, file: File, chunk: Chunk) -> None:
        """Take in the next batches of the segment, which are sound."""
        batches = chunk.batches
        places = batches["position"] + chunk.position
        self._positions.append(places)
        self._end_offset = int(batches["last_offset"][-1]) + 1
        number = 0
        while number < len(batches):
            number, why = self._collect(chunk.data, batches, places, number, is_unpacked=False)
            if why == cleaner_kernels.COMPRESSED:
                number = self._add_compressed(file, chunk, places, number)

    def pack(self, file: File, covered_bytes: int) -> bytes:
        """Return the bytes of the index of a segment that is complete."""
        covered = IndexedRange(self._base_offset, covered_bytes, self._end_offset)
        entries = sort_entries(self._entries[: self._count])
        positions = np.concatenate(self._positions)
        return pack_key_index(file, covered, self._hash_key, entries, positions)

    def _add_compressed(self, file: File, chunk: Chunk, places: Any, first: int) -> int:
        """Take in compressed batches from number `first` on; return the number to go on with."""
        is_plain = ~is_compressed(chunk.batches[first:])
        stop = first + int(np.argmax(is_plain)) if is_plain.any() else len(chunk.batches)
        numbers = np.arange(first, stop)
        data, table, count = self._unpacker.unpack(file, chunk, numbers)
        stop = first + count
        self._collect(data, table[:stop], places, first, is_unpacked=True)
        return stop

    def _collect(
        self, data: Any, batches: Any, places: Any, first: int, *, is_unpacked: bool
    ) -> tuple[int, int]:
        largest = int(batches["record_count"].max())
        if largest > len(self._keys):
            self._make_scratch(largest)
        while True:
            first, self._count, why = kernels.collect_keys(
                data,
                batches,
                places,
                first,
                is_unpacked,
                self._base_offset,
                self._key0,
                self._key1,
                self._entries,
                self._count,
                self._keys,
                self._words,
                self._hashes,
            )
            if why == cleaner_kernels.REFUSED:
                raise AssertionError(f"batch {first} was sound before")
            if why != kernels.FULL:
                return first, why
            self._make_room(int(batches["record_count"][first]))

    def _make_scratch(self, record_count: int) -> None:
        """Make room for the keys of the largest batch."""
        self._keys = np.empty((2, record_count), np.int64)
        self._words = np.empty((MAX_WORDS, record_count), np.uint64)
        self._hashes = np.empty((2, record_count), np.uint64)

    def _make_room(self, count: int) -> None:
        capacity = max(_GROWTH * len(self._entries), self._count + count)
        entries = np.empty((capacity, 2), np.uint64)
        entries[: self._count] = self._entries[: self._count]
        self._entries = entries


def sort_entries(entries: Entries) -> Entries:
    """Return the entries by hash and offset."""
    bits = (len(entries) // _ENTRIES_PER_BUCKET).bit_length() + 1
    found = np.empty_like(entries)
    ends = np.zeros(1 << bits, np.int64)
    kernels.sort_entries(entries, _HASH_BITS - bits, ends, found)
    return found
