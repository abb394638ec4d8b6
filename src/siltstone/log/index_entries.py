"""Index entries for many batches at once, in numpy: for recovery and for rewritten segments.

The rule is the one of `Segment.append`: an entry for a batch that begins more than
`index.interval.bytes` after the last indexed one; the time index gets the newest timestamp so far.
"""

from typing import TYPE_CHECKING, Any, Final

from siltstone.lazy import LazyModule
from siltstone.log.offset_index import OffsetPosition
from siltstone.log.time_index import TimestampOffset
from siltstone.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

_OFFSET_ENTRY: Final = [("relative_offset", ">i4"), ("position", ">i4")]
_TIME_ENTRY: Final = [("timestamp_ms", ">i8"), ("relative_offset", ">i4")]


class IndexBuilder:
    """Collects the entries of one segment; feed it the batches in order."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.newest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._last_position = 0
        # Columns of both kinds of entries: offset, position; newest timestamp and its offset.
        self._parts: list[NDArray[np.int64]] = [np.empty((4, 0), np.int64)]

    def add(self, positions: Any, last_offsets: Any, max_timestamps: Any) -> None:
        """Take in batches: where they begin, their last offsets and max timestamps."""
        if not len(positions):
            return
        # For each batch: the newest timestamp up to there, and the last offset of its batch.
        newest = np.maximum.accumulate(np.maximum(max_timestamps, self.newest.timestamp_ms))
        rises = np.diff(newest, prepend=self.newest.timestamp_ms) > 0
        holders = np.maximum.accumulate(np.where(rises, np.arange(len(positions)), -1))
        offsets = np.where(holders < 0, self.newest.offset, last_offsets[holders])
        slots = self._indexed(positions)
        self._parts.append(
            np.stack((last_offsets[slots], positions[slots], newest[slots], offsets[slots]))
        )
        self.newest = TimestampOffset(int(newest[-1]), int(offsets[-1]))

    def offset_entries(self) -> list[OffsetPosition]:
        """Return the entries of the offset index."""
        offsets, positions, _, _ = self._columns().tolist()
        return list(map(OffsetPosition, offsets, positions))

    def time_entries(self) -> list[TimestampOffset]:
        """Return the entries of the time index, its final entry included."""
        _, _, timestamps, offsets = self._columns().tolist()
        return [*map(TimestampOffset, timestamps, offsets), self.newest]

    def pack_offset_index(self, max_bytes: int) -> bytes:
        """Return the bytes of the offset index, as many entries as there is room for."""
        offsets, positions, _, _ = self._columns()
        entries = np.empty(len(offsets), _OFFSET_ENTRY)
        entries["relative_offset"] = offsets - self._base_offset
        entries["position"] = positions
        return entries[: max_bytes // entries.itemsize].tobytes()

    def pack_time_index(self, max_bytes: int) -> bytes:
        """Return the bytes of the time index; the newest entry has a place in any case."""
        _, _, timestamps, offsets = self._columns()
        entries = np.empty(len(timestamps) + 1, _TIME_ENTRY)
        entries["timestamp_ms"] = np.append(timestamps, self.newest.timestamp_ms)
        entries["relative_offset"] = np.append(offsets, self.newest.offset) - self._base_offset
        rising = entries[np.diff(entries["timestamp_ms"], prepend=NO_TIMESTAMP) > 0]
        capacity = max_bytes // entries.itemsize
        if len(rising) > capacity:
            rising = rising[[*range(capacity - 1), -1][:capacity]]
        return rising.tobytes()

    def _indexed(self, positions: Any) -> list[int]:
        """Return the numbers of the batches that get an entry."""
        slots = []
        limit = self._last_position + self._interval_bytes
        for slot, position in enumerate(positions.tolist()):
            if position > limit:
                slots.append(slot)
                self._last_position = position
                limit = position + self._interval_bytes
        return slots

    def _columns(self) -> "NDArray[np.int64]":
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts, axis=1)]
        return self._parts[0]
