"""The segments of one log in the order of their base offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from siltstone.log.segment import Segment


class Segments:
    """A sorted map from base offset to segment; the last one is active."""

    def __init__(self) -> None:
        self._base_offsets: list[int] = []
        self._by_base: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._base_offsets)

    def __iter__(self) -> Iterator[Segment]:
        # Over a copy: callers remove while they walk.
        return iter([self._by_base[base_offset] for base_offset in self._base_offsets])

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """All base offsets, lowest first."""
        return tuple(self._base_offsets)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._by_base[self._base_offsets[0]]

    @property
    def active(self) -> Segment:
        """The segment that appends go to."""
        return self._by_base[self._base_offsets[-1]]

    @property
    def size_bytes(self) -> int:
        """The size of all log files together."""
        return sum(segment.size_bytes for segment in self._by_base.values())

    def add(self, segment: Segment) -> None:
        """Add a segment, in place of one with the same base offset."""
        if segment.base_offset not in self._by_base:
            self._base_offsets.insert(
                bisect_left(self._base_offsets, segment.base_offset), segment.base_offset
            )
        self._by_base[segment.base_offset] = segment

    def remove(self, base_offset: int) -> None:
        """Forget a segment."""
        del self._by_base[base_offset]
        self._base_offsets.remove(base_offset)

    def find(self, base_offset: int) -> Segment | None:
        """Return the segment with just that base offset."""
        return self._by_base.get(base_offset)

    def find_floor(self, offset: int) -> Segment | None:
        """Return the segment whose range holds the offset, or None below the first."""
        slot = bisect_right(self._base_offsets, offset)
        return self._by_base[self._base_offsets[slot - 1]] if slot else None

    def find_next(self, segment: Segment) -> Segment | None:
        """Return the segment after another one."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._by_base[self._base_offsets[slot]] if slot < len(self._base_offsets) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment whose range holds the offset and all after it."""
        slot = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return [self._by_base[base_offset] for base_offset in self._base_offsets[slot:]]
