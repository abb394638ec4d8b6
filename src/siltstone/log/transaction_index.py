"""The aborted transactions whose marker lies in one segment.

The file exists only once there is one. Entries are few, so all are kept in memory once read.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import File, FileSystem

_ENTRY: Final = struct.Struct(">hqqqq")  # version, then the fields of AbortedTxn
_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # right after the abort


def pack_aborted(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the bytes of an index with these entries."""
    return b"".join(_ENTRY.pack(_VERSION, *txn) for txn in entries)


class TransactionIndex:
    """The aborted transactions of one segment, in the order of their markers."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int, *, writable: bool) -> None:
        self.path = path
        self.base_offset = base_offset
        self._fs = fs
        self._writable = writable
        self._file: File | None = None
        self._entries: list[AbortedTxn] | None = None

    @property
    def entries(self) -> list[AbortedTxn]:
        """All entries, oldest marker first."""
        if self._entries is None:
            data = self._fs.read_file(self.path) or b""
            # A torn last entry is cut by not reading it; recovery writes it again.
            whole = len(data) - len(data) % _ENTRY.size
            self._entries = [AbortedTxn(*row[1:]) for row in _ENTRY.iter_unpack(data[:whole])]
        return self._entries

    def append(self, txn: AbortedTxn) -> None:
        """Add a transaction whose marker is above all others."""
        entries = self.entries
        if entries and txn.last_offset <= entries[-1].last_offset:
            raise CorruptIndexError(
                self.path, f"marker {txn.last_offset} after {entries[-1].last_offset}"
            )
        if self._writable:
            if self._file is None:
                self._file = self._fs.open(self.path, create=True)
            position = len(entries) * _ENTRY.size
            self._fs.write(self._file, position, [pack_aborted([txn])])
        entries.append(txn)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above an offset."""
        kept = [txn for txn in self.entries if txn.last_offset < offset]
        if len(kept) == len(self.entries) and kept:
            return
        self._entries = kept
        if self._writable and self.path.exists():
            if self._file is None:
                self._file = self._fs.open(self.path)
            self._fs.truncate(self._file, len(kept) * _ENTRY.size)

    def reset(self) -> None:
        """Drop all transactions, also those that make no sense in this segment."""
        self._entries = []
        if self._writable and self.path.exists():
            if self._file is None:
                self._file = self._fs.open(self.path)
            self._fs.truncate(self._file, 0)

    def check(self) -> None:
        """Raise CorruptIndexError if a marker lies before the segment."""
        for txn in self.entries:
            if txn.last_offset < self.base_offset:
                raise CorruptIndexError(
                    self.path, f"marker {txn.last_offset} before base offset {self.base_offset}"
                )

    def flush(self) -> None:
        """Make the entries durable, whoever has written them."""
        if self._file is None and self._writable and self.path.exists():
            self._file = self._fs.open(self.path)
        if self._file is not None:
            self._fs.fsync(self._file)

    def exists(self) -> bool:
        """Say whether there is a file."""
        return self.path.exists()

    def moved_to(self, path: Path) -> None:
        """Learn that the file was renamed."""
        self.path = path
        if self._file is not None:
            self._file.path = path

    def close(self) -> None:
        """Let go of the file."""
        self._file = None
