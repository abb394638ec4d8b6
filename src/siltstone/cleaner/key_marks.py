"""Which record is the last one of its key: tables over all keys of a pass, and a byte per record.

Chunks may be entered by several threads, each with a table of its own; in the end one table takes
in the others.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.explaining import explain, explain_crc
from siltstone.cleaner.key_table import KeyTable, Marks, Progress
from siltstone.cleaner.unpacking import is_compressed, unpack
from siltstone.errors import CleaningError
from siltstone.log.filesystem import File

_MAX_RECORDS: Final = 2**32 - 2  # a record's number must fit 32 bits
_MAX_PACKED_RECORDS: Final = 2**31  # and leave one of them, where it says if it is a tombstone
_NO_MARKS: Final = np.empty(0, np.uint8)


class Reserved(NamedTuple):
    """The numbers of the records of one chunk."""

    slot: int  # of the chunk
    ordinal: int  # of its first record in a data batch
    record_count: int


class KeyMarks:
    """Marks for the records of a pass, in the order in which they were given their numbers."""

    def __init__(self, hash_key: bytes) -> None:
        self.entered = 0
        self._hash_key = hash_key
        self._idle: list[KeyTable] = []
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
            table = self._idle.pop()
        except IndexError:
            table = KeyTable(self._hash_key)
        progress = Progress()
        while progress.number < len(chunk.batches):
            why = table.check_and_enter(chunk, progress, marks, ordinal)
            if why == kernels.COMPRESSED:
                why = _enter_compressed(table, file, chunk, progress, marks, ordinal)
            if why == kernels.DAMAGED:
                explain_crc(file, chunk, progress.number)
            if why == kernels.REFUSED:
                explain(file, chunk, progress.number)
        self._idle.append(table)
        return progress.crc

    def mark_winners(self) -> Marks:
        """Return all marks with the last record of each key, now that all are entered."""
        marks = self._join_marks()
        self._one_table().mark_winners(marks)
        return marks

    def pack(self, range_count: int) -> list[NDArray[np.uint64]]:
        """Return the keys in blocks by range of their hash, as `KeyWinners` takes them."""
        if self.entered > _MAX_PACKED_RECORDS:
            raise CleaningError(f"{self.entered} records are too many for one slice")
        return self._one_table().pack(self._join_marks(), range_count)

    def keyless_count(self) -> int:
        """Count the records without a key."""
        return sum(int(np.count_nonzero(part & kernels.KEYLESS)) for part in self._parts)

    def _join_marks(self) -> Marks:
        if len(self._parts) != 1:
            self._parts = [np.concatenate([_NO_MARKS, *self._parts])]
        return self._parts[0]

    def _one_table(self) -> KeyTable:
        if not self._idle:
            self._idle.append(KeyTable(self._hash_key))
        while len(self._idle) > 1:
            self._idle[0].absorb(self._idle.pop())
        return self._idle[0]


def _enter_compressed(
    table: KeyTable, file: File, chunk: Chunk, progress: Progress, marks: Marks, ordinal: int
) -> int:
    """Enter compressed batches, as far as they were checked; return why it stopped."""
    first, stop = progress.number, progress.checked
    plain = np.flatnonzero(~is_compressed(chunk.batches) & (chunk.modes == kernels.DATA))
    following = plain[np.searchsorted(plain, first) :]
    if len(following):
        stop = min(stop, int(following[0]))
    numbers = first + np.flatnonzero(chunk.modes[first:stop] == kernels.DATA)
    data, unpacked, count = unpack(file, chunk, numbers)
    if count < len(numbers):
        stop = int(numbers[count])
    return table.enter_unpacked(data, unpacked[:stop], chunk.modes, progress, marks, ordinal)
