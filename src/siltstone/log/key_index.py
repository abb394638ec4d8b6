"""Key -> last record of it, for one segment or the beginning of one: a file of our own.

Hashes are sorted and cut into blocks; the first hash of each block and the block's checksum stand
before them, under a checksum of their own. So a lookup reads one block, and nothing unchecked. The
hash only leads to a batch: whether the key is there is for the batch to say.

An index speaks of the bytes that it was made from. It remembers where a few of the batches began
and what their headers were, and is no use once one of them has changed: nobody need tell it that
another cleaner has replaced the segment. The layout is in docs/key-index.md.
"""

import contextlib
import mmap
import struct
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from siltstone.errors import CorruptIndexError, LogDirOfflineError
from siltstone.lazy import LazyModule
from siltstone.log import filenames
from siltstone.log.filesystem import File, FileSystem
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.siphash import siphash128_low

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")  # A lookup does without.

BLOCK_ENTRIES: Final = 256
ENTRY_BYTES: Final = 16

_MAGIC: Final = b"SILTKEYS"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sIIqqqq16sIIII")
_SAMPLES: Final = 16
_BLOCK_BYTES: Final = BLOCK_ENTRIES * ENTRY_BYTES
_LOW_BITS: Final = 0xFFFFFFFF


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
    entries: "NDArray[np.uint64]",
    positions: "NDArray[np.int64]",
) -> bytes:
    """Return the bytes of an index; `positions` are those of all batches that it covers.

    `entries` are rows of two words, by hash and offset: the hash, and the relative offset with the
    position above it.
    """
    picked = np.unique(np.linspace(0, len(positions) - 1, _SAMPLES).astype(np.int64))
    samples = positions[picked] if len(positions) else positions
    rows = entries.astype("<u8", copy=False).tobytes()
    blocks = [memoryview(rows)[at : at + _BLOCK_BYTES] for at in range(0, len(rows), _BLOCK_BYTES)]
    tables = b"".join(
        (
            samples.astype("<i8").tobytes(),
            entries[::BLOCK_ENTRIES, 0].astype("<u8").tobytes(),
            np.array([crc32c(block) for block in blocks], "<u4").tobytes(),
        )
    )
    fields = (
        *(_MAGIC, _VERSION, BLOCK_ENTRIES, *covered, len(entries), hash_key),
        *(len(samples), _sign_samples(file, samples.tolist()), crc32c(tables)),
    )
    header_crc = crc32c(_HEADER.pack(*fields, 0)[:-4])
    return b"".join((_HEADER.pack(*fields, header_crc), tables, rows))


def put_key_index(fs: FileSystem, directory: Path, base_offset: int, data: bytes) -> None:
    """Put an index beside its segment, in the place of an earlier one.

    Not durable: what a loss of power leaves of it fails its checksum.
    """
    temporary = directory / filenames.pass_file_name(
        "keys", uuid.uuid4().hex, base_offset, filenames.KEY_INDEX
    )
    try:
        fs.write_file(temporary, data, durable=False)
        fs.rename(temporary, filenames.key_index_path(directory, base_offset))
    except BaseException:
        with contextlib.suppress(LogDirOfflineError):
            fs.unlink(temporary)
        raise


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
        if len(data) != self._entries_at + self.entry_count * ENTRY_BYTES:
            raise CorruptIndexError(path, f"{len(data)} bytes are not what its header says")
        if crc32c(data[_HEADER.size : self._entries_at]) != tables_crc:
            raise CorruptIndexError(path, "its tables fail the checksum")
        tables = memoryview(data)
        # As they lie: this is for processors that are little-endian.
        self._samples = tables[_HEADER.size : fences_at].cast("q")
        self._fences = tables[fences_at:crcs_at].cast("Q")
        self._block_crcs = tables[crcs_at : self._entries_at].cast("I")

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
            and _sign_samples(file, self._samples.tolist()) == self._samples_crc
        )

    def hash(self, key: bytes) -> int:
        """Hash a key as this index does."""
        return siphash128_low(key, self.hash_key)

    def find(self, hashed: int) -> Iterator[KeyPosition]:
        """Yield the records whose key has this hash, last one first."""
        first = max(bisect_left(self._fences, hashed) - 1, 0)
        stop = bisect_right(self._fences, hashed)
        for number in reversed(range(first, stop)):
            words = self._block(number)
            hashes = words[::2].tolist()
            for slot in reversed(range(bisect_left(hashes, hashed), bisect_right(hashes, hashed))):
                place = words[2 * slot + 1]
                yield KeyPosition(self.covered.base_offset + (place & _LOW_BITS), place >> 32)

    def _block(self, number: int) -> "memoryview[int]":
        start = self._entries_at + number * _BLOCK_BYTES
        data = self._data[start : start + _BLOCK_BYTES]
        if crc32c(data) != self._block_crcs[number]:
            raise CorruptIndexError(self.path, f"block {number} fails the checksum")
        return memoryview(data).cast("Q")


def _sign_samples(file: File, positions: Sequence[int]) -> int:
    crc = 0
    for position in positions:
        crc = crc32c(file.read(position, HEADER_SIZE), crc)
    return crc
