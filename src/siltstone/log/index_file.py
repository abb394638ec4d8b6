"""Fixed-size entries in a file: what the offset index and the time index have in common.

While its segment is active the file is as long as it may ever get (zeros to the end, as Kafka makes
it) and the entries are mirrored in memory. `trim` ends that: the file is cut to its entries, and
only the indexes that were looked at last are kept in memory, so that old segments cost none.

Opening does no I/O. An index is only a hint about the log beside it: deleting one is always safe, a
damaged one is a `CorruptIndexError`, and recovery writes both anew.
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import File, FileSystem

# Of segments that are not active; a segment of 1 GB has an index of half a megabyte.
_CACHED_INDEXES: Final = 64

# Entries are written in blocks: an append should cost one write, and whoever reads the file without
# the latest of them only reads more of the log.
_WRITE_BYTES: Final = 512


class IndexFile:
    """An append-only array of packed entries; the caller keeps them in order."""

    def __init__(
        self, fs: FileSystem, path: Path, entry: struct.Struct, max_bytes: int, *, writable: bool
    ) -> None:
        self.path = path
        self.entry_bytes = entry.size
        self.max_bytes = max_bytes
        self.capacity = max_bytes // entry.size
        self._fs = fs
        self._entry = entry
        self._writable = writable
        self._file: File | None = None
        # A flush comes without the log's lock, beside appends and truncations.
        self._writing = threading.Lock()
        self._mirror: bytearray | None = None  # all entries, while the index grows
        self._written_bytes = 0  # of the mirror
        self._count: int | None = None  # unknown until somebody looks

    @property
    def count(self) -> int:
        """How many entries there are."""
        if self._count is None:
            self._count = self._count_entries()
        return self._count

    @property
    def size_bytes(self) -> int:
        """Bytes taken by entries, without the zeros after them."""
        return self.count * self.entry_bytes

    def get(self, slot: int) -> tuple[Any, ...]:
        """Return the fields of one entry."""
        if self._mirror is not None:
            return self._entry.unpack_from(self._mirror, slot * self.entry_bytes)
        cached = _cache.get(self)
        if (slot + 1) * self.entry_bytes > len(cached):
            raise CorruptIndexError(self.path, f"entry {slot} of {self._count} is missing")
        return self._entry.unpack_from(cached, slot * self.entry_bytes)

    def count_below(self, field: int, limit: int) -> int:
        """Count the entries in front of the first whose field, by number, is not below a limit."""
        entries = _cache.get(self) if self._mirror is None else self._mirror
        unpack_from, entry_bytes = self._entry.unpack_from, self.entry_bytes
        low, high = 0, min(self.count, len(entries) // entry_bytes)
        while low < high:
            middle = (low + high) // 2
            if unpack_from(entries, middle * entry_bytes)[field] < limit:
                low = middle + 1
            else:
                high = middle
        return low

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for slot in range(self.count):
            yield self.get(slot)

    def append(self, *fields: int) -> None:
        """Add an entry; the caller has checked order and room."""
        if self._mirror is None:
            self._start_growing()
        assert self._mirror is not None
        self._mirror += self._entry.pack(*fields)
        self._count = len(self._mirror) // self.entry_bytes
        if len(self._mirror) - self._written_bytes >= _WRITE_BYTES:
            self._write_pending()

    def replace(self, packed: bytes) -> None:
        """Put other entries, packed, in the place of all.

        The file ends with them, as after `trim`: to Kafka every zero behind them is an entry.
        """
        file = self._open(create=True)
        _cache.forget(self)
        self._mirror = bytearray(packed)
        self._count = len(packed) // self.entry_bytes
        if self._writable and file is not None:
            self._fs.truncate(file, 0)
            self._fs.write(file, 0, [packed])
            self._mirror = None

    def truncate(self, count: int) -> None:
        """Drop all entries from slot `count` on; zeros take their place in the file."""
        if self._mirror is None:
            self._start_growing()
        assert self._mirror is not None
        _cache.forget(self)
        with self._writing:
            del self._mirror[count * self.entry_bytes :]
            self._written_bytes = min(self._written_bytes, len(self._mirror))
            self._count = count
            if self._writable:
                assert self._file is not None
                self._fs.truncate(self._file, count * self.entry_bytes)
                self._fs.truncate(self._file, max(count, self.capacity) * self.entry_bytes)

    def trim(self) -> None:
        """Cut the file to its entries; the segment is active no more, or the log closes."""
        count = self.count
        self._write_pending()
        if self._writable and (file := self._open(create=True)) is not None:
            self._fs.truncate(file, count * self.entry_bytes)
        self._mirror = None
        _cache.forget(self)

    def flush(self) -> None:
        """Make the entries durable, whoever has written them."""
        self._write_pending()
        if self._writable and (file := self._open()) is not None:
            self._fs.fsync(file)

    def exists(self) -> bool:
        """Say whether there is a file."""
        return self._file is not None or self.path.exists()

    def moved_to(self, path: Path) -> None:
        """Learn that the file was renamed."""
        self.path = path
        if self._file is not None:
            self._file.path = path

    def close(self) -> None:
        """Let go of the file; what only a reader knows stays in memory."""
        if self._writable:
            self._mirror = None
        self._file = None
        _cache.forget(self)

    def read_all(self) -> bytes:
        """Read all entries from the file."""
        file = self._open()
        return b"" if file is None else file.read(0, self.size_bytes)

    def _write_pending(self) -> None:
        with self._writing:
            mirror = self._mirror
            if mirror is None or not self._writable or len(mirror) <= self._written_bytes:
                return
            assert self._file is not None
            pending = bytes(mirror[self._written_bytes :])
            self._fs.write(self._file, self._written_bytes, [pending])
            self._written_bytes += len(pending)

    def _open(self, *, create: bool = False) -> File | None:
        if self._file is None:
            try:
                self._file = self._fs.open(
                    self.path, create=create and self._writable, writable=self._writable
                )
            except FileNotFoundError:
                return None
        return self._file

    def _start_growing(self) -> None:
        size = self.size_bytes
        file = self._open(create=True)
        self._mirror = bytearray(b"" if file is None else file.read(0, size))
        if len(self._mirror) < size:
            raise CorruptIndexError(self.path, f"{size} bytes expected, {len(self._mirror)} found")
        self._written_bytes = size
        if file is not None and self._writable:
            # There may be more entries than fit: the setting may have been lowered since.
            self._fs.truncate(file, max(size, self.capacity * self.entry_bytes))

    def _count_entries(self) -> int:
        """Count the entries before the zeros that a crash, or a writer at work, leaves behind."""
        file = self._open()
        if file is None:
            return 0
        size = file.size_bytes()
        if size % self.entry_bytes:
            raise CorruptIndexError(
                self.path, f"{size} bytes are no multiple of {self.entry_bytes}"
            )
        if size == self.entry_bytes:
            return 1  # It may be all zeros: a first record of the very start of 1970.
        zeros = bytes(self.entry_bytes)
        low, high = 0, size // self.entry_bytes
        while low < high:
            middle = (low + high) // 2
            if file.read(middle * self.entry_bytes, self.entry_bytes) == zeros:
                high = middle
            else:
                low = middle + 1
        return low


class _EntryCache:
    """The entries of the indexes that were looked at last, for all logs of the process together."""

    def __init__(self) -> None:
        self._entries: OrderedDict[IndexFile, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, index: IndexFile) -> bytes:
        """Return the entries of an index that does not grow, from its file the first time."""
        entries = self._entries.get(index)
        if entries is None:
            entries = index.read_all()
            with self._lock:
                self._entries[index] = entries
                while len(self._entries) > _CACHED_INDEXES:
                    self._entries.popitem(last=False)
        return entries

    def forget(self, index: IndexFile) -> None:
        """Let go of what an index held before it changed."""
        with self._lock:
            self._entries.pop(index, None)


_cache: Final = _EntryCache()
