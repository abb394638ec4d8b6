"""The second walk over sources: decides what is left of each batch, and writes it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.cleaner.batch_modes import BatchModes
from siltstone.cleaner.batch_writing import BatchWriter, Verdict
from siltstone.cleaner.chunks import PASS_CHUNK_BYTES, Chunk, iter_chunks
from siltstone.cleaner.key_hasher import Marks
from siltstone.cleaner.output import GroupWriter, Placed, Written
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import GroupResult, PassCounts
from siltstone.cleaner.side_by_side import Threads
from siltstone.cleaner.storage import PassStorage
from siltstone.cleaner.survival import is_last_of_producer
from siltstone.log.filesystem import File
from siltstone.records.builder import build_empty_batch
from siltstone.records.layout import CONTROL_BIT, DELETE_HORIZON_BIT


class _Judged(NamedTuple):
    """A chunk, and what becomes of it."""

    file: File
    chunk: Chunk
    verdict: Verdict
    ordinal: int  # of its first record in a data batch


_Place: TypeAlias = tuple[BatchWriter, list[Placed]]  # What was rewritten, and where it goes.


def _store(place: _Place) -> tuple[BatchWriter, list[Placed], list[int]]:
    batches, placed = place
    return batches, placed, [one.store() for one in placed]


class Rewriting:
    """Cleans segment groups, one after the other.

    `marks` are those of the records in data batches, in the order in which groups are cleaned.
    """

    def __init__(
        self,
        plan: CleaningPlan,
        storage: PassStorage,
        attempt: str,
        marks: Marks,
        modes: BatchModes,
        threads: Threads,
    ) -> None:
        self._plan = plan
        self._storage = storage
        self._attempt = attempt
        self._marks = marks
        self._modes = modes
        self._threads = threads
        self._sizes = {source.base_offset: source.size_bytes for source in plan.sources}
        self._last_records = {record.producer_id: record for record in plan.last_records}
        self._last_offsets = [
            record.last_data_offset
            for record in plan.last_records
            if record.last_data_offset is not None
        ]
        self._ordinal = 0  # of the next record in a data batch
        self._counts = np.zeros(kernels.COUNTS, np.int64)
        self._totals = PassCounts()
        self._idle: list[BatchWriter] = []

    def clean(self, group: Sequence[int]) -> GroupResult:
        """Clean one segment group; a single segment in which nothing changes is left alone."""
        if len(group) == 1 and self._is_unchanged(group[0]):
            return GroupResult(tuple(group), (), is_unchanged=True)
        writer = GroupWriter(self._plan, group, self._storage, self._attempt)
        self._modes.kept_aborts.clear()
        for batches, placed, crcs in self._threads.map(_store, self._place(group, writer)):
            for one, crc in zip(placed, crcs, strict=True):
                writer.note_stored(one, crc)
            self._idle.append(batches)
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

    def _place(self, group: Sequence[int], writer: GroupWriter) -> Iterator[_Place]:
        for batches, written in self._threads.map(self._rewrite, self._judge_group(group)):
            yield batches, writer.place(written)

    def _judge_group(self, group: Sequence[int]) -> Iterator[_Judged]:
        for base_offset in group:
            file = self._storage.open_source(base_offset)
            for chunk in self._iter_chunks(file, base_offset):
                ordinal = self._ordinal
                yield _Judged(file, chunk, self._judge(chunk, self._counts), ordinal)
            self._totals.bytes_read += self._sizes[base_offset]

    def _iter_chunks(self, file: File, base_offset: int) -> Iterator[Chunk]:
        return iter_chunks(
            file, 0, self._sizes[base_offset], self._modes, chunk_bytes=PASS_CHUNK_BYTES
        )

    def _rewrite(self, judged: _Judged) -> tuple[BatchWriter, Written]:
        """Rewrite a chunk; what comes out is valid until its writer is used again."""
        try:
            batches = self._idle.pop()
        except IndexError:
            batches = BatchWriter(self._marks, self._plan.now_ms, self._new_horizon_ms)
        file, chunk = judged.file, judged.chunk
        written = batches.write(file, chunk, judged.verdict, judged.ordinal)
        file.drop_view(chunk.position, len(chunk.view))
        return batches, written

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

    def _judge(self, chunk: Chunk, counts: NDArray[np.int64]) -> Verdict:
        count = len(chunk.batches)
        verdict = Verdict(np.empty(count, np.uint8), np.empty(count, np.bool_))
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
            is_active = np.isin(batches["producer_id"], list(self._last_records))
            # Of most batches the offset says that it is not theirs.
            is_control = (batches["attributes"] & CONTROL_BIT) != 0
            may_be_last = np.isin(batches["last_offset"], self._last_offsets) | is_control
            for number in np.flatnonzero(is_active & may_be_last):
                last_record = self._last_records[int(batches["producer_id"][number])]
                header = chunk.batch_at(int(number)).header
                keeps[number] |= is_last_of_producer(header, last_record)
        return keeps

    def _note_horizons(self, chunk: Chunk, verdict: Verdict) -> None:
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


def _is_empty_already(chunk: Chunk, number: int, fate: int) -> bool:
    """Say whether a batch is emptied that an earlier pass has left empty: its bytes stay."""
    if fate != kernels.EMPTIED:
        return False
    batch = chunk.batch_at(number)
    return build_empty_batch(batch.header) == batch.data
