"""`latest` and `changes` of one partition by many tasks: keys travel, values stay.

    index     a slice of the log each       finds the last record of every key *there*
    resolve   a range of hashes each        finds the last record of every key over all slices
    read      a share of the records each   copies out what was found

Between the stages go blocks of 16 bytes for each key of a slice, and then the offsets of the
records that were found. Offsets, not places in files: a record is the same at its offset before and
after a pass, so the last stage reads whatever files there are by then. If one of the records is no
longer in them, a pass has gone beyond the end of the view, and the read is refused.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from siltstone.cleaner import kernels as cleaner_kernels
from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.key_marks import KeyMarks
from siltstone.cleaner.key_winners import KeyWinners, Survivors, Uint64s
from siltstone.errors import CorruptBatchError, DecodeError, NotExactError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
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
from siltstone.table.snapshot import LogSnapshot, take_snapshot, with_still_log
from siltstone.table.views import select_records

Offsets = NDArray[np.int64]

# What it takes to step over an offset, as a share of what it takes to hand a record out.
_STEP_SHARE: Final = 1 / 16


@dataclass(frozen=True, slots=True)
class SliceKeys:
    """What the first stage finds in a slice."""

    blocks: list[Uint64s]  # by range of hashes, as `KeyWinners` takes them
    offsets: "OffsetsByNumber"
    has_gap: bool  # an offset above the cleaner's checkpoint has no record any more


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


class OffsetsByNumber:
    """The offsets of the records of a slice, by the numbers under which their keys were entered.

    Where no offset is missing in a batch, that of its first record says all.
    """

    def __init__(self) -> None:
        self._batches: list[Batches] = []
        self._listed: list[Offsets] = []  # of the batches in which some are missing

    def add(self, found: FileChunk) -> None:
        """Take in the data batches of a chunk."""
        chunk = found.chunk
        batches = chunk.batches[chunk.modes == cleaner_kernels.DATA]
        sparse = batches[_is_sparse(batches)]
        if len(sparse):
            try:
                scanned = scan(chunk.view, sparse, limit_bytes=MAX_PAYLOAD_BYTES)
            except DecodeError as error:
                position = chunk.position + error.position
                raise CorruptBatchError(found.file.path, position, error.reason) from error
            self._listed.append(scanned.records["offset"].copy())
        self._batches.append(batches[["base_offset", "last_offset", "record_count"]].copy())

    def find(self, numbers: NDArray[np.int64]) -> Offsets:
        """Return the offsets of records, given by rising numbers."""
        if not len(numbers):
            return np.empty(0, np.int64)
        batches = np.concatenate(self._batches)
        counts = batches["record_count"].astype(np.int64)
        firsts = np.cumsum(counts) - counts
        own = np.searchsorted(firsts, numbers, "right") - 1
        places = numbers - firsts[own]
        offsets: Offsets = batches["base_offset"][own] + places
        is_sparse = _is_sparse(batches)
        if is_sparse.any():
            listed = np.concatenate(self._listed)
            sparse_counts = np.where(is_sparse, counts, 0)
            sparse_firsts = np.cumsum(sparse_counts) - sparse_counts
            missing = is_sparse[own]
            offsets[missing] = listed[(sparse_firsts[own] + places)[missing]]
        return offsets


def index_slice(
    snapshot: LogSnapshot,
    request: ViewRequest,
    bounds: ViewBounds,
    hash_key: bytes,
    range_count: int,
    *,
    is_last: bool,
) -> SliceKeys:
    """Find the keys between the bounds of a slice; the snapshot may begin with it."""
    keys = KeyMarks(hash_key)
    offsets = OffsetsByNumber()
    gaps = GapFinder(max(bounds.consistent_from, bounds.start_offset), bounds.end_offset)
    for found in iter_chunks(snapshot, request, bounds, check_crc=False, gaps=gaps):
        keys.enter_chunk(found.file, found.chunk)
        offsets.add(found)
    has_gap = gaps.has_found or (not is_last and gaps.next_offset < bounds.end_offset)
    return SliceKeys(keys.pack(range_count), offsets, has_gap)


def resolve_range(
    blocks: Iterable[tuple[int, Uint64s]], slice_count: int, range_count: int
) -> list[Survivors]:
    """Find what is left of each slice, in one range of hashes, from pairs of slice and block."""
    winners = KeyWinners(range_count)
    for number, block in blocks:
        winners.enter(number, block.tobytes())
    return winners.survivors(slice_count)


def find_winners(
    reader: LogReader,
    partition: TopicPartition,
    request: ViewRequest,
    cuts: Sequence[int],
    thread_count: int,
) -> Winners:
    """Run the first two stages in threads of this process, one slice for each.

    The log is cut into slices at the offsets `cuts`, which rise and begin with the start of the
    view. Raise NotExactError if compaction has taken the view apart.
    """
    snapshots = _open_slices(reader, partition, cuts)
    bounds = resolve_bounds(snapshots[0], request)
    hash_key = os.urandom(16)
    ends = [*cuts[1:], bounds.end_offset]

    with ThreadPoolExecutor(thread_count, "slice") as pool:

        def index(number: int) -> SliceKeys:
            part = replace(bounds, start_offset=cuts[number], end_offset=ends[number])
            is_last = number == len(cuts) - 1
            return index_slice(
                snapshots[number], request, part, hash_key, thread_count, is_last=is_last
            )

        slices = list(pool.map(index, range(len(cuts))))

        def resolve(number: int) -> list[Survivors]:
            return resolve_range(
                ((n, found.blocks[number]) for n, found in enumerate(slices)),
                len(slices),
                thread_count,
            )

        survivors = list(pool.map(resolve, range(thread_count)))
    if any(found.has_gap for found in slices):
        bounds = raise_consistent_from(bounds, request, snapshots[0])
    offsets = [
        _find_offsets(found, [left[number] for left in survivors], request)
        for number, found in enumerate(slices)
    ]
    return Winners(bounds, np.concatenate(offsets))


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
    for found in iter_chunks(snapshot, request, bounds, check_crc=True):
        batches = found.chunk.batches
        lows = np.searchsorted(offsets, batches["base_offset"])
        highs = np.searchsorted(offsets, batches["last_offset"], "right")
        batches = batches[lows < highs]
        if len(batches):
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


def _open_slices(
    reader: LogReader, partition: TopicPartition, cuts: Sequence[int]
) -> list[LogSnapshot]:
    """Open the log as it is at one moment, once for each slice."""

    def take(log: PartitionLog) -> list[LogSnapshot]:
        dirty = CleanerCheckpoints(FileSystem(), log.directory.parent).find(partition)
        return [take_snapshot(log, dirty, start_offset=cut) for cut in cuts]

    return with_still_log(reader, partition, take)


def _find_offsets(
    found: SliceKeys, survivors: Sequence[Survivors], request: ViewRequest
) -> Offsets:
    left = np.sort(np.concatenate(survivors))
    if not request.shows_tombstones:
        left = left[(left & np.uint32(1)) == 0]
    return found.offsets.find((left >> np.uint32(1)).astype(np.int64))


def _make_share(offsets: Offsets) -> WinnerShare:
    first = int(offsets[0])
    steps = np.diff(offsets, prepend=first)
    step_bytes = int(np.min_scalar_type(int(steps.max())).itemsize)
    packed = steps.astype(np.dtype(f"u{step_bytes}")).tobytes()
    return WinnerShare(first, int(offsets[-1]) + 1, packed, step_bytes)


def _is_sparse(batches: Batches) -> NDArray[np.bool_]:
    is_sparse: NDArray[np.bool_] = (
        batches["last_offset"] - batches["base_offset"] + 1 != batches["record_count"]
    )
    return is_sparse
