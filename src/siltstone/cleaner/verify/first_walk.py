"""The first walk over a log: all that headers, markers, checksums and indexes tell."""

from siltstone.cleaner.verify.batches import BatchWalker, Chunk, Columns
from siltstone.cleaner.verify.files import LogFiles
from siltstone.cleaner.verify.findings import Findings
from siltstone.cleaner.verify.indexes import check_indexes
from siltstone.cleaner.verify.manifests import PassRecord
from siltstone.cleaner.verify.producers import LastBatchCheck, ProducerCheck, rows_that_count
from siltstone.cleaner.verify.transactions import Ledger, Place
from siltstone.errors import DecodeError
from siltstone.log.filesystem import FileSystem
from siltstone.records.batch import read_batch
from siltstone.records.layout import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT


class FirstWalk:
    """Goes through all segments once; what it has counted and followed is there afterwards."""

    def __init__(
        self,
        fs: FileSystem,
        files: LogFiles,
        findings: Findings,
        now_ms: int,
        last_pass: PassRecord | None,
    ) -> None:
        self.walker = BatchWalker(fs, files, findings)
        self.batch_count = 0
        self.record_count = 0
        self.output_record_count = 0  # in the segments that the last pass left
        self.expired_marker_count = 0
        self.early_horizon_count = 0
        self.log_end_offset = files.segments[-1].base_offset if files.segments else 0
        self._files = files
        self._findings = findings
        self._now_ms = now_ms
        self._clean_offset = files.cleaner_checkpoint or 0
        self._last_pass = last_pass
        self.ledger = Ledger(findings, files.log_start_offset, self._clean_offset)
        self.producers = ProducerCheck(files, findings, now_ms, is_own_pass=last_pass is not None)
        self.last_batches = LastBatchCheck(
            () if last_pass is None else last_pass.plan.last_records,
            files.log_start_offset,
            0 if last_pass is None else last_pass.plan.end_offset,
        )

    def run(self) -> None:
        """Walk over all segments."""
        for segment in self._files.segments:
            columns = []
            for chunk in self.walker.check(segment):
                self._take(chunk)
                columns.append(Columns.of(chunk))
            layout = self.walker.layout(segment, columns)
            check_indexes(segment, layout, self._findings, was_clean=self._files.was_clean)

    def _take(self, chunk: Chunk) -> None:
        rows = chunk.batches
        count = int(rows["record_count"].sum())
        self.batch_count += len(rows)
        self.record_count += count
        last_pass = self._last_pass
        if last_pass is not None and chunk.segment.base_offset < last_pass.plan.end_offset:
            self.output_record_count += count
        self.log_end_offset = max(self.log_end_offset, int(rows["last_offset"].max()) + 1)
        self.last_batches.take(rows)
        self._count_horizons(chunk)
        for number in rows_that_count(rows).tolist():
            self._take_producer(chunk, int(rows["position"][number]))

    def _take_producer(self, chunk: Chunk, position: int) -> None:
        batch = read_batch(chunk.data, position)
        header = batch.header
        place = Place(chunk.segment.name, chunk.position + position, header.base_offset)
        try:
            marker = batch.marker()
        except DecodeError as error:
            self._findings.violation(
                "I1", error.reason, file=place.file, position=place.position, offset=place.offset
            )
            return
        self.producers.take(place, header, marker)
        if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
            self.ledger.take(place, header, marker)

    def _count_horizons(self, chunk: Chunk) -> None:
        rows = chunk.batches
        has_horizon = (rows["attributes"] & DELETE_HORIZON_BIT) != 0
        if not has_horizon.any():
            return
        is_clean = rows["base_offset"] < self._clean_offset
        is_marker = (rows["attributes"] & CONTROL_BIT) != 0
        is_due = rows["base_timestamp_ms"] <= self._now_ms
        self.expired_marker_count += int((has_horizon & is_clean & is_marker & is_due).sum())
        self.early_horizon_count += int((has_horizon & ~is_clean).sum())
