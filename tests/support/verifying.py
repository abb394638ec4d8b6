"""Verify a made log as the command does, and say in short what was found."""

from pathlib import Path

from siltstone.cleaner.verify import Report, VerifyRequest, verify_partition
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.identity import format_clean_shutdown
from tests.support.clock import ManualClock
from tests.support.edited_logs import EditedLog
from tests.support.make_log import MadeLog


def verify(
    log: MadeLog,
    clock: ManualClock,
    *,
    deep: bool = True,
    before: Path | None = None,
    fs: FileSystem | None = None,
) -> Report:
    return verify_partition(
        VerifyRequest(
            partition=log.real.partition,
            log_dir=log.directory.parent,
            config=log.real.config,
            now_ms=clock.now_ms(),
            deep=deep,
            before_dir=before,
        ),
        fs,
    )


def edited(log: MadeLog) -> EditedLog:
    return EditedLog(log.directory.parent, log.real.partition)


def stop(log: MadeLog) -> EditedLog:
    """Stop a log in good order, and say so as its owner does."""
    files = edited(log)
    log.real.close()
    (files.log_dir / filenames.CLEAN_SHUTDOWN).write_bytes(format_clean_shutdown())
    return files


def found(report: Report) -> set[tuple[str, str]]:
    return {(finding.invariant, finding.severity.value) for finding in report.findings}
