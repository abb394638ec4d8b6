"""The three ways to read a log, as Arrow record batches.

`latest` and `changes` walk the log twice, as a pass does: first every key is entered, so that each
record is known to be the last of its key or not, then the last ones are copied out. Between the two
only a byte per record and the table of keys are kept; values never wait in memory.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from siltstone.cleaner import kernels as cleaner_kernels
from siltstone.cleaner.key_marks import KeyMarks
from siltstone.cleaner.unpacking import is_compressed
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.partition_log import PartitionLog
from siltstone.records.batch import read_batch
from siltstone.records.compression import MAX_PAYLOAD_BYTES
from siltstone.records.scan import Batches, as_bytes, scan
from siltstone.table import kernels
from siltstone.table.chunks import FileChunk, GapFinder, iter_chunks
from siltstone.table.columns import SCHEMA, SCHEMA_WITH_HEADERS, make_record_batch
from siltstone.table.filling import ALL_RECORDS, ANY_OFFSET, ColumnFiller
from siltstone.table.flat_records import flatten
from siltstone.table.request import (
    View,
    ViewBounds,
    ViewRequest,
    raise_consistent_from,
    resolve_bounds,
)
from siltstone.table.snapshot import LogSnapshot

Marks = NDArray[np.uint8]


@dataclass(frozen=True)
class ViewResult:
    """A view of one partition: where it lies, and its records, to be taken once."""

    bounds: ViewBounds
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the records as a stream that DuckDB, Polars and pandas read."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches)


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """What is in a log between two offsets, counted and not estimated."""

    records: int  # that a consumer gets
    live_keys: int
    tombstones: int  # keys whose last record is one
    keyless: int
    first_offset: int | None  # of the first record that is left; the log may start before it


def find_offset_as_of(log: PartitionLog, timestamp_ms: int) -> int | None:
    """Return the offset of the first record later than a time; None if there is none."""
    found = log.find_offset_by_timestamp(timestamp_ms + 1)
    return None if found is None else found.offset


def read_view(snapshot: LogSnapshot, request: ViewRequest) -> ViewResult:
    """Read a view; raise NotExactError or OffsetOutOfRangeError before the first record."""
    bounds = resolve_bounds(snapshot, request)
    schema = SCHEMA_WITH_HEADERS if request.include_headers else SCHEMA
    marks: Marks | None = None
    if request.view is not View.LOG:
        keys, bounds = _enter_keys(snapshot, request, bounds)
        marks = keys.mark_winners()
    return ViewResult(bounds, schema, _iter_selected(snapshot, request, bounds, marks))


def count_keys(snapshot: LogSnapshot, request: ViewRequest) -> tuple[KeyCounts, ViewBounds]:
    """Count records, live keys and tombstones."""
    bounds = resolve_bounds(snapshot, request)
    keys, bounds = _enter_keys(snapshot, request, bounds)
    marks = keys.mark_winners()
    is_winner = (marks & cleaner_kernels.WINNER) != 0
    tombstones = int(np.count_nonzero(is_winner & ((marks & cleaner_kernels.TOMBSTONE) != 0)))
    live_keys = int(np.count_nonzero(is_winner)) - tombstones
    first_offset = next(_iter_offsets(snapshot, request, bounds), None)
    counts = KeyCounts(keys.entered, live_keys, tombstones, keys.keyless_count(), first_offset)
    return counts, bounds


def _iter_offsets(snapshot: LogSnapshot, request: ViewRequest, bounds: ViewBounds) -> Iterator[int]:
    for found in iter_chunks(snapshot, request, bounds, check_crc=False):
        for row in found.chunk.batches[found.chunk.modes == cleaner_kernels.DATA]:
            for record in read_batch(found.chunk.view, int(row["position"])).iter_records():
                yield record.offset


def _enter_keys(
    snapshot: LogSnapshot, request: ViewRequest, bounds: ViewBounds
) -> tuple[KeyMarks, ViewBounds]:
    """Enter all keys, and look how far the log has been cleaned."""
    keys = KeyMarks(os.urandom(16))
    gaps = GapFinder(max(bounds.consistent_from, bounds.start_offset), bounds.end_offset)
    for found in iter_chunks(snapshot, request, bounds, check_crc=False, gaps=gaps):
        keys.enter_chunk(found.file, found.chunk)
    if gaps.has_found:
        bounds = raise_consistent_from(bounds, request, snapshot)
    return keys, bounds


def _iter_selected(
    snapshot: LogSnapshot, request: ViewRequest, bounds: ViewBounds, marks: Marks | None
) -> Iterator[pa.RecordBatch]:
    """Copy out the records that are marked; all of them if there are no marks."""
    entered = 0
    filler = ColumnFiller(snapshot.partition)
    for found in iter_chunks(snapshot, request, bounds, check_crc=marks is None):
        chunk = found.chunk
        batches = chunk.batches[chunk.modes == cleaner_kernels.DATA]
        counts = batches["record_count"].astype(np.int64)
        own_marks: Marks | None = None
        if marks is not None:
            own_marks = marks[entered : entered + int(counts.sum())]
            entered += len(own_marks)
            batches, own_marks = _drop_losers(batches, counts, own_marks)
        if len(batches):
            stays = None if own_marks is None else find_shown(request, own_marks)
            batch = select_records(filler, request, found, batches, stays)
            if batch.num_rows:
                yield batch


def _drop_losers(batches: Marks, counts: NDArray[np.int64], marks: Marks) -> tuple[Marks, Marks]:
    """Leave out the batches that have no marked record: they need not be parsed again."""
    winners = np.concatenate(([0], np.cumsum((marks & cleaner_kernels.WINNER) != 0)))
    ends = np.cumsum(counts)
    has_winner = winners[ends] > winners[ends - counts]
    return batches[has_winner], marks[np.repeat(has_winner, counts)]


def find_shown(request: ViewRequest, marks: Marks) -> NDArray[np.bool_]:
    """Say which of the marked records are in a view."""
    is_shown: NDArray[np.bool_] = (marks & cleaner_kernels.WINNER) != 0
    if not request.shows_tombstones:
        is_shown &= (marks & cleaner_kernels.TOMBSTONE) == 0
    return is_shown


def select_records(
    filler: ColumnFiller,
    request: ViewRequest,
    found: FileChunk,
    batches: Batches,
    stays: NDArray[np.bool_] | None = None,
    wanted: NDArray[np.int64] | None = None,
) -> pa.RecordBatch:
    """Make the columns of data batches: of the marked records, those at wanted offsets, or all."""
    chunk = found.chunk
    is_plain = not request.include_headers and not request.key_prefix
    if is_plain and not is_compressed(batches).any():
        batch = filler.fill(
            chunk.data,
            batches,
            stays=ALL_RECORDS if stays is None else stays,
            wanted=ANY_OFFSET if wanted is None else wanted,
        )
        if batch is not None:
            return batch
    try:
        flat = flatten(scan(chunk.view, batches, limit_bytes=MAX_PAYLOAD_BYTES))
    except DecodeError as error:
        position = chunk.position + error.position
        raise CorruptBatchError(found.file.path, position, error.reason) from error
    if wanted is not None:
        stays = np.isin(flat.records["offset"], wanted, assume_unique=True)
    elif stays is None:
        stays = np.ones(len(flat.records), np.bool_)
    if request.key_prefix:
        prefix = as_bytes(request.key_prefix)
        kernels.mark_prefixed(flat.data, flat.records, prefix, stays)
    return make_record_batch(filler.partition, flat, stays, with_headers=request.include_headers)
