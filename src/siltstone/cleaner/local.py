"""A pass with the kernels, in this process: two walks over the sources of one log.

The first checks every CRC and enters every key, so that afterwards each record is known to be the
last of its key or not. The second decides what is left of each batch and writes it. Between them
only a byte per record and the table of keys are kept.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.cleaner.batch_modes import BatchModes, TrackedModes
from siltstone.cleaner.chunks import Chunk, ChunkReader
from siltstone.cleaner.key_marks import KeyMarks
from siltstone.cleaner.output import GroupWriter
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import GroupResult, PassCounts, PassResult
from siltstone.cleaner.storage import DirectoryStorage, PassStorage
from siltstone.cleaner.survival import is_last_of_producer
from siltstone.cleaner.unpacking import is_compressed, pack, unpack
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.records.batch import Batch, read_batch
from siltstone.records.builder import build_empty_batch
from siltstone.records.layout import DELETE_HORIZON_BIT
from siltstone.records.scan import as_bytes

_OUTPUT_BYTES: Final = 8 << 20
_OUTPUT_BATCHES: Final = 1 << 14


class LocalEngine:
    """Carries out plans in this process, one partition at a time.

    `attempt` names the files it writes: two attempts at one plan do not get in each other's way.
    `reads_ahead` lets a second thread read and check what comes next, for a core that is idle.
    """

    def __init__(
        self,
        attempt: str = "local",
        open_storage: Callable[[Path], PassStorage] = DirectoryStorage,
        *,
        reads_ahead: bool = False,
    ) -> None:
        self._attempt = attempt
        self._open_storage = open_storage
        self._reads_ahead = reads_ahead

    def run(self, plan: CleaningPlan) -> PassResult:
        """Write the cleaned files that the plan asks for; leave the live log alone."""
        started = time.perf_counter()
        storage = self._open_storage(plan.directory)
        with closing(ChunkReader(reads_ahead=self._reads_ahead)) as reader:
            walk = KeyWalk(storage, KeyMarks(plan.hash_key), TrackedModes(plan.aborted), reader)
            crcs = tuple(walk.enter(s.base_offset, 0, s.size_bytes) for s in plan.sources)
            walk.keys.mark_winners()
            rewriting = Rewriting(
                plan, storage, self._attempt, walk.keys.marks, TrackedModes(plan.aborted), reader
            )
            groups = tuple(rewriting.clean(group) for group in plan.groups)
        seconds = time.perf_counter() - started
        return PassResult(plan.pass_id, groups, rewriting.total_counts(), crcs, seconds)


class KeyWalk:
    """The first walk: checks every batch and enters every key."""

    def __init__(
        self,
        storage: PassStorage,
        keys: KeyMarks,
        modes: BatchModes,
        reader: ChunkReader | None = None,
    ) -> None:
        self.keys = keys
        self.next_offset = 0  # after the last batch
        self._storage = storage
        self._modes = modes
        self._reader = reader or ChunkReader()

    def enter(self, base_offset: int, start: int, end: int) -> int:
        """Enter the keys between two positions of a source; return the CRC of the bytes there."""
        file = self._storage.open_source(base_offset)
        crc = 0
        for chunk in self._reader.iter_chunks(file, start, end, self._modes, check_crc=True):
            crc = chunk.crc
            enter_chunk(self.keys, file, chunk, self._reader.pool)
            self.next_offset = int(chunk.batches["last_offset"][-1]) + 1
        return crc


def enter_chunk(
    keys: KeyMarks, file: File, chunk: Chunk, pool: ThreadPoolExecutor | None = None
) -> None:
    """Enter the keys of all data batches of a chunk."""
    number = 0
    while number < len(chunk.batches):
        number, why = keys.enter(chunk.data, chunk.batches, chunk.modes, number)
        if why == kernels.COMPRESSED:
            number = _enter_compressed(keys, file, chunk, number, pool)
        elif why == kernels.REFUSED:
            _explain(file, chunk, number)


def _enter_compressed(
    keys: KeyMarks, file: File, chunk: Chunk, first: int, pool: ThreadPoolExecutor | None
) -> int:
    """Enter compressed batches from number `first` on; return the number to go on with."""
    plain = np.flatnonzero(~is_compressed(chunk.batches) & (chunk.modes == kernels.DATA))
    following = plain[np.searchsorted(plain, first) :]
    stop = int(following[0]) if len(following) else len(chunk.batches)
    numbers = first + np.flatnonzero(chunk.modes[first:stop] == kernels.DATA)
    data, table, count = unpack(file, chunk, numbers, pool)
    if count < len(numbers):
        stop = int(numbers[count])
    number, why = keys.enter(data, table[:stop], chunk.modes, first, is_unpacked=True)
    if why == kernels.REFUSED:
        _explain(file, chunk, number)
    return stop


class _Verdict(NamedTuple):
    """What becomes of the batches of one chunk."""

    fates: NDArray[np.uint8]
    has_tombstones: NDArray[np.bool_]


class Rewriting:
    """The second walk: decides what is left of each batch, and writes it.

    `marks` are those of the records in data batches, in the order in which groups are cleaned.
    """

    def __init__(
        self,
        plan: CleaningPlan,
        storage: PassStorage,
        attempt: str,
        marks: NDArray[np.uint8],
        modes: BatchModes,
        reader: ChunkReader | None = None,
    ) -> None:
        self._plan = plan
        self._storage = storage
        self._attempt = attempt
        self._marks = marks
        self._modes = modes
        self._sizes = {source.base_offset: source.size_bytes for source in plan.sources}
        self._last_records = {record.producer_id: record for record in plan.last_records}
        self._reader = reader or ChunkReader()
        self._ordinal = 0  # of the next record in a data batch
        self._counts = np.zeros(kernels.COUNTS, np.int64)
        self._totals = PassCounts()
        self._out = np.empty(_OUTPUT_BYTES, np.uint8)
        self._written = np.empty((_OUTPUT_BATCHES, 4), np.int64)

    def clean(self, group: Sequence[int]) -> GroupResult:
        """Clean one segment group; a single segment in which nothing changes is left alone."""
        if len(group) == 1 and self._is_unchanged(group[0]):
            return GroupResult(tuple(group), (), is_unchanged=True)
        writer = GroupWriter(self._plan, group, self._storage, self._attempt)
        self._modes.kept_aborts.clear()
        for base_offset in group:
            file = self._storage.open_source(base_offset)
            for chunk in self._iter_chunks(file, base_offset):
                ordinal = self._ordinal
                verdict = self._judge(chunk, self._counts)
                self._write_chunk(file, chunk, verdict, ordinal, writer)
            self._totals.bytes_read += self._sizes[base_offset]
        self._totals.bytes_written += writer.bytes_written
        return GroupResult(tuple(group), writer.finish(self._modes.kept_aborts), is_unchanged=False)

    def total_counts(self) -> PassCounts:
        """Return what became of every record."""
        counts = self._counts
        totals = self._totals
        totals.superseded = int(counts[kernels.SUPERSEDED])
        totals.keyless_removed = int(counts[kernels.KEYLESS_REMOVED])
        totals.aborted_removed = int(counts[kernels.ABORTED_REMOVED])
        totals.tombstones_kept = int(counts[kernels.TOMBSTONES_KEPT])
        totals.tombstones_removed = int(counts[kernels.TOMBSTONES_REMOVED])
        totals.markers_kept = int(counts[kernels.MARKERS_KEPT])
        totals.markers_removed = int(counts[kernels.MARKERS_REMOVED])
        totals.records_kept = int(counts[kernels.RECORDS_KEPT])
        totals.records_read = int(counts[kernels.RECORDS_READ])
        totals.batches_emptied = int(counts[kernels.BATCHES_EMPTIED])
        return totals

    def _iter_chunks(self, file: File, base_offset: int) -> Any:
        return self._reader.iter_chunks(
            file, 0, self._sizes[base_offset], self._modes, check_crc=False
        )

    def _is_unchanged(self, base_offset: int) -> bool:
        """Judge a segment without writing; if anything changes, all is as before the call."""
        before = self._modes.copy(), self._ordinal, self._totals.earliest_horizon_ms
        counts = self._counts.copy()
        file = self._storage.open_source(base_offset)
        for chunk in self._iter_chunks(file, base_offset):
            fates = self._judge(chunk, counts).fates
            if not all(_is_empty_already(chunk, int(n), fates[n]) for n in np.flatnonzero(fates)):
                self._modes, self._ordinal, self._totals.earliest_horizon_ms = before
                return False
        self._counts = counts
        self._totals.bytes_read += self._sizes[base_offset]
        return True

    def _judge(self, chunk: Chunk, counts: NDArray[np.int64]) -> _Verdict:
        count = len(chunk.batches)
        verdict = _Verdict(np.empty(count, np.uint8), np.empty(count, np.bool_))
        self._ordinal = kernels.judge_batches(
            chunk.batches,
            chunk.modes,
            self._keeps_header(chunk),
            self._marks,
            self._ordinal,
            self._plan.now_ms,
            verdict.fates,
            verdict.has_tombstones,
            counts,
        )
        self._note_horizons(chunk, verdict)
        return verdict

    def _keeps_header(self, chunk: Chunk) -> NDArray[np.bool_]:
        batches = chunk.batches
        keeps: NDArray[np.bool_] = batches["last_offset"] + 1 == self._plan.end_offset
        if self._last_records:
            for number in np.flatnonzero(batches["producer_id"] >= 0):
                last_record = self._last_records.get(int(batches["producer_id"][number]))
                if last_record is not None and is_last_of_producer(
                    _batch_at(chunk, int(number)).header, last_record
                ):
                    keeps[number] = True
        return keeps

    def _note_horizons(self, chunk: Chunk, verdict: _Verdict) -> None:
        """Remember when the first tombstone or marker that stays is due."""
        batches = chunk.batches
        stays = (verdict.fates == kernels.COPIED) | (verdict.fates == kernels.REBUILT)
        waits = stays & (verdict.has_tombstones | (chunk.modes == kernels.SPENT_MARKER))
        if not waits.any():
            return
        has_horizon = (batches["attributes"] & DELETE_HORIZON_BIT) != 0
        if (waits & has_horizon).any():
            self._totals.note_horizon(int(batches["base_timestamp_ms"][waits & has_horizon].min()))
        if (waits & ~has_horizon).any():
            self._totals.note_horizon(self._new_horizon_ms)

    @property
    def _new_horizon_ms(self) -> int:
        return self._plan.now_ms + self._plan.delete_retention_ms

    def _write_chunk(
        self, file: File, chunk: Chunk, verdict: _Verdict, ordinal: int, writer: GroupWriter
    ) -> None:
        chunk, verdict = self._repacked(file, chunk, verdict, ordinal)
        number = count = position = 0
        while number < len(chunk.batches):
            number, ordinal, count, position, why = self._rewrite(
                chunk, verdict, number, ordinal, is_unpacked=False
            )
            if why == kernels.REFUSED:
                _explain(file, chunk, number)
            self._hand_over(writer, count, position)

    def _rewrite(
        self, chunk: Chunk, verdict: _Verdict, number: int, ordinal: int, *, is_unpacked: bool
    ) -> tuple[int, int, int, int, int]:
        """Rewrite batches from a number on, as many as there is room for."""
        while True:
            found: tuple[int, int, int, int, int] = kernels.rewrite_batches(
                chunk.data,
                chunk.batches,
                chunk.modes,
                verdict.fates,
                verdict.has_tombstones,
                self._marks,
                number,
                ordinal,
                self._plan.now_ms,
                self._new_horizon_ms,
                is_unpacked,
                self._out,
                self._written,
            )
            if found[4] != kernels.FULL or found[2]:
                return found
            self._out = np.empty(2 * len(self._out), np.uint8)

    def _repacked(
        self, file: File, chunk: Chunk, verdict: _Verdict, ordinal: int
    ) -> tuple[Chunk, _Verdict]:
        """Rebuild the compressed batches; return the chunk with them, to be copied as they are."""
        todo = np.flatnonzero((verdict.fates == kernels.REBUILT) & is_compressed(chunk.batches))
        if not len(todo):
            return chunk, verdict
        batches = chunk.batches.copy()
        parts: list[Any] = [chunk.view]
        end = len(chunk.view)
        done = 0
        while done < len(todo):
            data, table, count = unpack(file, chunk, todo[done:], self._reader.pool)
            unpacked = chunk._replace(data=data, batches=table)
            numbers = todo[done : done + count]
            for number, packed, max_timestamp_ms in self._pack(
                file, unpacked, verdict, numbers, ordinal
            ):
                parts.append(packed)
                batches["position"][number] = end
                batches["size_bytes"][number] = len(packed)
                batches["max_timestamp_ms"][number] = max_timestamp_ms
                end += len(packed)
            done += count
        fates = verdict.fates.copy()
        fates[todo] = kernels.COPIED
        view = memoryview(b"".join(parts))
        repacked = chunk._replace(view=view, data=as_bytes(view), batches=batches)
        return repacked, _Verdict(fates, verdict.has_tombstones)

    def _pack(
        self, file: File, unpacked: Chunk, verdict: _Verdict, numbers: Any, ordinal: int
    ) -> Iterator[tuple[int, bytes, int]]:
        """Rebuild some batches of a chunk; yield number, bytes and newest timestamp of each."""
        fates = np.full(len(verdict.fates), kernels.DISCARDED, np.uint8)
        fates[numbers] = kernels.REBUILT
        only = _Verdict(fates, verdict.has_tombstones)
        slot = number = 0
        while slot < len(numbers):
            number, ordinal, count, position, why = self._rewrite(
                unpacked, only, number, ordinal, is_unpacked=True
            )
            if why == kernels.REFUSED:
                raise AssertionError(f"batch {number} of {file.path} was sound before")
            rows = self._written[:count]
            packed = pack(self._out[:position], rows[:, 0].tolist(), self._reader.pool)
            yield from zip(
                numbers[slot : slot + count].tolist(), packed, rows[:, 3].tolist(), strict=True
            )
            slot += count

    def _hand_over(self, writer: GroupWriter, count: int, position: int) -> None:
        if count:
            rows = self._written[:count]
            writer.add(
                self._out[:position].data,
                sizes=rows[:, 0],
                base_offsets=rows[:, 1],
                last_offsets=rows[:, 2],
                max_timestamps=rows[:, 3],
            )


def _batch_at(chunk: Chunk, number: int) -> Batch:
    return read_batch(chunk.view, int(chunk.batches["position"][number]))


def _is_empty_already(chunk: Chunk, number: int, fate: int) -> bool:
    """Say whether a batch is emptied that an earlier pass has left empty: its bytes stay."""
    if fate != kernels.EMPTIED:
        return False
    batch = _batch_at(chunk, number)
    return build_empty_batch(batch.header) == batch.data


def _corrupt(file: File, chunk: Chunk, number: int, error: DecodeError) -> CorruptBatchError:
    position = chunk.position + int(chunk.batches["position"][number])
    return CorruptBatchError(file.path, position, error.reason)


def _explain(file: File, chunk: Chunk, number: int) -> NoReturn:
    """Ask the plain code why a kernel refused a batch."""
    try:
        for _ in _batch_at(chunk, number).iter_records():
            pass
    except DecodeError as error:
        raise _corrupt(file, chunk, number, error) from error
    raise AssertionError(f"kernel and twin disagree about batch {number} of {file.path}")
