"""`latest` and `changes` of one partition by many tasks: keys are entered once, values read once.

    index   chunks of the log, by threads of one process   find the last record of every key
    read    a share of the records each, by tasks          copies out what was found

Between the two go the offsets of the records that were found. Offsets, not places in files: a
record is the same at its offset before and after a pass, so the second stage reads whatever files
there are by then. If one of the records is no longer in them, a pass has gone beyond the end of the
view, and the read is refused.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from siltstone.cleaner import kernels as cleaner_kernels
from siltstone.cleaner.chunks import PASS_CHUNK_BYTES
from siltstone.cleaner.explaining import check_chunk
from siltstone.cleaner.key_marks import KeyMarks, Reserved
from siltstone.cleaner.side_by_side import Threads
from siltstone.errors import CorruptBatchError, DecodeError, NotExactError
from siltstone.records.compression import MAX_PAYLOAD_BYTES
from siltstone.records.scan import Batches, scan
from siltstone.table.chunks import FileChunk, GapFinder, iter_chunks
from siltstone.table.filling import ColumnFiller
from siltstone.table.request import (
    ViewBounds,
    ViewRequest,
    raise_consistent_from,
    resolve_bounds,
)
from siltstone.table.snapshot import LogSnapshot
from siltstone.table.views import find_shown, select_records

Offsets = NDArray[np.int64]

# What it takes to step over an offset, as a share of what it takes to hand a record out and to do
# something with it: measured with a writer of Parquet, the most usual.
_STEP_SHARE: Final = 1 / 48
_NO_OFFSETS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Winners:
    """The records of a view, by their offsets, which rise."""

    bounds: ViewBounds
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class WinnerShare:
    """The records that one task of the last stage reads."""

    start_offset: int
    end_offset: int
    packed: bytes  # steps from offset to offset
    step_bytes: int

    @property
    def offsets(self) -> Offsets:
        """The offsets of the records."""
        steps = np.frombuffer(self.packed, np.dtype(f"u{self.step_bytes}"))
        return self.start_offset + np.cumsum(steps, dtype=np.int64)


class ChunkOffsets(NamedTuple):
    """The offsets of the records in the data batches of a chunk.

    Where no offset is missing in a batch, that of its first record says all.
    """

    bases: Offsets  # of each batch
    counts: NDArray[np.int64]
    is_sparse: NDArray[np.bool_]
    listed: Offsets  # of the batches in which some are missing


def find_winners(snapshot: LogSnapshot, request: ViewRequest, thread_count: int) -> Winners:
    """Run the first stage, in threads of this process.

    Raise NotExactError if compaction has taken the view apart.
    """
    bounds = resolve_bounds(snapshot, request)
    keys = KeyMarks(os.urandom(16))
    gaps = GapFinder(max(bounds.consistent_from, bounds.start_offset), bounds.end_offset)

    def numbered() -> Iterator[tuple[FileChunk, Reserved]]:
        for found in iter_chunks(
            snapshot, request, bounds, check_crc=False, gaps=gaps, chunk_bytes=PASS_CHUNK_BYTES
        ):
            yield found, keys.reserve(found.chunk)

    def enter(job: tuple[FileChunk, Reserved]) -> ChunkOffsets:
        found, reserved = job
        keys.enter_reserved(found.file, found.chunk, reserved)
        return list_offsets(found)

    with closing(Threads(thread_count)) as threads:
        chunks = list(threads.map(enter, numbered()))
    if gaps.has_found:
        bounds = raise_consistent_from(bounds, request, snapshot)
    numbers = np.flatnonzero(find_shown(request, keys.mark_winners()))
    return Winners(bounds, find_offsets(chunks, numbers))


def list_offsets(found: FileChunk) -> ChunkOffsets:
    """Return the offsets of the records in the data batches of a chunk."""
    chunk = found.chunk
    batches: Batches = chunk.batches[chunk.modes == cleaner_kernels.DATA]
    counts = batches["record_count"].astype(np.int64)
    is_sparse = batches["last_offset"] - batches["base_offset"] + 1 != counts
    listed = _NO_OFFSETS
    if is_sparse.any():
        try:
            scanned = scan(chunk.view, batches[is_sparse], limit_bytes=MAX_PAYLOAD_BYTES)
        except DecodeError as error:
            position = chunk.position + error.position
            raise CorruptBatchError(found.file.path, position, error.reason) from error
        listed = scanned.records["offset"].copy()
    return ChunkOffsets(batches["base_offset"].copy(), counts, is_sparse, listed)


def find_offsets(chunks: Sequence[ChunkOffsets], numbers: NDArray[np.int64]) -> Offsets:
    """Return the offsets of records, given by the numbers under which their keys were entered."""
    if not len(numbers):
        return _NO_OFFSETS
    counts = np.concatenate([chunk.counts for chunk in chunks])
    is_sparse = np.concatenate([chunk.is_sparse for chunk in chunks])
    firsts = np.cumsum(counts) - counts
    found_counts = np.diff(np.searchsorted(numbers, firsts), append=len(numbers))
    bases = np.concatenate([chunk.bases for chunk in chunks])
    offsets: Offsets = numbers + np.repeat(bases - firsts, found_counts)
    if is_sparse.any():
        listed = np.concatenate([chunk.listed for chunk in chunks])
        sparse_counts = np.where(is_sparse, counts, 0)
        sparse_firsts = np.cumsum(sparse_counts) - sparse_counts
        places = numbers + np.repeat(sparse_firsts - firsts, found_counts)
        missing = np.repeat(is_sparse, found_counts)
        offsets[missing] = listed[places[missing]]
    return offsets


def share_out(winners: Winners, share_count: int) -> list[WinnerShare]:
    """Cut the records of a view into shares that take about the same time to read."""
    offsets = winners.offsets
    if not len(offsets):
        return []
    work = np.arange(len(offsets)) + (offsets - offsets[0]) * _STEP_SHARE
    wanted = work[-1] * np.arange(1, share_count) / share_count
    cuts = np.unique(np.concatenate(([0], np.searchsorted(work, wanted), [len(offsets)])))
    return [_make_share(offsets[start:stop]) for start, stop in pairwise(cuts.tolist())]


def read_share(
    snapshot: LogSnapshot, request: ViewRequest, offsets: Offsets
) -> Iterator[pa.RecordBatch]:
    """Copy out the records at the offsets; raise NotExactError if one is no longer there."""
    filler = ColumnFiller(snapshot.partition)
    prefix = request.key_prefix
    request = replace(request, key_prefix=b"")  # All are counted, whatever their keys.
    exact_from = snapshot.end_offset(request.effective_isolation)
    # Whole batches, up to the end: at which offsets there is something to take is known.
    bounds = ViewBounds(
        partition=snapshot.partition,
        log_start_offset=snapshot.log_start_offset,
        start_offset=0,
        end_offset=snapshot.log_end_offset,
        consistent_from=exact_from,
    )
    found_count = 0
    for found in iter_chunks(
        snapshot, request, bounds, check_crc=False, chunk_bytes=PASS_CHUNK_BYTES
    ):
        batches = found.chunk.batches
        lows = np.searchsorted(offsets, batches["base_offset"])
        highs = np.searchsorted(offsets, batches["last_offset"], "right")
        batches = batches[lows < highs]
        if len(batches):
            # All were checked when they were indexed; of what is handed out now, once more.
            check_chunk(found.file, found.chunk._replace(batches=batches))
            wanted = offsets[lows[0] : highs[-1]]
            batch = select_records(filler, request, found, batches, wanted=wanted)
            found_count += batch.num_rows
            if prefix:
                batch = batch.filter(pc.starts_with(batch.column("key"), pattern=prefix))
            if batch.num_rows:
                yield batch
        if highs[-1] == len(offsets):
            break
    if found_count != len(offsets):
        raise NotExactError(str(snapshot.partition), int(offsets[-1]) + 1, exact_from)


def _make_share(offsets: Offsets) -> WinnerShare:
    first = int(offsets[0])
    steps = np.diff(offsets, prepend=first)
    step_bytes = int(np.min_scalar_type(int(steps.max())).itemsize)
    packed = steps.astype(np.dtype(f"u{step_bytes}")).tobytes()
    return WinnerShare(first, int(offsets[-1]) + 1, packed, step_bytes)
