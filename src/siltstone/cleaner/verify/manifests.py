"""I7 as far as the manifests of a log tell it: what was read is what was kept and what was removed.

The newest manifest also says what the cleaned segments must look like now, unless somebody else has
cleaned the log since: then the first dirty offset lies further on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Final, NamedTuple

from siltstone.cleaner.file_mark import FileMark, read_mark
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import GroupResult, OutputFile, OutputSegment, PassCounts
from siltstone.cleaner.retention import RETENTION, RetentionPlan
from siltstone.cleaner.verify.files import LogFiles, SegmentFiles
from siltstone.cleaner.verify.findings import Findings, Severity
from siltstone.cleaner.verify.retentions import RetentionRecord
from siltstone.errors import DecodeError, SiltstoneError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.records.batch import read_header
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import HEADER_SIZE

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """What a manifest says of its pass."""

    name: str
    committed_ms: int
    plan: CleaningPlan
    inputs: dict[int, FileMark]  # log files, by base offset
    groups: tuple[GroupResult, ...]
    counts: PassCounts

    @property
    def kept_count(self) -> int:
        """How many records, markers included, the pass left."""
        return self.counts.records_kept + self.counts.markers_kept

    @property
    def outputs(self) -> dict[int, dict[str, FileMark]]:
        """The files that the pass left, by base offset and extension; indexes only if written."""
        marks = {}
        for group in self.groups:
            if group.is_unchanged:
                for base_offset in group.base_offsets:
                    marks[base_offset] = {filenames.LOG: self.inputs[base_offset]}
            for output in group.outputs:
                marks[output.base_offset] = {
                    file.extension: FileMark(file.size_bytes, file.crc32c) for file in output.files
                }
        return marks

    def single_source_bytes(self, base_offset: int) -> int:
        """Return the size of the one source of an output, 0 if it had several."""
        groups = [group for group in self.groups if group.base_offsets == (base_offset,)]
        return self.inputs[base_offset].size_bytes if groups else 0

    def goes_on_from(self, other: "PassRecord") -> bool:
        """Say whether this pass read what another one has left, as far as both say."""
        return all(
            self.inputs.get(base_offset, marks[filenames.LOG]) == marks[filenames.LOG]
            for base_offset, marks in other.outputs.items()
        )


class Manifests(NamedTuple):
    """What the manifests of a log tell, each kind oldest first."""

    passes: list[PassRecord]
    retentions: list[RetentionRecord]

    def left_by_passes(self) -> dict[int, list[FileMark]]:
        """Return the log files that passes have written or left, by base offset."""
        marks: dict[int, list[FileMark]] = {}
        for record in self.passes:
            for base_offset, files in record.outputs.items():
                marks.setdefault(base_offset, []).append(files[filenames.LOG])
        return marks


def parse_manifests(files: LogFiles, findings: Findings) -> Manifests:
    """Take the manifests of a log apart, and note those that make no sense."""
    manifests = Manifests([], [])
    for name, data in files.manifests.items():
        try:
            fields = json.loads(data)
            if fields["version"] != _VERSION:
                raise ValueError(f"unknown version {fields['version']}")
            if fields.get("kind") == RETENTION:
                retention = RetentionRecord.parse(name, fields)
                _check_subject(files, name, retention.plan)
                manifests.retentions.append(retention)
            else:
                record = _parse(name, fields)
                _check_subject(files, name, record.plan)
                manifests.passes.append(record)
        except (KeyError, TypeError, ValueError, AttributeError, SiltstoneError) as error:
            reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else error
            findings.violation("I7", f"is no manifest of this log: {reason}", file=name)
    return manifests


def _check_subject(files: LogFiles, name: str, plan: CleaningPlan | RetentionPlan) -> None:
    if plan.partition != files.partition:
        raise ValueError(f"is about {plan.partition}")
    file = filenames.parse_manifest(name)
    if file is None or file.pass_id != plan.pass_id:
        raise ValueError(f"is about pass {plan.pass_id}")


def find_last_pass(files: LogFiles, passes: Sequence[PassRecord]) -> PassRecord | None:
    """Return the pass that left the log as it is, unless somebody else was there after it."""
    candidates = [p for p in passes if p.plan.end_offset == files.cleaner_checkpoint]
    sizes = {segment.base_offset: segment.size_bytes for segment in files.segments}

    def fits(record: PassRecord) -> bool:
        outputs = record.outputs.items()
        return all(sizes.get(base) == marks[filenames.LOG].size_bytes for base, marks in outputs)

    # The newest of them, unless its owner was killed before the files were in place.
    return next(
        (p for p in reversed(candidates) if fits(p)), candidates[-1] if candidates else None
    )


def check_manifests(passes: Sequence[PassRecord], findings: Findings) -> None:
    """Check that each manifest adds up, and that each pass read what the one before it left."""
    for record in passes:
        for fault in _find_faults(record):
            findings.violation("I7", fault, file=record.name)
        # By offsets, not by time: clocks go backwards.
        first_dirty_offset = record.plan.first_dirty_offset
        earlier = [p for p in passes if p is not record and p.plan.end_offset == first_dirty_offset]
        if earlier and not any(record.goes_on_from(p) for p in earlier):
            findings.warning(
                "I7",
                f"read other bytes below offset {first_dirty_offset} than "
                f"{' or '.join(p.name for p in earlier)} left: a pass lies between that has no "
                "manifest",
                file=record.name,
            )


def check_outputs(fs: FileSystem, files: LogFiles, record: PassRecord, findings: Findings) -> None:
    """Check that what the newest pass wrote is there, byte for byte."""
    severity = severity_of_change(files)
    segments = {segment.base_offset: segment for segment in files.segments}
    for base_offset, marks in record.outputs.items():
        segment = segments.get(base_offset)
        if segment is None:
            if base_offset > files.first_base_offset:
                findings.add(
                    severity, "I7", f"segment {base_offset}, which {record.name} wrote, is gone"
                )
            continue
        for extension, mark in marks.items():
            found = mark_of(fs, segment, extension)
            if found == mark:
                continue
            message = (
                f"is not what {record.name} left: {mark.size_bytes} bytes with CRC "
                f"0x{mark.crc32c:08x}"
            )
            name = segment.name_of(extension)
            if extension == filenames.LOG:
                findings.add(severity, "I7", message, name)
            elif found is not None:
                # An index may be built anew at any load; whether it is right, I4 and I20 say.
                findings.warning("I7", message, file=name)
        limit_bytes = max(record.plan.segment_bytes, record.single_source_bytes(base_offset))
        if (
            segment.size_bytes > limit_bytes
            and _first_batch_bytes(fs, segment) < segment.size_bytes
        ):
            findings.violation(
                "I2",
                f"{segment.size_bytes} bytes, though a pass may write {limit_bytes}",
                file=segment.name,
            )
    kept = set(record.outputs)
    for segment in files.segments:
        if segment.base_offset < record.plan.end_offset and segment.base_offset not in kept:
            findings.add(severity, "I7", f"{record.name} left no such segment", segment.name)


def check_kept(record: PassRecord, files: LogFiles, found_count: int, findings: Findings) -> None:
    """Check the number of records in the cleaned segments, if none was removed since."""
    first = min(record.outputs, default=files.first_base_offset)
    if first == files.first_base_offset and found_count != record.kept_count:
        findings.add(
            severity_of_change(files),
            "I7",
            f"says that {record.kept_count} records were kept, {found_count} are there",
            record.name,
        )


def severity_of_change(files: LogFiles) -> Severity:
    """Say how bad it is that a log is not what the newest manifest says.

    If its owner was killed, that may have been in the next pass, after the swap and before the
    checkpoint: then some groups are new, and no manifest tells of it.
    """
    return Severity.VIOLATION if files.was_clean else Severity.WARNING


def _find_faults(record: PassRecord) -> list[str]:
    counts = record.counts
    removed = (
        counts.superseded
        + counts.keyless_removed
        + counts.aborted_removed
        + counts.tombstones_removed
        + counts.markers_removed
    )
    faults = []
    if counts.records_read != record.kept_count + removed:
        faults.append(
            f"says that {counts.records_read} records were read, but {record.kept_count} kept and "
            f"{removed} removed"
        )
    if counts.tombstones_kept > counts.records_kept:
        faults.append(f"says that {counts.tombstones_kept} of {counts.records_kept} are tombstones")
    if min(value for value in counts.as_dict().values() if value is not None) < 0:
        faults.append("has a negative count")
    if counts.bytes_read != sum(mark.size_bytes for mark in record.inputs.values()):
        faults.append(f"says that {counts.bytes_read} bytes were read, its inputs have others")
    written = sum(
        file.size_bytes
        for group in record.groups
        for output in group.outputs
        for file in output.files
        if file.extension == filenames.LOG
    )
    if counts.bytes_written != written:
        faults.append(f"says that {counts.bytes_written} bytes were written, its outputs {written}")
    sources = {source.base_offset: source.size_bytes for source in record.plan.sources}
    if sources != {base: mark.size_bytes for base, mark in record.inputs.items()}:
        faults.append("has other inputs than its plan")
    if tuple(group.base_offsets for group in record.groups) != record.plan.groups:
        faults.append("has other groups than its plan")
    return faults


def mark_of(fs: FileSystem, segment: SegmentFiles, extension: str) -> FileMark | None:
    """Return size and checksum of a file of a segment; None if there is none."""
    indexes = {
        filenames.OFFSET_INDEX: segment.offset_index,
        filenames.TIME_INDEX: segment.time_index,
        filenames.TRANSACTION_INDEX: segment.transaction_index,
    }
    if extension in indexes:
        data = indexes[extension]
        return None if data is None else FileMark(len(data), crc32c(data))
    return read_mark(fs, segment.path, segment.size_bytes)


def _first_batch_bytes(fs: FileSystem, segment: SegmentFiles) -> int:
    """Return the size of a segment's first batch: one that is too large stands alone."""
    try:
        file = fs.open(segment.path, writable=False)
        return read_header(file.read(0, HEADER_SIZE)).size_bytes
    except DecodeError:
        return 0


def _parse(name: str, fields: dict[str, Any]) -> PassRecord:
    return PassRecord(
        name=name,
        committed_ms=index(fields["committed_ms"]),
        plan=CleaningPlan.from_json(json.dumps(fields["plan"])),
        inputs={
            item["base_offset"]: FileMark(item["size_bytes"], item["crc32c"])
            for item in fields["inputs"]
        },
        groups=tuple(
            GroupResult(
                tuple(group["base_offsets"]),
                tuple(
                    OutputSegment(
                        output["base_offset"],
                        tuple(OutputFile(**file) for file in output["files"]),
                    )
                    for output in group["outputs"]
                ),
                group["is_unchanged"],
            )
            for group in fields["groups"]
        ),
        counts=PassCounts(**fields["counts"]),
    )
