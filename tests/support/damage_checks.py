"""Verify a log that may be damaged, and say what was found."""

from siltstone.cleaner.verify import Report, Severity, VerifyRequest, verify_partition
from tests.support.cleaned_logs import CleanedLog


def verify(log: CleanedLog, *, against: bool = False, deep: bool = True) -> Report:
    return verify_partition(
        VerifyRequest(
            partition=log.after.partition,
            log_dir=log.after.log_dir,
            config=log.config,
            now_ms=log.now_ms,
            deep=deep,
            before_dir=log.before.log_dir if against else None,
        )
    )


def broken(report: Report, severity: Severity = Severity.VIOLATION) -> set[str]:
    return {f.invariant for f in report.findings if f.severity is severity}


def describe(report: Report) -> str:
    return "\n".join(str(finding) for finding in report.findings)
