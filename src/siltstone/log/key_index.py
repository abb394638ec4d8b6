"""Key -> last record of it, for one segment or the beginning of one: a file of our own.

Hashes are sorted and cut into blocks; the first hash of each block and the block's checksum stand
before them, under a checksum of their own. So a lookup reads one block, and nothing unchecked. The
hash only leads to a batch: whether the key is there is for the batch to say.

An index speaks of the bytes that it was made from. It remembers where a few of the batches began
and what their headers were, and is no use once one of them has changed: nobody need tell it that
another cleaner has replaced the segment. The layout is in docs/key-index.md.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import File
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.siphash import siphash128_low

Uint64s = NDArray[np.uint64]
Uint32s = NDArray[np.uint32]
Int64s = NDArray[np.int64]

BLOCK_ENTRIES: Final = 256
ENTRY_DTYPE: Final = np.dtype(
    [("hash", "<u8"), ("relative_offset", "<u4"), ("position", "<u4")]
)  # of the record, and of the batch that it is in

_MAGIC: Final = b"SILTKEYS"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sIIqqqq16sIIII")
_SAMPLES: Final = 16


class KeyPosition(NamedTuple):
    """Where a record with the right hash is."""

    offset: int
    position: int  # of its batch


class IndexedRange(NamedTuple):
    """What an index was made from."""

    base_offset: int  # of the segment
    covered_bytes: int  # from the start of its log file
    end_offset: int  # after the last batch in them


def pack_key_index(
    file: File,
    covered: IndexedRange,
    hash_key: bytes,
    entries: NDArray[np.void],
    positions: Int64s,
) -> bytes:
    """Return the bytes of an index; `positions` are those of all batches that it covers."""
    entries = entries[np.lexsort((entries["relative_offset"], entries["hash"]))]
    picked = np.unique(np.linspace(0, len(positions) - 1, _SAMPLES).astype(np.int64))
    samples = positions[picked] if len(positions) else positions
    blocks = [
        entries[at : at + BLOCK_ENTRIES].tobytes() for at in range(0, len(entries), BLOCK_ENTRIES)
    ]
    tables = b"".join(
        (
            samples.astype("<i8").tobytes(),
            entries["hash"][::BLOCK_ENTRIES].astype("<u8").tobytes(),
            np.array([crc32c(block) for block in blocks], "<u4").tobytes(),
        )
    )
    fields = (
        *(_MAGIC, _VERSION, BLOCK_ENTRIES, *covered, len(entries), hash_key),
        *(len(samples), _sign_samples(file, samples), crc32c(tables)),
    )
    header_crc = crc32c(_HEADER.pack(*fields, 0)[:-4])
    return b"".join((_HEADER.pack(*fields, header_crc), tables, *blocks))


class KeyIndex:
    """An index that was read; every part of it is checked before it is believed."""

    def __init__(self, path: Path, data: bytes | mmap.mmap) -> None:
        self.path = path
        self._data = data
        if len(data) < _HEADER.size:
            raise CorruptIndexError(path, f"{len(data)} bytes are too few for a header")
        header = data[: _HEADER.size]
        fields = _HEADER.unpack(header)
        if fields[0] != _MAGIC or fields[1] != _VERSION or fields[2] != BLOCK_ENTRIES:
            raise CorruptIndexError(path, "is of another format")
        if crc32c(header[:-4]) != fields[-1]:
            raise CorruptIndexError(path, "its header fails the checksum")
        self.covered = IndexedRange(*fields[3:6])
        self.entry_count: int = fields[6]
        self.hash_key: bytes = fields[7]
        sample_count, self._samples_crc, tables_crc = fields[8:11]
        block_count = -(-self.entry_count // BLOCK_ENTRIES)
        fences_at = _HEADER.size + 8 * sample_count
        crcs_at = fences_at + 8 * block_count
        self._entries_at = crcs_at + 4 * block_count
        if len(data) != self._entries_at + self.entry_count * ENTRY_DTYPE.itemsize:
            raise CorruptIndexError(path, f"{len(data)} bytes are not what its header says")
        if crc32c(data[_HEADER.size : self._entries_at]) != tables_crc:
            raise CorruptIndexError(path, "its tables fail the checksum")
        self._samples = np.frombuffer(data, "<i8", sample_count, _HEADER.size)
        self._fences = np.frombuffer(data, "<u8", block_count, fences_at)
        self._block_crcs = np.frombuffer(data, "<u4", block_count, crcs_at)

    @classmethod
    def open(cls, path: Path) -> "KeyIndex | None":
        """Map a file; None if there is none. Raise CorruptIndexError if it makes no sense."""
        try:
            with path.open("rb") as file:
                return cls(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:  # An empty file cannot be mapped.
            raise CorruptIndexError(path, str(error)) from error

    def is_about(self, file: File) -> bool:
        """Say whether a log file still begins with the bytes that the index was made from."""
        return (
            file.size_bytes() >= self.covered.covered_bytes
            and _sign_samples(file, self._samples) == self._samples_crc
        )

    def hash(self, key: bytes) -> int:
        """Hash a key as this index does."""
        return siphash128_low(key, self.hash_key)

    def find(self, hashed: int) -> Iterator[KeyPosition]:
        """Yield the records whose key has this hash, last one first."""
        wanted = np.uint64(hashed)
        first = max(int(np.searchsorted(self._fences, wanted, "left")) - 1, 0)
        stop = int(np.searchsorted(self._fences, wanted, "right"))
        for number in reversed(range(first, stop)):
            block = self._block(number)
            hashes = block["hash"]
            low = int(np.searchsorted(hashes, wanted, "left"))
            high = int(np.searchsorted(hashes, wanted, "right"))
            for slot in reversed(range(low, high)):
                yield KeyPosition(
                    self.covered.base_offset + int(block["relative_offset"][slot]),
                    int(block["position"][slot]),
                )

    def _block(self, number: int) -> NDArray[np.void]:
        start = self._entries_at + number * BLOCK_ENTRIES * ENTRY_DTYPE.itemsize
        data = self._data[start : start + BLOCK_ENTRIES * ENTRY_DTYPE.itemsize]
        if crc32c(data) != int(self._block_crcs[number]):
            raise CorruptIndexError(self.path, f"block {number} fails the checksum")
        return np.frombuffer(data, ENTRY_DTYPE)


def _sign_samples(file: File, positions: Int64s) -> int:
    crc = 0
    for position in positions.tolist():
        crc = crc32c(file.read(position, HEADER_SIZE), crc)
    return crc
