"""Write cleaned segments: batches one after the other, indexes built on the way, splits where due.

The same writer stands behind every engine, so that they differ only in how they find the survivors.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.crc_combine import combine_crcs
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import OutputFile, OutputSegment
from siltstone.cleaner.storage import PassStorage
from siltstone.log import filenames
from siltstone.log.filesystem import File
from siltstone.log.index_entries import IndexBuilder
from siltstone.log.transaction_index import AbortedTxn, pack_aborted
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import MAX_RELATIVE_OFFSET

Int64s = NDArray[np.int64]


class Written(NamedTuple):
    """Batches, and a row of (size, base offset, last offset, max timestamp) for each."""

    data: memoryview
    rows: Int64s


class Placed(NamedTuple):
    """Bytes that have their place in a segment, and are not there yet."""

    segment: "_SegmentWriter"
    position: int
    data: memoryview

    def store(self) -> int:
        """Write them there; return their CRC."""
        self.segment.write(self.position, self.data)
        return crc32c(self.data)


class GroupWriter:
    """The cleaned segments of one segment group, mostly one."""

    def __init__(
        self, plan: CleaningPlan, group: Sequence[int], storage: PassStorage, attempt: str
    ) -> None:
        self._plan = plan
        self._group = tuple(group)
        self._storage = storage
        self._attempt = attempt
        sizes = {source.base_offset: source.size_bytes for source in plan.sources}
        # A segment larger than the setting stays as large as it was, if it is left alone.
        own_bytes = sizes[group[0]] if len(group) == 1 else 0
        self._limit_bytes = max(plan.segment_bytes, own_bytes)
        self._segments: list[_SegmentWriter] = []
        self.bytes_written = 0

    def add(self, written: Written) -> None:
        """Append batches."""
        for placed in self.place(written):
            self.note_stored(placed, placed.store())

    def place(self, written: Written) -> list[Placed]:
        """Find a place for batches.

        The caller stores them, in any thread, and says so with `note_stored`, in this order.
        """
        data = written.data
        sizes, base_offsets, last_offsets, max_timestamps = written.rows.T
        placed: list[Placed] = []
        start = 0
        position = 0
        while start < len(sizes):
            segment = self._segment_for(
                int(base_offsets[start]), int(last_offsets[start]), int(sizes[start])
            )
            room = self._limit_bytes - segment.size_bytes
            ends = np.cumsum(sizes[start:])
            fits = (ends <= room) & (
                last_offsets[start:] - segment.base_offset <= MAX_RELATIVE_OFFSET
            )
            # At least one: what is too large for any segment gets one of its own.
            count = max(int(np.argmin(fits)) if not fits.all() else len(fits), 1)
            stop = start + count
            size = int(ends[count - 1])
            placed.append(Placed(segment, segment.size_bytes, data[position : position + size]))
            segment.add(sizes[start:stop], last_offsets[start:stop], max_timestamps[start:stop])
            self.bytes_written += size
            position += size
            start = stop
        return placed

    def note_stored(self, placed: Placed, crc: int) -> None:
        """Take in the CRC of bytes that were stored."""
        segment = placed.segment
        segment.crc = combine_crcs(segment.crc, crc, len(placed.data))

    def finish(self, aborted: Sequence[AbortedTxn]) -> tuple[OutputSegment, ...]:
        """Write indexes and return what was written; `aborted` are the group's, by marker."""
        if not self._segments:
            self._open_segment(self._group[0])
        outputs = []
        for slot, segment in enumerate(self._segments):
            following = self._segments[slot + 1 :]
            end_offset = following[0].base_offset if following else 2**63 - 1
            own = [t for t in aborted if segment.base_offset <= t.last_offset < end_offset]
            outputs.append(segment.finish(own))
        return tuple(outputs)

    def discard(self) -> None:
        """Delete everything that was written."""
        for segment in self._segments:
            segment.discard()

    def _segment_for(self, base_offset: int, last_offset: int, size_bytes: int) -> "_SegmentWriter":
        if not self._segments:
            self._open_segment(self._group[0])
        current = self._segments[-1]
        is_full = current.size_bytes and current.size_bytes + size_bytes > self._limit_bytes
        # Also of an empty segment: what fitted the base of an overflowed one may all be gone.
        overflows = last_offset - current.base_offset > MAX_RELATIVE_OFFSET
        return self._open_segment(base_offset) if is_full or overflows else current

    def _open_segment(self, base_offset: int) -> "_SegmentWriter":
        segment = _SegmentWriter(self._plan, base_offset, self._storage, self._attempt)
        self._segments.append(segment)
        return segment


class _SegmentWriter:
    def __init__(
        self, plan: CleaningPlan, base_offset: int, storage: PassStorage, attempt: str
    ) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        self._plan = plan
        self._storage = storage
        self._attempt = attempt
        self._index = IndexBuilder(base_offset, plan.index_interval_bytes)
        self.crc = 0  # of what was written
        self._file = self._create(filenames.LOG)

    def add(self, sizes: Int64s, last_offsets: Int64s, max_timestamps: Int64s) -> None:
        ends = self.size_bytes + np.cumsum(sizes)
        self._index.add(ends - sizes, last_offsets, max_timestamps)
        self.size_bytes = int(ends[-1])

    def write(self, position: int, data: memoryview) -> None:
        self._storage.write(self._file, position, data)

    def finish(self, aborted: Sequence[AbortedTxn]) -> OutputSegment:
        limit = self._plan.segment_index_bytes
        contents = {
            filenames.OFFSET_INDEX: self._index.pack_offset_index(limit),
            filenames.TIME_INDEX: self._index.pack_time_index(limit),
        }
        if aborted:
            contents[filenames.TRANSACTION_INDEX] = pack_aborted(aborted)
        files = [OutputFile(self._file.path.name, filenames.LOG, self.size_bytes, self.crc)]
        for extension, data in contents.items():
            file = self._create(extension)
            self._storage.write(file, 0, data)
            files.append(OutputFile(file.path.name, extension, len(data), crc32c(data)))
        return OutputSegment(self.base_offset, tuple(files))

    def discard(self) -> None:
        for extension in (
            filenames.LOG,
            filenames.OFFSET_INDEX,
            filenames.TIME_INDEX,
            filenames.TRANSACTION_INDEX,
        ):
            self._storage.delete(self._name(extension))

    def _create(self, extension: str) -> File:
        return self._storage.create(self._name(extension))

    def _name(self, extension: str) -> str:
        return filenames.pass_file_name(
            self._plan.pass_id, self._attempt, self.base_offset, extension
        )
