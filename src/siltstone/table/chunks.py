"""The batches of a snapshot between two offsets, in large pieces.

A batch that reaches over one of the ends is replaced by one with only the records inside.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from siltstone.cleaner import chunks as cleaner_chunks
from siltstone.cleaner.batch_modes import TrackedModes
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.explaining import check_chunk
from siltstone.cleaner.rebuild import rebuild_batch
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.log.reading import Isolation
from siltstone.records.batch import read_batch
from siltstone.records.scan import as_bytes, walk
from siltstone.table.request import ViewBounds, ViewRequest
from siltstone.table.snapshot import LogSnapshot


class FileChunk(NamedTuple):
    """Batches, and the file that is to blame if one makes no sense."""

    file: File
    chunk: Chunk


def iter_chunks(
    snapshot: LogSnapshot,
    request: ViewRequest,
    bounds: ViewBounds,
    *,
    check_crc: bool,
    gaps: "GapFinder | None" = None,
    chunk_bytes: int = cleaner_chunks.CHUNK_BYTES,
) -> Iterator[FileChunk]:
    """Yield what lies between the bounds."""
    is_committed = request.effective_isolation is Isolation.COMMITTED
    modes = TrackedModes(snapshot.aborted if is_committed else ())
    for segment in snapshot.segments:
        if segment.base_offset >= bounds.end_offset:
            return
        is_sealed = segment is not snapshot.segments[-1]
        for chunk in cleaner_chunks.iter_chunks(
            segment.file,
            segment.start_position,
            segment.size_bytes,
            modes,
            is_sealed=is_sealed,
            chunk_bytes=chunk_bytes,
        ):
            if check_crc:
                check_chunk(segment.file, chunk)
            if gaps is not None:
                gaps.look_at(chunk.batches)
            yield from _cut(segment.file, chunk, bounds)
            if chunk.batches["last_offset"][-1] + 1 >= bounds.end_offset:
                break


class GapFinder:
    """Looks for offsets at or above `first_offset` that have no record any more."""

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.has_found = False
        self.next_offset = first_offset
        self._end_offset = end_offset

    def look_at(self, batches: Any) -> None:
        """Take in the next batches of the log."""
        is_new = batches["last_offset"] >= self.next_offset
        rows = batches[is_new & (batches["base_offset"] < self._end_offset)]
        if not len(rows) or self.has_found:
            return
        ends = rows["last_offset"] + 1
        starts = np.concatenate(([self.next_offset], ends[:-1]))
        spans = ends - rows["base_offset"]
        between = rows["base_offset"] > starts
        inside = rows["record_count"] < spans
        self.has_found = bool((between | inside).any())
        self.next_offset = int(ends[-1])


def _cut(file: File, chunk: Chunk, bounds: ViewBounds) -> Iterator[FileChunk]:
    bases, lasts = chunk.batches["base_offset"], chunk.batches["last_offset"]
    first = int(np.searchsorted(lasts, bounds.start_offset))
    stop = int(np.searchsorted(bases, bounds.end_offset))
    crossing = [
        number
        for number in {first, stop - 1}
        if first <= number < stop
        and (bases[number] < bounds.start_offset or lasts[number] >= bounds.end_offset)
    ]
    for number in sorted(crossing):
        if number > first:
            yield FileChunk(file, _part(chunk, first, number))
        trimmed = _trim(file, chunk, number, bounds)
        if trimmed is not None:
            yield FileChunk(file, trimmed)
        first = number + 1
    if first < stop:
        yield FileChunk(file, _part(chunk, first, stop))


def _part(chunk: Chunk, first: int, stop: int) -> Chunk:
    return chunk._replace(batches=chunk.batches[first:stop], modes=chunk.modes[first:stop])


def _trim(file: File, chunk: Chunk, number: int, bounds: ViewBounds) -> Chunk | None:
    """Make a chunk of one batch with the records between the bounds; None if it has none."""
    position = int(chunk.batches["position"][number])
    batch = read_batch(chunk.view, position)
    try:
        records = list(batch.iter_records())
    except DecodeError as error:
        raise CorruptBatchError(file.path, chunk.position + position, error.reason) from error
    inside = [r for r in records if bounds.start_offset <= r.offset < bounds.end_offset]
    if not inside:
        return None
    view = memoryview(rebuild_batch(batch.header, inside, batch.header.delete_horizon_ms))
    return Chunk(
        chunk.position + position,
        view,
        as_bytes(view),
        walk(view).batches,
        chunk.modes[number : number + 1],
    )
