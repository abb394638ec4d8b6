"""Index entries for many batches at once, in numpy: for recovery and for rewritten segments.

The rule is the one of `Segment.append`: an entry for a batch that begins more than
`index.interval.bytes` after the last indexed one; the time index gets the newest timestamp so far.
"""

from typing import TYPE_CHECKING, Any

from siltstone.lazy import LazyModule
from siltstone.log.offset_index import OffsetPosition, pack_offset_entries
from siltstone.log.time_index import TimestampOffset, pack_time_entries, rising_entries
from siltstone.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")


class IndexBuilder:
    """Collects the entries of one segment; feed it the batches in order."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.newest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self.offset_entries: list[OffsetPosition] = []
        self.time_entries: list[TimestampOffset] = []
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._last_position = 0

    def add(self, positions: Any, last_offsets: Any, max_timestamps: Any) -> None:
        """Take in batches: where they begin, their last offsets and max timestamps."""
        if not len(positions):
            return
        # For each batch: the number of the batch that holds the newest timestamp up to there.
        newest = np.maximum.accumulate(np.maximum(max_timestamps, self.newest.timestamp_ms))
        rises = np.diff(newest, prepend=self.newest.timestamp_ms) > 0
        holders = np.maximum.accumulate(np.where(rises, np.arange(len(positions)), -1))

        def newest_at(slot: int) -> TimestampOffset:
            holder = int(holders[slot])
            if holder < 0:
                return self.newest
            return TimestampOffset(int(max_timestamps[holder]), int(last_offsets[holder]))

        while True:
            limit = self._last_position + self._interval_bytes
            slot = int(np.searchsorted(positions, limit, side="right"))
            if slot == len(positions):
                break
            self._last_position = int(positions[slot])
            self.offset_entries.append(OffsetPosition(int(last_offsets[slot]), self._last_position))
            self.time_entries.append(newest_at(slot))
        self.newest = newest_at(-1)

    def pack_offset_index(self, max_bytes: int) -> bytes:
        """Return the bytes of the offset index."""
        return pack_offset_entries(self._base_offset, self.offset_entries, max_bytes)

    def pack_time_index(self, max_bytes: int) -> bytes:
        """Return the bytes of the time index, its final entry included."""
        entries = rising_entries([*self.time_entries, self.newest])
        return pack_time_entries(self._base_offset, entries, max_bytes)
