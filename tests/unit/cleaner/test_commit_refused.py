"""The owner's step is refused if anything is not as it was planned, or as its task wrote it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.manifest import read_manifests
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.errors import CleaningAbortedError, CleaningError
from siltstone.log import filenames
from tests.support.cleaning import Cleaner, MakeCompactedLog, file_bytes, pass_files, records_of
from tests.support.clock import ManualClock
from tests.support.make_log import HastyDisk, MadeLog

TEXT = "a=1 b=1 | a=2 c=1 | b=2 |"
CLEANED = "2:a=2 3:c=1 4:b=2 |"


def touch(log: MadeLog) -> None:
    path = log.path("2.log")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def replace_file(log: MadeLog) -> None:
    """Write the same bytes once more, as somebody does who copies a directory back."""
    path = log.path("0.log")
    path.write_bytes(path.read_bytes())


def lower_high_watermark(log: MadeLog) -> None:
    log.real.update_high_watermark(4)


def move_log_start(log: MadeLog) -> None:
    log.configure(cleanup_policy="compact,delete")
    log.real.delete_records(1)


def delete_segment(log: MadeLog) -> None:
    move_log_start(log)
    log.real.delete_records(2)
    assert log.real.delete_old_segments() == 1


def truncate_source(log: MadeLog) -> None:
    log.real.truncate_to(3)


def truncate_and_refill(log: MadeLog) -> None:
    """Make the log as long as it was, with other records."""
    log.real.truncate_to(4)
    log.append("x=1 |")


def truncate_to_last_source(log: MadeLog) -> None:
    """Make the last source the active segment, without a change to its bytes."""
    log.real.truncate_to(5)
    log.real.truncate_to(4)
    log.append("b=2")


def start_anew(log: MadeLog) -> None:
    log.real.truncate_fully_and_start_at(0)
    log.append(TEXT)


def stop_compaction(log: MadeLog) -> None:
    log.configure(cleanup_policy="delete")


CHANGES: list[Callable[[MadeLog], None]] = [
    touch,
    replace_file,
    lower_high_watermark,
    move_log_start,
    delete_segment,
    truncate_source,
    truncate_and_refill,
    truncate_to_last_source,
    start_anew,
    stop_compaction,
]


class TestRefusal:
    """I22: a pass whose input changed does not commit, and leaves nothing behind."""

    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
    def test_a_log_that_changed_since_it_was_planned_is_left_alone(
        self, change: Callable[[MadeLog], None], make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        plan = cleaner.plan(log)
        result = cleaner.run(plan)
        change(log)
        before = file_bytes(log)

        with pytest.raises(CleaningAbortedError, match=r"^orders-3: the log changed: plan again$"):
            cleaner.commit(log, plan, result)

        assert file_bytes(log) == before
        assert pass_files(log) == []
        assert cleaner.checkpoint(log) is None
        assert read_manifests(log.fs, log.directory) == []

    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
    def test_a_new_plan_succeeds_where_there_still_is_something_to_clean(
        self, change: Callable[[MadeLog], None], make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        change(log)
        log.configure(cleanup_policy="compact")
        log.append("|")
        log.real.update_high_watermark(log.real.log_end_offset)
        latest = {record.key: record for record in records_of(log)}

        cleaner.clean(log)

        assert {record.key: record for record in records_of(log)} == latest
        assert len(records_of(log)) == len(latest)

    def test_the_second_of_two_passes_over_the_same_segments_is_refused(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        first, second = cleaner.plan(log), cleaner.plan(log)
        results = cleaner.run(first), cleaner.run(second)

        cleaner.commit(log, first, results[0])
        with pytest.raises(CleaningAbortedError, match="plan again"):
            cleaner.commit(log, second, results[1])

        assert log.contents() == CLEANED
        assert pass_files(log) == []
        assert len(read_manifests(log.fs, log.directory)) == 1

    # The first pass writes as many bytes as it has read, and its files are as old.
    def test_the_second_of_two_passes_is_refused_if_only_the_bytes_have_changed(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a~ b=1 |", delete_retention_ms=0)
        horizon_ms = clock.now_ms()
        size_bytes = log.real.size_bytes
        first, second = cleaner.plan(log), cleaner.plan(log)
        results = cleaner.run(first), cleaner.run(second)

        cleaner.commit(log, first, results[0])
        assert log.real.size_bytes == size_bytes
        assert log.headers()[0].delete_horizon_ms == horizon_ms
        with pytest.raises(CleaningAbortedError, match="plan again"):
            cleaner.commit(log, second, results[1])

    def test_a_log_that_changes_between_two_groups_keeps_the_first(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        class Meddling(HastyDisk):
            """Touches a source of the second group once the first is swapped in."""

            source: Path | None = None

            def rename(self, source: Path, target: Path) -> None:
                super().rename(source, target)
                if self.source is not None and target.name.endswith(".log"):
                    os.utime(self.source, ns=(0, 0))
                    self.source = None

        disk = Meddling()
        log = make_log("a=1 b=1 | a=2 b=2 | c=1 d=1 | c=2 d=2 |", segment_bytes=280, fs=disk)
        plan = cleaner.plan(log)
        result = cleaner.run(plan)
        disk.source = log.path("6.log")

        with pytest.raises(CleaningAbortedError, match="plan again"):
            cleaner.commit(log, plan, result)

        assert log.contents() == "2:a=2 3:b=2 | 4:c=1 5:d=1 | 6:c=2 7:d=2 |"
        assert pass_files(log) == []
        assert cleaner.checkpoint(log) is None
        log.recover()
        cleaner.clean(log)
        assert log.contents() == "2:a=2 3:b=2 | 6:c=2 7:d=2 |"

    def test_an_older_plan_does_not_bring_back_what_a_newer_one_has_removed(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(delete_retention_ms=0, segment_bytes=400)
        log.append("x=1 [a~ b~ c~ d~ e~ f~ g~ h~ i~ j~ k~ l~ m~ n~ o~ p~ q~ r~ s~ t~] |")
        old = cleaner.plan(log)
        old_result = cleaner.run(old)

        log.append("x~ |")
        cleaner.clean(log)
        assert "x=1" not in log.contents()
        cleaner.clean(log)  # without retention, the tombstone goes as well
        assert "x~" not in log.contents()

        with pytest.raises(CleaningAbortedError, match="plan again"):
            cleaner.commit(log, old, old_result)

    def test_a_plan_that_is_out_of_date_is_refused_before_it_is_run(
        self, engine: CleaningEngine, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        plan = cleaner.plan(log)
        cleaner.clean(log)  # one source is smaller now, the others are gone
        runner = PassRunner(log.fs, log.clock, engine, cleaner.checkpoints(log))

        with pytest.raises(CleaningAbortedError, match="plan again"):
            runner.run(log.real, plan)

    def test_appends_and_rolls_do_not_get_in_the_way(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        plan = cleaner.plan(log)
        log.append("a=3")
        result = cleaner.run(plan)
        log.append("| d=1")

        cleaner.commit(log, plan, result)

        assert log.contents() == "2:a=2 3:c=1 4:b=2 | 5:a=3 | 6:d=1"
        assert cleaner.checkpoint(log) == 5

    def test_a_restart_does_not_get_in_the_way_of_a_saved_plan(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(TEXT)
        text = cleaner.plan(log).to_json()

        log.restart()
        plan = CleaningPlan.from_json(text)
        cleaner.commit(log, plan, cleaner.run(plan))

        assert log.contents() == CLEANED


class TestOutputs:
    """What tasks wrote is read back before it counts."""

    @pytest.fixture
    def log(self, make_log: MakeCompactedLog) -> MadeLog:
        # Two groups, to see that the first is not swapped in if the second is damaged.
        return make_log("a=1 b=1 | a=2 b=2 | c=1 d=1 | c=2 d=2 |", segment_bytes=280)

    def tamper(self, log: MadeLog, result: PassResult, how: str, extension: str) -> None:
        name = next(
            file.name for file in result.groups[1].outputs[0].files if file.extension == extension
        )
        path = log.directory / name
        data = path.read_bytes()
        match how:
            case "missing":
                path.unlink()
            case "flipped":
                path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            case "cut":
                path.write_bytes(data[:-1])
            case "longer":
                path.write_bytes(data + b"\0")

    @pytest.mark.parametrize("extension", [filenames.LOG, filenames.TIME_INDEX])
    @pytest.mark.parametrize("how", ["missing", "flipped", "cut", "longer"])
    def test_a_file_that_is_not_what_its_task_says_ends_the_commit(
        self, how: str, extension: str, log: MadeLog, cleaner: Cleaner
    ) -> None:
        before = file_bytes(log)
        plan = cleaner.plan(log)
        assert plan.groups == ((0, 2), (4, 6))
        result = cleaner.run(plan)
        self.tamper(log, result, how, extension)

        with pytest.raises(
            CleaningError, match=r"^orders-3: .*\.part is not what the task that wr"
        ):
            cleaner.commit(log, plan, result)

        assert file_bytes(log) == before
        assert pass_files(log) == []
        assert cleaner.checkpoint(log) is None

    def test_what_a_crash_leaves_between_run_and_commit_is_collected_at_the_next_open(
        self, log: MadeLog, cleaner: Cleaner
    ) -> None:
        before = log.contents()
        cleaner.run(cleaner.plan(log))
        assert len(pass_files(log)) == 6

        log.recover()

        assert pass_files(log) == []
        assert log.contents() == before

    def test_somebody_who_only_reads_leaves_the_files_of_a_run_alone(
        self, log: MadeLog, cleaner: Cleaner
    ) -> None:
        cleaner.run(cleaner.plan(log))
        files = pass_files(log)

        log.crash()
        log.start(writable=False)

        assert sorted(pass_files(log)) == sorted(files)
