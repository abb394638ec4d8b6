"""I4: look-ups through the indexes give what a scan of the log gives.

A look-up by offset begins at the position of the greatest entry at or below the offset, and scans
on. It is right for every offset if each entry points at a batch and all batches in front of that
one end below the entry's offset. The offset itself may lie further on: Kafka makes one entry for
all batches of an append, and its cleaner one for all that it writes at once.

A look-up by time begins at the batch that the greatest entry at or below the time speaks of. It is
right for every time if no batch in front of that one is as new as the entry. The last entry of a
segment that was rolled is its newest timestamp, by which the segment itself is found.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.verify.batches import Columns, Layout
from siltstone.cleaner.verify.files import SegmentFiles
from siltstone.cleaner.verify.findings import Findings, Severity
from siltstone.log import filenames
from siltstone.records.layout import NO_TIMESTAMP

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BEYOND: Final = 2**63 - 1
_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("timestamp_ms", ">i8"), ("offset", ">i4")])


def check_indexes(
    segment: SegmentFiles, layout: Layout, findings: Findings, *, was_clean: bool
) -> None:
    """Hold every entry of the offset index and the time index of a segment against its batches."""
    check = _IndexCheck(segment, layout, findings, was_clean=was_clean)
    check.check_offset_index()
    check.check_time_index()


class _IndexCheck:
    def __init__(
        self, segment: SegmentFiles, layout: Layout, findings: Findings, *, was_clean: bool
    ) -> None:
        self._segment = segment
        self._layout = layout
        self._findings = findings
        # What is not flushed may outlive what it speaks of: recovery writes both indexes anew.
        self._will_be_rebuilt = segment.is_active and not was_clean

    def check_offset_index(self) -> None:
        entries = self._parse(self._segment.offset_index, _OFFSET_ENTRY, filenames.OFFSET_INDEX)
        layout = self._layout.columns
        if entries is None or not self._layout.is_whole:
            return
        offsets = entries["offset"].astype(np.int64) + self._segment.base_offset
        positions = entries["position"].astype(np.int64)
        slots = np.searchsorted(layout.positions, positions)
        is_batch = _take(layout.positions, slots) == positions
        faults = {
            "does not rise above the entry before it": ~_rises(offsets) | ~_rises(positions),
            "points at no batch": ~is_batch,
            "points behind the batch with that offset: a look-up would miss it": (
                offsets < _take(layout.base_offsets, slots)
            ),
            "speaks of an offset that is in no batch": ~_is_in_batch(layout, offsets),
        }
        for number, reason in _first_faults(faults):
            offset, position = int(offsets[number]), int(positions[number])
            self._note(
                filenames.OFFSET_INDEX,
                f"entry {number} (offset {offset}, position {position}) {reason}",
                number * _OFFSET_ENTRY.itemsize,
                offset,
                is_behind_end=position >= self._layout.end_position,
            )

    def check_time_index(self) -> None:
        entries = self._parse(self._segment.time_index, _TIME_ENTRY, filenames.TIME_INDEX)
        layout = self._layout.columns
        if entries is None or not self._layout.is_whole:
            return
        offsets = entries["offset"].astype(np.int64) + self._segment.base_offset
        timestamps = entries["timestamp_ms"].astype(np.int64)
        holders = np.searchsorted(layout.last_offsets, offsets)
        # The newest timestamp in front of each batch, and of all.
        newest = np.maximum.accumulate(np.append(NO_TIMESTAMP, layout.max_timestamps))
        faults = {
            "does not rise above the entry before it": (
                ~_rises(timestamps) | ~_rises(offsets, strictly=False)
            ),
            "speaks of an offset that is in no batch": ~_is_in_batch(layout, offsets),
            "comes after a batch as new as that: a look-up would miss it": (
                newest[holders] >= timestamps
            ),
            "speaks of a batch whose newest timestamp is another": (
                _take(layout.max_timestamps, holders) != timestamps
            ),
        }
        for number, reason in _first_faults(faults):
            offset = int(offsets[number])
            self._note(
                filenames.TIME_INDEX,
                f"entry {number} (timestamp {timestamps[number]}, offset {offset}) {reason}",
                number * _TIME_ENTRY.itemsize,
                offset,
                is_behind_end=bool(holders[number] == len(layout.last_offsets)),
            )
        last_ms = int(timestamps[-1]) if len(timestamps) else NO_TIMESTAMP
        self._check_newest(last_ms, int(newest[-1]))

    def _check_newest(self, last_ms: int, newest_ms: int) -> None:
        """Check the final entry; without one Kafka goes by the age of the file."""
        if self._segment.is_active or last_ms == newest_ms:
            return
        message = f"ends with timestamp {last_ms}, the newest of the segment is {newest_ms}"
        severity = Severity.WARNING if last_ms == NO_TIMESTAMP else Severity.VIOLATION
        self._findings.add(severity, "I4", message, self._segment.name_of(filenames.TIME_INDEX))

    def _parse(self, data: bytes | None, entry: Any, extension: str) -> NDArray[Any] | None:
        name = self._segment.name_of(extension)
        if data is None:
            if self._segment.size_bytes and not self._segment.is_active:
                self._findings.warning("I4", "is missing: the next load builds it anew", file=name)
            return None
        extra = len(data) % entry.itemsize
        if extra:
            self._note(
                extension,
                f"{len(data)} bytes are no multiple of {entry.itemsize}",
                len(data) - extra,
                None,
                is_behind_end=True,
            )
        entries: NDArray[Any] = np.frombuffer(data[: len(data) - extra], entry)
        if self._segment.is_active:
            # As long as it is appended to, the file is as large as it may get.
            used = np.flatnonzero(np.frombuffer(data, np.uint8))
            count = -(-(int(used[-1]) + 1) // entry.itemsize) if len(used) else 0
            entries = entries[:count]
        return entries

    def _note(
        self,
        extension: str,
        message: str,
        position: int,
        offset: int | None,
        *,
        is_behind_end: bool,
    ) -> None:
        is_harmless = is_behind_end and self._will_be_rebuilt
        severity = Severity.WARNING if is_harmless else Severity.VIOLATION
        name = self._segment.name_of(extension)
        self._findings.add(severity, "I4", message, name, position, offset)


def _rises(values: Int64s, *, strictly: bool = True) -> Bools:
    """Say of each value whether it is above the one before it."""
    steps = np.diff(values)
    return np.append(np.ones(min(len(values), 1), np.bool_), steps > 0 if strictly else steps >= 0)


def _take(values: Int64s, slots: NDArray[np.intp]) -> Int64s:
    """Take values by their slots; what is beyond the end gets a value that nothing equals."""
    return np.append(values, _BEYOND)[np.minimum(slots, len(values))]


def _is_in_batch(layout: Columns, offsets: Int64s) -> Bools:
    holders = np.searchsorted(layout.last_offsets, offsets)
    return offsets >= _take(layout.base_offsets, holders)


def _first_faults(faults: Mapping[str, Bools]) -> Iterator[tuple[int, str]]:
    """Yield each entry that is wrong, with the first reason that fits."""
    wrong = np.logical_or.reduce(list(faults.values()))
    for number in np.flatnonzero(wrong).tolist():
        yield number, next(reason for reason, mask in faults.items() if mask[number])
