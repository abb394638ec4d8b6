"""Checks the batches of a chunk and hashes their keys; one thread's at a time."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels, key_kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.explaining import explain, explain_crc
from siltstone.cleaner.hash_kernels import MAX_WORDS
from siltstone.cleaner.unpacking import Unpacker, is_compressed
from siltstone.log.filesystem import File

Marks = NDArray[np.uint8]
Hashes = NDArray[np.uint64]

_BATCH_RECORDS: Final = 1016  # Not a power of two, or rows would share their cache lines.


@dataclass(slots=True)
class _Progress:
    """How far a chunk is hashed."""

    number: int = 0  # of the next batch
    checked: int = 0  # batches whose CRC was
    done: int = 0  # records
    crc: int = 0  # of the bytes that were checked


class KeyHasher:
    """Hashes chunk after chunk into the same arrays."""

    def __init__(self, hash_key: bytes) -> None:
        # As numpy's own type, or numba would take a large one for a float.
        self._key0: Any = np.uint64(int.from_bytes(hash_key[:8], "little"))
        self._key1: Any = np.uint64(int.from_bytes(hash_key[8:], "little"))
        self._unpacker = Unpacker()
        self._keys = np.empty((2, 0), np.int64)
        self._words = np.empty((MAX_WORDS, 0), np.uint64)
        # Both halves of the hash of each record, valid until the next chunk.
        self.lows: Hashes = np.empty(0, np.uint64)
        self.highs: Hashes = np.empty(0, np.uint64)

    def hash_chunk(self, file: File, chunk: Chunk, marks: Marks) -> int:
        """Fill in the marks and the hashes of all records in data batches; return the CRC of all.

        Raise CorruptBatchError if a batch is not sound.
        """
        self._make_room(chunk, len(marks))
        progress = _Progress()
        while progress.number < len(chunk.batches):
            why = self._hash_plain(chunk, progress, marks)
            if why == kernels.COMPRESSED:
                why = self._hash_compressed(file, chunk, progress, marks)
            if why == kernels.DAMAGED:
                explain_crc(file, chunk, progress.number)
            if why == kernels.REFUSED:
                explain(file, chunk, progress.number)
        return progress.crc

    def _hash_plain(self, chunk: Chunk, progress: _Progress, marks: Marks) -> int:
        """Check and hash batches up to the first compressed one; return why it stopped."""
        crc: Any = np.uint64(progress.crc)
        progress.number, progress.checked, crc, progress.done, why = (
            key_kernels.check_and_hash_keys(
                chunk.data,
                chunk.batches,
                chunk.modes,
                progress.number,
                progress.checked,
                crc,
                self._key0,
                self._key1,
                marks,
                self.lows,
                self.highs,
                progress.done,
                self._keys,
                self._words,
            )
        )
        progress.crc = int(crc)
        return int(why)

    def _hash_compressed(self, file: File, chunk: Chunk, progress: _Progress, marks: Marks) -> int:
        """Hash compressed batches, as far as they were checked; return why it stopped."""
        first, stop = progress.number, progress.checked
        plain = np.flatnonzero(~is_compressed(chunk.batches) & (chunk.modes == kernels.DATA))
        following = plain[np.searchsorted(plain, first) :]
        if len(following):
            stop = min(stop, int(following[0]))
        numbers = first + np.flatnonzero(chunk.modes[first:stop] == kernels.DATA)
        data, batches, count = self._unpacker.unpack(file, chunk, numbers)
        if count < len(numbers):
            stop = int(numbers[count])
        progress.number, progress.done, why = key_kernels.hash_keys(
            data,
            batches,
            chunk.modes,
            first,
            stop,
            True,
            self._key0,
            self._key1,
            marks,
            self.lows,
            self.highs,
            progress.done,
            self._keys,
            self._words,
        )
        return int(why)

    def _make_room(self, chunk: Chunk, record_count: int) -> None:
        if record_count > len(self.lows):
            # Zeros, because the hashes of records without a key are looked at, and not used.
            self.lows = np.zeros(record_count, np.uint64)
            self.highs = np.zeros(record_count, np.uint64)
        largest = int(chunk.batches["record_count"].max(initial=_BATCH_RECORDS))
        if largest > self._keys.shape[1]:
            self._keys = np.empty((2, largest), np.int64)
            # Zeros, because columns of records without a key are hashed too, and thrown away.
            self._words = np.zeros((MAX_WORDS, largest), np.uint64)
