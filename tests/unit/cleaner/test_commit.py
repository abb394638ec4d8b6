"""The owner's step: complete, or as if it had not been.

What a crash between two of its steps leaves is for `tests/crash`.
"""

import os
from pathlib import Path

import pytest

from siltstone.cleaner.storage import DirectoryStorage
from siltstone.errors import LogDirOfflineError
from siltstone.log import filenames
from siltstone.log.filesystem import File
from tests.support.cleaning import Cleaner, MakeCompactedLog, file_bytes, pass_files
from tests.support.clock import ManualClock
from tests.support.log_checks import check_lookups, check_segments
from tests.support.make_log import HastyDisk

TEXT = "a=1 b=1 | a=2 c=1 | b=2 |"
CLEANED = "2:a=2 3:c=1 4:b=2 |"


class TestCommitted:
    def test_the_log_is_the_cleaned_one_and_stays_it(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        ends = log.real.log_start_offset, log.real.high_watermark, log.real.log_end_offset

        cleaner.clean(log)

        assert log.contents() == CLEANED
        assert ends == (  # I5
            log.real.log_start_offset,
            log.real.high_watermark,
            log.real.log_end_offset,
        )
        check_segments(log.real)
        check_lookups(log.real)
        for reopen in (log.restart, log.recover):
            reopen()
            assert log.contents() == CLEANED

    # Facts 7.20
    def test_replaced_files_go_after_their_delay(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(TEXT, file_delete_delay_ms=1000)

        cleaner.clean(log)
        deleted = [name for name in log.names() if name.endswith(".deleted")]
        assert [name for name in deleted if "log" in name] == [
            "0.log.deleted",
            "2.log.deleted",
            "4.log.deleted",
        ]
        clock.advance_ms(999)
        log.real.delete_due_files()
        assert [name for name in log.names() if name.endswith(".deleted")] == deleted

        clock.advance_ms(1)
        log.real.delete_due_files()
        assert log.names() == ["0.index", "0.log", "0.timeindex", "5.log", "5.snapshot"]

    def test_a_second_pass_within_the_delay_does_not_lose_the_new_files(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(TEXT, file_delete_delay_ms=1000)
        cleaner.clean(log)
        clock.advance_ms(500)
        log.append("a=4 |")
        cleaner.clean(log)

        for _ in range(2):
            clock.advance_ms(500)
            log.real.delete_due_files()
            assert log.contents() == "3:c=1 4:b=2 5:a=4 |"

    # I14
    def test_a_reader_inside_of_a_replaced_segment_finishes_it(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(TEXT)
        found = log.real.read(0, 10_000)

        cleaner.clean(log)
        clock.advance_ms(10**9)
        log.real.delete_due_files()

        assert [r.value for b in found.batches() for r in b.iter_records()] == [b"1", b"1"]

    # Facts 7.19: retention by file time must not see a segment become young
    def test_cleaned_files_are_as_old_as_the_youngest_of_their_sources(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        second_ns = 10**9
        for age, name in enumerate(("0.log", "2.log", "4.log")):
            os.utime(log.path(name), ns=(0, (1_000 + age) * second_ns))

        cleaner.clean(log)

        for name in ("0.log", "0.index", "0.timeindex"):
            assert log.path(name).stat().st_mtime_ns // 10**6 == 1_002_000

    # 8.F13
    def test_snapshots_of_merged_segments_go(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        for key in "aab":
            log.produce(f"{key}=1")
            log.append("|")
        assert log.snapshots() == [1, 2, 3]

        cleaner.clean(log)

        assert log.base_offsets() == [0, 3]
        assert log.snapshots() == [3]

    # I8, facts 7.1
    def test_nothing_from_the_end_of_the_pass_on_is_touched(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.is_replicated = False
        log.append("a=1 | a=2 | a=3 a~ | a=4")
        log.real.update_high_watermark(2)
        young = {n: d for n, d in file_bytes(log).items() if int(n.partition(".")[0]) >= 2}
        times = {name: log.path(name).stat().st_mtime_ns for name in young}

        cleaner.clean(log)

        assert {name: log.path(name).read_bytes() for name in young} == young
        assert {name: log.path(name).stat().st_mtime_ns for name in young} == times

    def test_a_segment_in_which_nothing_changes_is_not_copied(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 b=1 | c=1 c=2 |", segment_bytes=140)
        inode = log.path("0.log").stat().st_ino

        committed = cleaner.clean(log)

        assert [g.is_unchanged for g in committed.result.groups] == [True, False]
        assert log.path("0.log").stat().st_ino == inode
        assert log.contents() == "0:a=1 1:b=1 | 3:c=2 |"
        assert "0.log.deleted" not in log.names()

    def test_a_second_pass_at_the_same_time_copies_nothing(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 b~ | a=2 |")
        log.produce("[c=1 d=1]", transactional=True)
        log.commit()
        log.append("c=2 |")
        cleaner.clean(log)
        before = file_bytes(log)

        committed = cleaner.clean(log)

        assert all(group.is_unchanged for group in committed.result.groups)
        assert file_bytes(log) == before

    def test_everything_is_flushed_before_it_counts(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        calls: list[str] = []

        class Recorder(HastyDisk):
            def fsync(self, file: File) -> None:
                calls.append(f"fsync {file.path.name.lstrip('0')}")

            def rename(self, source: Path, target: Path) -> None:
                calls.append(f"rename {target.name.lstrip('0')}")
                super().rename(source, target)

        log = make_log(TEXT, fs=Recorder())
        calls.clear()

        cleaner.clean(log)

        swap = calls.index("rename .log.swap")
        flushed = set(calls[:swap])
        assert {"fsync .log.cleaned", "fsync .index.cleaned", "fsync .timeindex.cleaned"} <= flushed
        assert calls.index("rename cleaner-offset-checkpoint") > calls.index("rename .log")


class TestBrokenDisk:
    @pytest.mark.parametrize("failing_write", range(4))
    def test_a_run_that_fails_leaves_no_files_behind(
        self,
        failing_write: int,
        make_log: MakeCompactedLog,
        cleaner: Cleaner,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        log = make_log("a=1 a=2 | b=1 b=2 | c=1 c=2 |", segment_bytes=140)
        before = file_bytes(log)
        writes = 0

        def write(
            self: DirectoryStorage, file: File, position: int, data: bytes | memoryview
        ) -> None:
            nonlocal writes
            if writes == failing_write:
                raise LogDirOfflineError(file.path, "cannot write: no space left")
            writes += 1
            log.fs.write(file, position, [data])

        monkeypatch.setattr(DirectoryStorage, "write", write)
        with pytest.raises(LogDirOfflineError, match="no space left"):
            cleaner.clean(log)

        assert pass_files(log) == []
        assert file_bytes(log) == before
        monkeypatch.undo()
        cleaner.clean(log)
        assert log.contents() == "1:a=2 | 3:b=2 | 5:c=2 |"

    def test_a_disk_that_refuses_the_swap_takes_the_log_offline_and_loses_nothing(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        class Refusing(HastyDisk):
            is_broken = False

            def rename(self, source: Path, target: Path) -> None:
                if self.is_broken and target.name.endswith(filenames.SWAP):
                    raise LogDirOfflineError(source, "cannot rename: no space left")
                super().rename(source, target)

        disk = Refusing()
        log = make_log(TEXT, fs=disk)
        before = log.contents()
        disk.is_broken = True
        with pytest.raises(LogDirOfflineError):
            cleaner.clean(log)
        assert cleaner.checkpoint(log) is None

        disk.is_broken = False
        log.recover()

        assert log.contents() == before
        cleaner.clean(log)
        assert log.contents() == CLEANED
