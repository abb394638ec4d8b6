"""What a verification says about a log whose owner was killed, or is at work meanwhile."""

from pathlib import Path

import pytest

from siltstone.cleaner.commit import commit_pass
from siltstone.cleaner.verify import Severity
from siltstone.errors import LogDirOfflineError
from siltstone.log.filesystem import File, FileSystem
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.verifying import edited, found, stop, verify


def test_a_torn_tail_is_a_violation_only_after_a_clean_stop(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 | b=1")
    with log.path("1.log").open("ab") as file:
        file.write(log.build("c=1")[:65])

    assert found(verify(log, clock)) == {("I1", "warning")}
    stop(log)
    with log.path("1.log").open("ab") as file:
        file.write(log.build("c=1")[:65])
    assert found(verify(log, clock)) == {("I1", "violation")}


def test_a_batch_with_a_wrong_crc_is_torn_only_at_the_very_end(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 b=1 c=1")
    files = edited(log)
    files.flip(2, 65)
    assert found(verify(log, clock)) == {("I1", "warning")}

    files.flip(1, 65)
    assert found(verify(log, clock)) == {("I1", "violation"), ("I1", "warning")}


def test_what_follows_a_damaged_batch_is_verified_too(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 b=1 c=1 d=1 | e=1")
    files = edited(log)
    files.flip(0, 65)
    files.flip(2, 65)

    report = verify(log, clock)

    assert [(f.invariant, f.offset) for f in report.violations] == [("I1", 0), ("I1", 2)]
    assert report.batch_count == 3


def test_a_preallocated_segment_ends_with_its_last_batch(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 | b=1", preallocate=True, segment_bytes=10_000)

    assert log.path("1.log").stat().st_size == 10_000
    assert verify(log, clock).findings == ()


def test_an_index_that_outlived_the_end_of_its_log_is_rebuilt_anyway(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 b=1 c=1", index_interval_bytes=0)
    log.restart()  # or the entries might be in memory only
    files = edited(log)
    files.write(0, files.batches(0)[:2], keeps_indexes=True)

    report = verify(log, clock)

    assert {f.severity for f in report.findings} == {Severity.WARNING}
    assert "I4" in {f.invariant for f in report.findings}


def test_what_an_interrupted_swap_left_is_verified_as_the_next_load_will_see_it(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 a=2 | b=1 | c=1")
    old = {name: log.path(name).read_bytes() for name in log.names()}
    cleaner.clean(log)
    for name in ("0.log", "0.index", "0.timeindex"):
        log.path(name).rename(log.path(f"{name}.swap"))
    for name in ("0.log", "2.log"):  # one of the same name, and one that the swap replaces
        log.path(name).write_bytes(old[name])

    report = verify(log, clock)

    assert found(report) == {("I21", "warning")}
    assert (report.segment_count, report.record_count) == (2, 3)


def test_a_swap_that_cannot_be_finished_is_a_violation(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 | b=1")
    log.path("0.log.swap").write_bytes(b"x" * 100)

    assert found(verify(log, clock)) == {("I21", "violation")}


class _BusyOwner(FileSystem):
    """A disk on which the owner of a log takes files away while somebody looks."""

    def __init__(self, count: int) -> None:
        self.left = count

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        if self.left:
            self.left -= 1
            raise FileNotFoundError(path)
        return super().open(path, create=create, writable=writable)


def test_a_log_that_changes_is_looked_at_again(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 | b=1")

    assert verify(log, clock, fs=_BusyOwner(2)).findings == ()
    with pytest.raises(LogDirOfflineError, match="changes faster than it can be read"):
        verify(log, clock, fs=_BusyOwner(1000))


def test_nothing_is_written(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 a=2 | b=1 | c=1")
    cleaner.clean(log)
    for path in log.directory.parent.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    before = {p: p.stat().st_mtime_ns for p in log.directory.parent.rglob("*")}

    verify(log, clock, before=log.directory.parent)

    assert {p: p.stat().st_mtime_ns for p in log.directory.parent.rglob("*")} == before


def test_a_pass_that_was_killed_before_its_manifest_breaks_nothing(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock, tmp_path: Path
) -> None:
    log = make_log("a=1 b=1 | a=2 c=1 | d=1")
    cleaner.clean(log)
    log.append("b=2 c~ | e=1")
    before = edited(log).copy_to(tmp_path / "before")
    plan = cleaner.plan(log)
    commit_pass(log.fs, log.real, plan, cleaner.run(plan))

    assert verify(log, clock).violations == ()
    assert verify(log, clock, before=before.log_dir).violations == ()
    cleaner.clean(log)
    assert verify(log, clock).violations == ()
    assert verify(log, clock, before=before.log_dir).violations == ()
