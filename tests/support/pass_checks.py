"""What must hold of any plan and any pass, whoever carries it out: I3, I6 to I11, I15, I18, I19."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.log.partition_log import PartitionLog
from siltstone.records.record import Record
from tests.support.compacted_history import Stored, Written, read_stored, replay


def check_plan(log: PartitionLog, plan: CleaningPlan, now_ms: int) -> None:
    """I8: nothing is planned for that is active, undecided or too young."""
    assert plan.now_ms == now_ms
    assert plan.end_offset <= log.segments.active.base_offset
    assert plan.end_offset <= log.last_stable_offset
    oldest_ms = plan.now_ms - log.config.min_compaction_lag_ms
    if log.config.min_compaction_lag_ms:
        for stored in read_stored(log):
            if plan.first_dirty_offset <= stored.header.base_offset < plan.end_offset:
                assert stored.header.max_timestamp_ms <= oldest_ms


def check_same_bytes(directory: Path, results: Mapping[str, PassResult]) -> None:
    """I11: engines differ in nothing but names and time."""
    first, *others = (
        (
            [
                (
                    group.base_offsets,
                    group.is_unchanged,
                    [
                        (
                            output.base_offset,
                            file.extension,
                            (directory / file.name).read_bytes(),
                        )
                        for output in group.outputs
                        for file in output.files
                    ],
                )
                for group in result.groups
            ],
            result.counts,
            result.source_crcs,
        )
        for result in results.values()
    )
    for other in others:
        assert other == first


@dataclass(frozen=True)
class CheckedPass:
    """A pass that was committed, and what there was before and after it."""

    log: PartitionLog
    plan: CleaningPlan
    result: PassResult
    history: Mapping[int, Written]
    before: Sequence[Stored]
    after: Sequence[Stored]

    def check(self) -> None:
        """Hold what is there now against what was there before."""
        records_before = [r for stored in self.before for r in stored.records if not stored.marker]
        records_after = [r for stored in self.after for r in stored.records if not stored.marker]
        offsets_after = {record.offset for record in records_after}
        end_offset = self.plan.end_offset
        winners = {
            record.key: record
            for record in records_before
            if record.offset < end_offset and self.history[record.offset].is_committed
        }

        # I3: what is there was there, and in the same order.
        assert [r for r in records_before if r.offset in offsets_after] == records_after
        self._check_headers()

        # I6, I9, I15, I18: below the end exactly the winners, but for tombstones that are due.
        horizons_before = _horizons(self.before)
        expired = {
            record.offset
            for record in winners.values()
            if record.value is None
            and (horizon_ms := horizons_before[record.offset]) is not None
            and horizon_ms <= self.plan.now_ms
        }
        expected = {record.offset for record in winners.values()} - expired
        assert {offset for offset in offsets_after if offset < end_offset} == expected

        # I15: every tombstone that stays has a horizon, and none has moved.
        horizons_after = _horizons(self.after)
        new_ms = self.plan.now_ms + self.log.config.delete_retention_ms
        for record in records_after:
            horizon_ms = horizons_before[record.offset]
            if record.offset < end_offset and record.value is None and horizon_ms is None:
                assert horizons_after[record.offset] == new_ms
            else:
                assert horizons_after[record.offset] in (horizon_ms, new_ms)
                assert horizon_ms is None or horizons_after[record.offset] == horizon_ms

        # I10: from wherever one begins to read, the same values come out.
        for start in range(self.log.log_end_offset):
            assert replay(self._committed(records_after, start)) == replay(
                self._committed(records_before, start)
            )
        self._check_counts()

    def _check_headers(self) -> None:
        """I3: a batch keeps what identifies it; I19: a marker goes only after its time."""
        known = {stored.header.base_offset: stored for stored in self.before}
        for stored in self.after:
            old, new = known[stored.header.base_offset].header, stored.header
            assert (
                new._replace(
                    length=old.length,
                    crc=old.crc,
                    attributes=old.attributes,
                    base_timestamp_ms=old.base_timestamp_ms,
                    max_timestamp_ms=old.max_timestamp_ms,
                    record_count=old.record_count,
                )
                == old
            )
            assert new.is_empty or new.codec is old.codec
            assert (new.is_control, new.is_transactional) == (old.is_control, old.is_transactional)
        kept = {stored.header.base_offset for stored in self.after if stored.marker}
        for stored in self.before:
            if stored.marker and stored.header.base_offset not in kept:
                horizon_ms = stored.header.delete_horizon_ms
                assert horizon_ms is not None
                assert horizon_ms <= self.plan.now_ms

    def _check_counts(self) -> None:
        """I7: each removed record is counted, under the first reason that fits."""
        counts, end_offset = self.result.counts, self.plan.end_offset
        data_before = _below(self.before, end_offset, markers=False)
        data_after = _below(self.after, end_offset, markers=False)
        markers_before = _below(self.before, end_offset, markers=True)
        markers_after = _below(self.after, end_offset, markers=True)
        aborted = [record for record in data_before if self.history[record.offset].is_aborted]
        latest = {r.key: r.offset for r in data_before if self.history[r.offset].is_committed}
        superseded = [
            record
            for record in data_before
            if self.history[record.offset].is_committed and record.offset < latest[record.key]
        ]
        assert counts.records_read == len(data_before) + len(markers_before)
        assert counts.aborted_removed == len(aborted)
        assert counts.superseded == len(superseded)
        assert counts.records_kept == len(data_after)
        assert counts.tombstones_kept == sum(record.value is None for record in data_after)
        assert counts.tombstones_removed == (
            len(data_before) - len(aborted) - len(superseded) - len(data_after)
        )
        assert counts.markers_kept == len(markers_after)
        assert counts.markers_removed == len(markers_before) - len(markers_after)

    def _committed(self, records: Sequence[Record], start: int) -> list[Record]:
        return [r for r in records if r.offset >= start and self.history[r.offset].is_committed]


def _horizons(batches: Sequence[Stored]) -> dict[int, int | None]:
    return {
        record.offset: stored.header.delete_horizon_ms
        for stored in batches
        for record in stored.records
    }


def _below(batches: Sequence[Stored], end_offset: int, *, markers: bool) -> list[Record]:
    return [
        record
        for stored in batches
        if stored.header.base_offset < end_offset and bool(stored.marker) == markers
        for record in stored.records
    ]
