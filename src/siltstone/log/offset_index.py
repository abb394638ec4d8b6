"""Offset -> position in the log file, for every few kilobytes of a segment."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import FileSystem
from siltstone.log.index_file import IndexFile

_ENTRY: Final = struct.Struct(">ii")  # offset - base offset, position
_OFFSET: Final = 0
_POSITION: Final = 1


class OffsetPosition(NamedTuple):
    """A batch's last offset and where the batch begins."""

    offset: int
    position: int


def pack_offset_entries(
    base_offset: int, entries: Sequence[OffsetPosition], max_bytes: int
) -> bytes:
    """Return the bytes of an index with these entries, as many as there is room for."""
    capacity = max_bytes // _ENTRY.size
    return b"".join(_ENTRY.pack(e.offset - base_offset, e.position) for e in entries[:capacity])


class OffsetIndex:
    """The sparse offset index of one segment."""

    def __init__(
        self, fs: FileSystem, path: Path, base_offset: int, max_bytes: int, *, writable: bool
    ) -> None:
        self.file = IndexFile(fs, path, _ENTRY, max_bytes, writable=writable)
        self.base_offset = base_offset
        self._appended_offset: int | None = None  # the highest, once this index has grown

    @property
    def is_full(self) -> bool:
        """Say whether the segment must roll before the next entry."""
        return self.file.count >= self.file.capacity

    @property
    def last_offset(self) -> int:
        """The highest offset in the index, or the base offset."""
        if self._appended_offset is not None:
            return self._appended_offset
        return self.get(self.file.count - 1).offset if self.file.count else self.base_offset

    def get(self, slot: int) -> OffsetPosition:
        """Return one entry."""
        relative_offset, position = self.file.get(slot)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def entries(self) -> list[OffsetPosition]:
        """Return all entries."""
        return [self.get(slot) for slot in range(self.file.count)]

    def append(self, offset: int, position: int) -> None:
        """Add an entry above all others."""
        last_offset = self._appended_offset
        if last_offset is None and self.file.count:
            last_offset = self.last_offset
        if last_offset is not None and offset <= last_offset:
            raise CorruptIndexError(
                self.file.path, f"offset {offset} after {last_offset}: entries must rise"
            )
        self.file.append(offset - self.base_offset, position)
        self._appended_offset = offset

    def replace(self, entries: Sequence[OffsetPosition]) -> None:
        """Put entries that rise in the place of all."""
        self._appended_offset = None
        self.file.replace(pack_offset_entries(self.base_offset, entries, self.file.max_bytes))

    def find(self, target_offset: int) -> OffsetPosition:
        """Return the greatest entry at or below an offset, else the start of the segment.

        The batch with the offset begins at that position or later.
        """
        slot = self.file.count_below(_OFFSET, target_offset - self.base_offset + 1)
        return self.get(slot - 1) if slot else OffsetPosition(self.base_offset, 0)

    def find_from_position(self, position: int) -> OffsetPosition | None:
        """Return the first entry at or after a position, or None."""
        slot = self.file.count_below(_POSITION, position)
        return self.get(slot) if slot < self.file.count else None

    def find_before_position(self, position: int) -> OffsetPosition | None:
        """Return the last entry at or before a position, or None."""
        slot = self.file.count_below(_POSITION, position + 1)
        return self.get(slot - 1) if slot else None

    def clear(self) -> None:
        """Drop all entries."""
        self._appended_offset = None
        self.file.truncate(0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above an offset."""
        self._appended_offset = None
        self.file.truncate(self.file.count_below(_OFFSET, offset - self.base_offset))

    def check_ends(self, log_bytes: int) -> None:
        """Raise CorruptIndexError unless the first and last entry rise and point into the log.

        What lies between is held against the log at each look-up.
        """
        if not self.file.count:
            return
        first, last = self.get(0), self.get(self.file.count - 1)
        if not self.base_offset <= first.offset <= last.offset:
            raise CorruptIndexError(
                self.file.path, f"offsets {first.offset} to {last.offset} do not rise"
            )
        if not 0 <= first.position <= last.position < log_bytes:
            raise CorruptIndexError(
                self.file.path, f"positions {first.position} to {last.position} are not in the log"
            )
