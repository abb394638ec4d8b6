"""Verify one partition: by itself, and against a copy from before if there is one.

A log by itself can say a lot. It is sound, in order and rightly indexed, or not. Below the first
dirty offset a pass has been, so there keys are unique, transactions decided, and aborted data gone.
And every manifest must add up.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.cleaner.verify.against import verify_against
from siltstone.cleaner.verify.batches import BatchWalker, check_segments
from siltstone.cleaner.verify.files import LogFiles, SegmentFiles, read_log_files
from siltstone.cleaner.verify.findings import Finding, Findings, Severity
from siltstone.cleaner.verify.first_walk import FirstWalk
from siltstone.cleaner.verify.history import find_history
from siltstone.cleaner.verify.manifests import (
    PassRecord,
    check_kept,
    check_manifests,
    check_outputs,
    find_last_pass,
    parse_manifests,
    severity_of_change,
)
from siltstone.cleaner.verify.record_blocks import RecordHasher
from siltstone.cleaner.verify.records import RecordCheck
from siltstone.cleaner.verify.retentions import check_retentions
from siltstone.cleaner.verify.tables import read_table
from siltstone.cleaner.verify.transactions import check_transaction_indexes
from siltstone.errors import CorruptBatchError, LogDirOfflineError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem

_ATTEMPTS: Final = 5  # an owner that rolls, cleans or deletes takes files away under our hands


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What to verify, and how."""

    partition: TopicPartition
    log_dir: Path  # that holds the partition's directory
    config: LogConfig
    now_ms: int
    deep: bool = False  # every record, not only headers, checksums and indexes
    before_dir: Path | None = None  # a copy of the log directory from before; implies `deep`


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found, and how much was looked at."""

    partition: TopicPartition
    findings: tuple[Finding, ...]
    segment_count: int
    batch_count: int
    record_count: int
    size_bytes: int
    log_start_offset: int
    first_dirty_offset: int
    log_end_offset: int

    @property
    def violations(self) -> tuple[Finding, ...]:
        """What must never be."""
        return tuple(f for f in self.findings if f.severity is Severity.VIOLATION)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What a stock Kafka may leave behind."""
        return tuple(f for f in self.findings if f.severity is Severity.WARNING)

    @property
    def is_ok(self) -> bool:
        """Say whether every invariant holds."""
        return not self.violations


def verify_partition(request: VerifyRequest, fs: FileSystem | None = None) -> Report:
    """Check every invariant of a partition; nothing is written, and its owner may be at work."""
    fs = fs or FileSystem()
    path = request.log_dir / filenames.partition_dir_name(request.partition)
    if not path.is_dir():
        raise LogDirOfflineError(path, "does not exist")
    for attempt in range(_ATTEMPTS):
        try:
            verification = _Verification(fs, request)
            report = verification.run()
            if attempt == _ATTEMPTS - 1 or verification.is_unchanged():
                return report
        except FileNotFoundError:
            continue
    raise LogDirOfflineError(path, "changes faster than it can be read")


class _Verification:
    def __init__(self, fs: FileSystem, request: VerifyRequest) -> None:
        self._fs = fs
        self._request = request
        self._findings = Findings(request.partition)
        self._files: LogFiles | None = None
        self._clean_offset = 0
        self._expired_count = 0

    def is_unchanged(self) -> bool:
        """Say whether the segments are still those that were looked at."""
        return self._files is None or self._files.signature() == self._signature

    def run(self) -> Report:
        request, findings = self._request, self._findings
        try:
            files = read_log_files(self._fs, request.log_dir, request.partition, findings)
        except CorruptBatchError as error:
            findings.violation(
                "I21",
                f"a swap cannot be finished: {error.reason}",
                file=error.path.name,
                position=error.position,
            )
            return self._report(None)
        self._files = files
        self._signature = files.signature()
        _check_leftovers(files, findings)
        manifests = parse_manifests(files, findings)
        passes = manifests.passes
        check_manifests(passes, findings)
        check_retentions(files, manifests.retentions, manifests.left_by_passes(), findings)
        last_pass = find_last_pass(files, passes)

        walk = FirstWalk(self._fs, files, findings, request.now_ms, last_pass)
        walk.run()
        is_valid = self._check_offsets(files, walk)
        self._clean_offset = (files.cleaner_checkpoint or 0) if is_valid else files.log_start_offset
        walk.ledger.finish(is_clean_offset_valid=is_valid)
        walk.producers.finish(walk.log_end_offset)
        check_transaction_indexes(files, walk.ledger, findings)
        check_segments(files, self._clean_offset, request.config.segment_bytes, findings)
        if last_pass is not None:
            walk.last_batches.finish(last_pass.name, findings, severity_of_change(files))
            check_outputs(self._fs, files, last_pass, findings)
            check_kept(last_pass, files, walk.output_record_count, findings)
        self._expired_count = walk.expired_marker_count
        if request.deep or request.before_dir is not None:
            self._check_records(files, walk, last_pass)
        self._note_horizons(walk)
        if request.before_dir is not None:
            self._verify_against(request.before_dir, files, walk, passes)
        return self._report(walk)

    def _check_offsets(self, files: LogFiles, walk: FirstWalk) -> bool:
        """Check I5, I8 and I22; say whether the cleaner checkpoint means anything."""
        findings = self._findings
        end_offset = walk.log_end_offset
        # After a crash a log may be shorter than what was written down about it.
        severity = Severity.VIOLATION if files.was_clean else Severity.WARNING
        for name, what in (
            (filenames.LOG_START_OFFSETS, "log start"),
            (filenames.HIGH_WATERMARKS, "high watermark"),
            (filenames.RECOVERY_POINTS, "recovery point"),
        ):
            offset = files.checkpoints.get(name, 0)
            if offset > end_offset:
                findings.add(
                    severity,
                    "I5",
                    f"says {what} {offset}, but the log ends at {end_offset}",
                    name,
                    offset=offset,
                )
        checkpoint = files.cleaner_checkpoint
        if checkpoint is None:
            return False
        name = filenames.CLEANER_OFFSETS
        if checkpoint > end_offset:
            findings.add(
                severity,
                "I22",
                f"says first dirty offset {checkpoint}, but the log ends at {end_offset}",
                name,
                offset=checkpoint,
            )
            return False
        if checkpoint < files.log_start_offset:
            findings.warning(
                "I22",
                f"says first dirty offset {checkpoint}, but the log starts at "
                f"{files.log_start_offset}: the next pass starts there",
                file=name,
                offset=checkpoint,
            )
            return False
        if files.segments and checkpoint > files.segments[-1].base_offset:
            findings.add(
                severity,
                "I8",
                f"says first dirty offset {checkpoint}, in the active segment, which begins at "
                f"{files.segments[-1].base_offset}",
                name,
                offset=checkpoint,
            )
        return True

    def _check_records(
        self, files: LogFiles, walk: FirstWalk, last_pass: PassRecord | None
    ) -> None:
        check = RecordCheck(
            self._findings,
            walk.ledger.aborted_ranges(),
            log_start_offset=files.log_start_offset,
            clean_offset=self._clean_offset,
            now_ms=self._request.now_ms,
            is_own_pass=last_pass is not None,
        )
        for segment in files.segments:
            for chunk in walk.walker.again(segment):
                check.take(chunk)
        check.finish(walk.walker, files)
        self._expired_count += check.expired_count
        if (
            last_pass is not None
            and last_pass.plan.sources[0].base_offset == files.log_start_offset
            and check.tombstone_count != last_pass.counts.tombstones_kept
        ):
            self._findings.add(
                severity_of_change(files),
                "I7",
                f"says that {last_pass.counts.tombstones_kept} tombstones were kept, "
                f"{check.tombstone_count} are there",
                last_pass.name,
            )

    def _note_horizons(self, walk: FirstWalk) -> None:
        if self._expired_count:
            self._findings.warning(
                "I15",
                f"{self._expired_count} tombstones or markers are past their delete horizon: a "
                "pass is due",
            )
        if walk.early_horizon_count:
            self._findings.warning(
                "I15",
                f"{walk.early_horizon_count} batches at or above the first dirty offset have a "
                "delete horizon: a pass was not finished, or they came from another replica",
            )

    def _verify_against(
        self, before_dir: Path, files: LogFiles, walk: FirstWalk, passes: list[PassRecord]
    ) -> None:
        request, findings = self._request, self._findings
        if not (before_dir / filenames.partition_dir_name(request.partition)).is_dir():
            findings.warning("I3", f"{before_dir} has no copy of this partition")
            return
        old_findings = Findings(request.partition)
        old_files = read_log_files(self._fs, before_dir, request.partition, old_findings)
        walker = BatchWalker(self._fs, old_files, old_findings)
        old_end_offset = old_files.segments[-1].base_offset if old_files.segments else 0
        for segment in old_files.segments:
            for chunk in walker.check(segment):
                old_end_offset = max(old_end_offset, int(chunk.batches["last_offset"].max()) + 1)
        for finding in old_findings.finish():
            if finding.severity is Severity.VIOLATION:
                findings.add(
                    Severity.VIOLATION,
                    finding.invariant,
                    f"in the copy from before: {finding.message}",
                    finding.file,
                    finding.position,
                    finding.offset,
                )
        hasher = RecordHasher()
        history = find_history(self._fs, old_files, files, passes, request.now_ms)
        verify_against(
            self._fs,
            read_table(old_files, walker, old_end_offset, hasher),
            read_table(files, walk.walker, walk.log_end_offset, hasher),
            history,
            request.config,
            findings,
        )

    def _report(self, walk: FirstWalk | None) -> Report:
        files = self._files
        segments: tuple[SegmentFiles, ...] = () if files is None else files.segments
        return Report(
            partition=self._request.partition,
            findings=self._findings.finish(),
            segment_count=len(segments),
            batch_count=0 if walk is None else walk.batch_count,
            record_count=0 if walk is None else walk.record_count,
            size_bytes=sum(segment.size_bytes for segment in segments),
            log_start_offset=0 if files is None else files.log_start_offset,
            first_dirty_offset=self._clean_offset,
            log_end_offset=0 if walk is None else walk.log_end_offset,
        )


def _check_leftovers(files: LogFiles, findings: Findings) -> None:
    """Check I21: nothing is left of a swap, or of a pass that was not committed."""
    for name in files.leftovers:
        if name.endswith(filenames.SWAP):
            severity = Severity.VIOLATION if files.was_clean else Severity.WARNING
            message = "of an interrupted swap, which the next load finishes or takes back"
        else:
            severity = Severity.WARNING
            message = "of a pass that was not committed, which the next load deletes"
        findings.add(severity, "I21", f"left over {message}", name)
