"""A log against a copy from before: files that no pass may touch, then what is in the others."""

from siltstone.cleaner.verify.against_batches import check_batches, check_end, check_last_batches
from siltstone.cleaner.verify.against_records import (
    check_keys,
    check_removals,
    check_survivors,
)
from siltstone.cleaner.verify.batches import CHUNK_BYTES
from siltstone.cleaner.verify.files import LogFiles, SegmentFiles
from siltstone.cleaner.verify.findings import Findings, Severity
from siltstone.cleaner.verify.history import PassHistory
from siltstone.cleaner.verify.joined import JoinedLogs
from siltstone.cleaner.verify.manifests import PassRecord, mark_of
from siltstone.cleaner.verify.tables import CONTROL, LogTable
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem


def verify_against(
    fs: FileSystem,
    before: LogTable,
    after: LogTable,
    history: PassHistory,
    config: LogConfig,
    findings: Findings,
) -> None:
    """Check everything that takes two states of a log to tell."""
    _check_offsets(before, after, config, findings)
    _check_untouched(fs, before, after, history, findings)
    logs = JoinedLogs(before, after, history, findings)
    check_survivors(logs)
    removed = check_removals(logs)
    check_keys(logs)
    check_batches(logs)
    check_end(logs)
    check_last_batches(logs)
    if history.is_complete and len(history.passes) == 1:
        (record,) = history.passes
        if _is_input(fs, before.files, record):
            _check_counts(logs, record, dict(removed))


def _check_offsets(
    before: LogTable, after: LogTable, config: LogConfig, findings: Findings
) -> None:
    """Check I5: the ends of the log only rise, and its start only by what may raise it."""
    old_start, new_start = before.files.log_start_offset, after.files.log_start_offset
    if new_start < old_start:
        findings.violation("I5", f"the log starts at {new_start}, it started at {old_start}")
    elif new_start > old_start and config.is_compacted and not config.deletes:
        findings.violation(
            "I5",
            f"the log starts at {new_start}, it started at {old_start}: cleanup.policy=compact "
            "has nothing that may raise it",
        )
    if after.log_end_offset < before.log_end_offset:
        findings.violation(
            "I5", f"the log ends at {after.log_end_offset}, it ended at {before.log_end_offset}"
        )
    old, new = before.files.cleaner_checkpoint, after.files.cleaner_checkpoint
    if old is not None and (new is None or new < old):
        findings.warning("I22", f"the cleaner checkpoint fell from {old} to {new}")


def _check_untouched(
    fs: FileSystem, before: LogTable, after: LogTable, history: PassHistory, findings: Findings
) -> None:
    """Check I8: segments from the end of the pass on are the same bytes, and maybe more."""
    segments = {segment.base_offset: segment for segment in after.files.segments}
    for old in before.files.segments:
        if old.base_offset < history.end_offset or old.base_offset < after.files.log_start_offset:
            continue
        new = segments.get(old.base_offset)
        # A pass that was not finished may have been there.
        is_sure = old.base_offset >= history.reach_offset
        severity = Severity.VIOLATION if is_sure else Severity.WARNING
        if new is None:
            message = "is gone, though no pass has been there"
            findings.add(severity, "I8", message, old.name, offset=old.base_offset)
            continue
        position = _find_difference(fs, old, new, before.walker.end_of(old))
        if position is not None:
            message = "has other bytes than before, though no pass has been there"
            findings.add(severity, "I8", message, new.name, position, old.base_offset)


def _find_difference(fs: FileSystem, old: SegmentFiles, new: SegmentFiles, end: int) -> int | None:
    """Return the first position where two files differ; the new one may go on after the end."""
    old_file, new_file = fs.open(old.path, writable=False), fs.open(new.path, writable=False)
    for position in range(0, end, CHUNK_BYTES):
        count = min(CHUNK_BYTES, end - position)
        was, now = old_file.read(position, count), new_file.read(position, count)
        if was != now:
            same = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), None)
            return position + (min(len(was), len(now)) if same is None else same)
    if not old.is_active and new.size_bytes > end:
        return end
    return None


def _is_input(fs: FileSystem, files: LogFiles, record: PassRecord) -> bool:
    """Say whether a pass read just the files that the copy holds."""
    segments = {segment.base_offset: segment for segment in files.segments}
    return all(
        (segment := segments.get(base_offset)) is not None
        and mark_of(fs, segment, filenames.LOG) == mark
        for base_offset, mark in record.inputs.items()
    )


def _check_counts(logs: JoinedLogs, record: PassRecord, removed: dict[str, int]) -> None:
    """Check I7: what the manifest counted is what became of the records."""
    before, after = logs.before, logs.after
    if before.files.first_base_offset != logs.start_offset:
        return  # What goes below the log start needs no reason, and is counted all the same.
    in_pass = before.offsets < record.plan.end_offset
    is_control = (before.flags & CONTROL) != 0
    is_kept = in_pass & logs.is_there
    is_output = after.batches["base_offset"] < record.plan.end_offset
    found = {
        "records_read": int(in_pass.sum()),
        "records_kept": int((is_kept & ~is_control).sum()),
        "tombstones_kept": int((is_kept & logs.is_tombstone[: len(in_pass)]).sum()),
        "markers_kept": int((is_kept & is_control).sum()),
        "batches_emptied": int((is_output & (after.batches["record_count"] == 0)).sum()),
        **removed,
    }
    counted = record.counts.as_dict()
    for name, count in found.items():
        if counted[name] != count:
            findings = logs.findings
            findings.violation(
                "I7", f"says {name} {counted[name]}, it was {count}", file=record.name
            )
