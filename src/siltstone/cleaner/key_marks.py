"""Which record is the last one of its key: a table over all keys of a pass, and a byte per record.

Several threads may check and hash chunks at a time; one at a time enters what was hashed, which is
the smaller part of the work. The others do not wait for it: they leave what they have, and go on.
"""

import threading
from collections import deque
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.key_hasher import KeyHasher, Marks
from siltstone.cleaner.key_table import KeyTable
from siltstone.errors import CleaningError
from siltstone.log.filesystem import File

_MAX_RECORDS: Final = 2**32 - 2  # a record's number must fit 32 bits
_MAX_PACKED_RECORDS: Final = 2**31  # and leave one of them, where it says if it is a tombstone
_MAX_HASHED: Final = 4  # chunks that wait to be entered
_NO_MARKS: Final = np.empty(0, np.uint8)


class Reserved(NamedTuple):
    """The numbers of the records of one chunk."""

    slot: int  # of the chunk
    ordinal: int  # of its first record in a data batch
    record_count: int


class _Hashed(NamedTuple):
    """A chunk that is to be entered."""

    hasher: KeyHasher
    marks: Marks
    ordinal: int


class KeyMarks:
    """Marks for the records of a pass, in the order in which they were given their numbers."""

    def __init__(self, hash_key: bytes) -> None:
        self.entered = 0
        self._hash_key = hash_key
        self._table = KeyTable()
        self._lock = threading.Lock()  # of the table
        self._hashed: deque[_Hashed] = deque()
        self._idle: list[KeyHasher] = []
        self._parts: list[Marks] = []

    def enter_chunk(self, file: File, chunk: Chunk) -> int:
        """Check the next chunk, and enter the keys of its data batches; return its CRC."""
        return self.enter_reserved(file, chunk, self.reserve(chunk))

    def reserve(self, chunk: Chunk) -> Reserved:
        """Give the records of the next chunk their numbers; nothing needs to be checked yet."""
        counts = chunk.batches["record_count"][chunk.modes == kernels.DATA]
        reserved = Reserved(len(self._parts), self.entered, int(counts.sum(dtype=np.int64)))
        self.entered += reserved.record_count
        self._parts.append(_NO_MARKS)
        return reserved

    def enter_reserved(self, file: File, chunk: Chunk, reserved: Reserved) -> int:
        """Do so with a chunk whose records have their numbers; any thread may."""
        ordinal = reserved.ordinal
        if ordinal + reserved.record_count > _MAX_RECORDS:
            raise CleaningError(f"more than {_MAX_RECORDS} records are too many for one task")
        marks = np.empty(reserved.record_count, np.uint8)
        self._parts[reserved.slot] = marks
        try:
            hasher = self._idle.pop()
        except IndexError:
            hasher = KeyHasher(self._hash_key)
        crc = hasher.hash_chunk(file, chunk, marks)
        self._hashed.append(_Hashed(hasher, marks, ordinal))
        self._enter_hashed()
        return crc

    def _enter_hashed(self) -> None:
        """Enter what was hashed, also by others, unless somebody is about it.

        Whoever had the table looks once more after letting go of it: what came too late for the one
        and too early for the other would be left.
        """
        while self._hashed and self._lock.acquire(blocking=len(self._hashed) > _MAX_HASHED):
            try:
                while self._hashed:
                    hasher, marks, ordinal = self._hashed.popleft()
                    self._table.enter(hasher.lows, hasher.highs, marks, ordinal)
                    self._idle.append(hasher)
            finally:
                self._lock.release()

    def mark_winners(self) -> Marks:
        """Return all marks with the last record of each key, now that all are entered."""
        marks = self._join_marks()
        self._table.mark_winners(marks)
        return marks

    def pack(self, range_count: int) -> list[NDArray[np.uint64]]:
        """Return the keys in blocks by range of their hash, as `KeyWinners` takes them."""
        if self.entered > _MAX_PACKED_RECORDS:
            raise CleaningError(f"{self.entered} records are too many for one slice")
        return self._table.pack(self._join_marks(), range_count)

    def keyless_count(self) -> int:
        """Count the records without a key."""
        return sum(int(np.count_nonzero(part & kernels.KEYLESS)) for part in self._parts)

    def _join_marks(self) -> Marks:
        if len(self._parts) != 1:
            self._parts = [np.concatenate([_NO_MARKS, *self._parts])]
        return self._parts[0]
