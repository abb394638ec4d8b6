"""A pass in plain Python, with a dict: slow, and obviously right. Kernels are held against it."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from siltstone.cleaner.output import GroupWriter, Written
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.rebuild import rebuild_batch
from siltstone.cleaner.result import GroupResult, PassCounts, PassResult
from siltstone.cleaner.storage import DirectoryStorage, PassStorage
from siltstone.cleaner.survival import (
    BatchFate,
    BatchRule,
    batch_fate,
    batch_rule,
    horizon_of,
    survives,
)
from siltstone.cleaner.transactions import TransactionTracker
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.stored_batches import iter_stored_batches
from siltstone.records.batch import Batch, read_header
from siltstone.records.builder import build_empty_batch
from siltstone.records.crc32c import crc32c
from siltstone.records.record import Record

_ATTEMPT: Final = "reference"


class ReferenceEngine:
    """Carries out plans batch by batch and record by record."""

    def run(self, plan: CleaningPlan) -> PassResult:
        """Write the cleaned files that the plan asks for; leave the live log alone."""
        started = time.perf_counter()
        storage = DirectoryStorage(plan.directory)
        cleaning = _Cleaning(plan, storage)
        groups = tuple(cleaning.clean(group) for group in plan.groups)
        crcs = tuple(
            crc32c(storage.open_source(source.base_offset).read(0, source.size_bytes))
            for source in plan.sources
        )
        seconds = time.perf_counter() - started
        return PassResult(plan.pass_id, groups, cleaning.counts, crcs, seconds)


class _Cleaning:
    def __init__(self, plan: CleaningPlan, storage: PassStorage) -> None:
        self.counts = PassCounts()
        self._plan = plan
        self._storage = storage
        self._sources = {source.base_offset: source for source in plan.sources}
        self._last_records = {record.producer_id: record for record in plan.last_records}
        self._latest_offsets = self._find_latest_offsets()
        self._tracker = TransactionTracker(plan.aborted)

    def _find_latest_offsets(self) -> dict[bytes, int]:
        """Map every key to the offset of its last committed record."""
        tracker = TransactionTracker(self._plan.aborted)
        latest: dict[bytes, int] = {}
        for source in self._plan.sources:
            for batch in self._batches(source.base_offset):
                if batch.header.is_control:
                    tracker.is_marker_discardable(batch.header, batch.marker())
                elif not tracker.is_aborted(batch.header):
                    for record in batch.iter_records():
                        if record.key is not None:
                            latest[record.key] = record.offset
        return latest

    def _batches(self, base_offset: int) -> Iterator[Batch]:
        """Yield the batches of a source, and say which file is to blame if one makes no sense."""
        file = self._storage.open_source(base_offset)
        size_bytes = self._sources[base_offset].size_bytes
        for position, batch in iter_stored_batches(file, 0, size_bytes):
            try:
                list(batch.iter_records())
            except DecodeError as error:
                raise CorruptBatchError(file.path, position, error.reason) from error
            yield batch

    def clean(self, group: Sequence[int]) -> GroupResult:
        """Clean one segment group."""
        writer = GroupWriter(self._plan, group, self._storage, _ATTEMPT)
        self._tracker.kept_aborts.clear()
        is_unchanged = len(group) == 1
        for base_offset in group:
            for batch in self._batches(base_offset):
                self.counts.bytes_read += batch.header.size_bytes
                cleaned = self._clean_batch(batch)
                is_unchanged = is_unchanged and cleaned == batch.data
                if cleaned is not None:
                    header = read_header(cleaned)
                    row = [
                        header.size_bytes,
                        header.base_offset,
                        header.last_offset,
                        header.max_timestamp_ms,
                    ]
                    writer.add(Written(memoryview(cleaned), np.array([row])))
        if is_unchanged:
            writer.discard()
            return GroupResult(tuple(group), (), is_unchanged=True)
        self.counts.bytes_written += writer.bytes_written
        return GroupResult(
            tuple(group), writer.finish(self._tracker.kept_aborts), is_unchanged=False
        )

    def _clean_batch(self, batch: Batch) -> bytes | memoryview | None:
        """Return what is left of a batch; None if nothing is."""
        header = batch.header
        plan = self._plan
        if header.is_control:
            is_discardable = self._tracker.is_marker_discardable(header, batch.marker())
        else:
            is_discardable = self._tracker.is_aborted(header)
        rule = batch_rule(
            header,
            is_discardable=is_discardable,
            last_record=self._last_records.get(header.producer_id),
            end_offset=plan.end_offset,
            now_ms=plan.now_ms,
        )
        survivors = self._survivors(batch, rule)
        has_tombstone = not header.is_control and any(r.is_tombstone for r in survivors)
        fate = batch_fate(header, rule, len(survivors), has_tombstone=has_tombstone)
        horizon_ms = horizon_of(
            header,
            rule,
            has_tombstone=has_tombstone,
            now_ms=plan.now_ms,
            retention_ms=plan.delete_retention_ms,
        )
        if horizon_ms is not None and survivors and (has_tombstone or rule.starts_waiting):
            self.counts.note_horizon(horizon_ms)
        match fate:
            case BatchFate.COPIED:
                return batch.data
            case BatchFate.REBUILT:
                return rebuild_batch(header, survivors, horizon_ms)
            case BatchFate.EMPTIED:
                self.counts.batches_emptied += 1
                return build_empty_batch(header)
            case BatchFate.DISCARDED:
                return None

    def _survivors(self, batch: Batch, rule: BatchRule) -> list[Record]:
        counts = self.counts
        header = batch.header
        records = list(batch.iter_records())
        counts.records_read += len(records)
        if header.is_control:
            survivors = [] if rule.discards_records else records
            counts.markers_kept += len(survivors)
            counts.markers_removed += len(records) - len(survivors)
            return survivors
        if rule.discards_records:
            counts.aborted_removed += len(records)
            return []
        survivors = []
        for record in records:
            if record.key is None:
                counts.keyless_removed += 1
                continue
            latest_offset = self._latest_offsets[record.key]
            if survives(
                record.offset,
                latest_offset,
                record.is_tombstone,
                header.delete_horizon_ms,
                self._plan.now_ms,
            ):
                survivors.append(record)
                counts.records_kept += 1
                counts.tombstones_kept += record.is_tombstone
            elif record.offset < latest_offset:
                counts.superseded += 1
            else:
                counts.tombstones_removed += 1
        return survivors
