"""Timestamp -> offset: an entry (t, o) says that whatever is newer than t lies after o."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import FileSystem
from siltstone.log.index_file import IndexFile
from siltstone.records.layout import NO_TIMESTAMP

_ENTRY: Final = struct.Struct(">qi")  # timestamp, offset - base offset
_TIMESTAMP: Final = 0
_OFFSET: Final = 1


class TimestampOffset(NamedTuple):
    """A timestamp and the last offset of the batch that first reached it."""

    timestamp_ms: int
    offset: int


def rising_entries(entries: Iterable[TimestampOffset]) -> list[TimestampOffset]:
    """Leave out what is not newer than all before it."""
    rising: list[TimestampOffset] = []
    for entry in entries:
        if entry.timestamp_ms > (rising[-1].timestamp_ms if rising else NO_TIMESTAMP):
            rising.append(entry)
    return rising


def pack_time_entries(
    base_offset: int, entries: Sequence[TimestampOffset], max_bytes: int
) -> bytes:
    """Return the bytes of an index with these entries; the newest has a place in any case."""
    capacity = max_bytes // _ENTRY.size
    if len(entries) > capacity:
        entries = [*entries[: max(capacity - 1, 0)], *entries[-1:]][:capacity]
    return b"".join(_ENTRY.pack(e.timestamp_ms, e.offset - base_offset) for e in entries)


class TimeIndex:
    """The sparse time index of one segment."""

    def __init__(
        self, fs: FileSystem, path: Path, base_offset: int, max_bytes: int, *, writable: bool
    ) -> None:
        self.file = IndexFile(fs, path, _ENTRY, max_bytes, writable=writable)
        self.base_offset = base_offset
        self._appended: TimestampOffset | None = None  # the newest, once this index has grown

    @property
    def is_full(self) -> bool:
        """Say whether the segment must roll: the last slot is kept for its final entry."""
        return self.file.count >= self.file.capacity - 1

    @property
    def last(self) -> TimestampOffset:
        """The newest entry, or "no timestamp" at the base offset."""
        if self._appended is not None:
            return self._appended
        if not self.file.count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.get(self.file.count - 1)

    def get(self, slot: int) -> TimestampOffset:
        """Return one entry."""
        timestamp_ms, relative_offset = self.file.get(slot)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def entries(self) -> list[TimestampOffset]:
        """Return all entries."""
        return [self.get(slot) for slot in range(self.file.count)]

    def maybe_append(self, entry: TimestampOffset, *, final: bool = False) -> None:
        """Add an entry if it is newer than the last; `final` may take the last slot."""
        if entry is self._appended:
            return  # The newest timestamp has not changed since, as in most appends.
        last = self.last
        if entry.timestamp_ms <= last.timestamp_ms or (self.is_full and not final):
            return
        if self.file.count and entry.offset < last.offset:
            raise CorruptIndexError(
                self.file.path, f"offset {entry.offset} after {last.offset}: entries must rise"
            )
        self.file.append(entry.timestamp_ms, entry.offset - self.base_offset)
        self._appended = entry

    def replace(self, entries: Sequence[TimestampOffset]) -> None:
        """Put entries in the place of all, leaving out those that are not newer than the last."""
        self._appended = None
        rising = rising_entries(entries)
        self.file.replace(pack_time_entries(self.base_offset, rising, self.file.max_bytes))

    def find(self, target_ms: int) -> TimestampOffset:
        """Return the greatest entry at or below a time, else "no timestamp" at the base offset."""
        slot = self.file.count_below(_TIMESTAMP, target_ms + 1)
        return self.get(slot - 1) if slot else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def clear(self) -> None:
        """Drop all entries."""
        self._appended = None
        self.file.truncate(0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above an offset."""
        self._appended = None
        self.file.truncate(self.file.count_below(_OFFSET, offset - self.base_offset))

    def check_ends(self) -> None:
        """Raise CorruptIndexError unless the first and the last entry rise."""
        if not self.file.count:
            return
        first, last = self.get(0), self.last
        if first.timestamp_ms > last.timestamp_ms or not (
            self.base_offset <= first.offset <= last.offset
        ):
            raise CorruptIndexError(self.file.path, f"entries from {first} to {last} do not rise")
