"""Facts 8.G: segments with offsets that their indexes cannot express, and how they are split."""

import shutil
from pathlib import Path

import pytest

from tests.support.loading import PowerLossError, StoppingDisk, end_of
from tests.support.make_log import HastyDisk, MadeLog, MakeLog

BEYOND = 2**31  # the first offset that does not fit a segment with base offset 0


class TestFarOffsets:  # 8.G4
    def test_an_append_that_does_not_fit_rolls_to_its_first_offset(self, make_log: MakeLog) -> None:
        log = make_log("a=1")

        log.follow(log.build_at(BEYOND, "b=1"))

        assert log.contents() == f"0:a=1 | {BEYOND}:b=1"
        assert log.snapshots() == [BEYOND]
        log.restart()
        assert log.contents() == f"0:a=1 | {BEYOND}:b=1"

    def test_the_last_offset_that_fits_does_not_roll(self, make_log: MakeLog) -> None:
        log = make_log("a=1")

        log.follow(log.build_at(BEYOND - 1, "b=1"))

        assert log.base_offsets() == [0]

    def test_a_batch_of_which_only_the_end_does_not_fit_rolls_to_its_beginning(
        self, make_log: MakeLog
    ) -> None:
        log = make_log("a=1")

        log.follow(log.build_at(BEYOND - 1, "b=1 c=1"))

        assert log.base_offsets() == [0, BEYOND - 1]


class TestSplitting:  # 8.G5
    OVERFLOWED = (0, 5, BEYOND - 1, BEYOND, BEYOND + 7, 2 * BEYOND)
    PARTS = (0, BEYOND, 2 * BEYOND)
    CONTENTS = f"0:a=1 5:b=1 {BEYOND - 1}:c=1 | {BEYOND}:d=1 {BEYOND + 7}:e=1 | {2 * BEYOND}:f=1"

    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        """A log whose only segment has offsets that do not fit its base."""
        log = make_log(index_interval_bytes=0)
        log.crash()
        log.write_segment(
            0,
            [
                log.build_at(offset, f"{key}=1")
                for offset, key in zip(self.OVERFLOWED, "abcdef", strict=True)
            ],
        )
        return log

    def test_an_overflowed_segment_is_split_where_offsets_stop_to_fit(self, log: MadeLog) -> None:
        log.start()

        assert log.contents() == self.CONTENTS
        for segment in log.real.segments:
            assert all(segment.fits(stored.header.last_offset) for stored in segment.iter_headers())

    def test_nothing_is_left_of_the_way_there(self, log: MadeLog) -> None:
        log.start()

        assert {name.partition(".")[2] for name in log.names()} <= {
            "log",
            "index",
            "timeindex",
            "snapshot",
        }

    def test_the_parts_are_as_old_as_the_whole_was(self, log: MadeLog) -> None:
        modified_ns = log.path("0.log").stat().st_mtime_ns

        log.start()

        # All but the last, which has become the active segment and may have been trimmed.
        for base_offset in self.PARTS[:-1]:
            assert log.path(f"{base_offset}.log").stat().st_mtime_ns == modified_ns

    def test_a_split_log_goes_on(self, log: MadeLog) -> None:
        log.start()
        log.append("g=1")
        log.restart()

        assert log.contents() == f"{self.CONTENTS} {2 * BEYOND + 1}:g=1"
        assert end_of(log).endswith(f"{2 * BEYOND + 2}:z=9")

    def test_a_torn_tail_of_an_overflowed_segment_is_cut(self, log: MadeLog) -> None:
        with log.path("0.log").open("ab") as file:
            file.write(log.build_at(2 * BEYOND + 1, "g=1")[:-1])

        log.start()

        assert log.contents() == self.CONTENTS

    def test_a_segment_that_begins_beyond_its_own_reach_is_split_as_well(
        self, make_log: MakeLog
    ) -> None:
        log = make_log()
        log.crash()
        log.write_segment(
            0, [log.build_at(BEYOND + 10, "a=1"), log.build_at(2 * BEYOND + 20, "b=1")]
        )

        log.start()

        assert log.contents() == f"{BEYOND + 10}:a=1 | {2 * BEYOND + 20}:b=1"

    @pytest.mark.parametrize("suffix", ["", ".cleaned", ".swap", ".deleted"])
    def test_a_crash_before_all_parts_are_swaps_starts_over(
        self, log: MadeLog, suffix: str
    ) -> None:
        """`suffix` is that of the second part; the first one is still `.cleaned`."""
        parts = self._split_aside(log)
        self._put(log, parts, {0: ".cleaned", BEYOND: suffix or None, 2 * BEYOND: ".swap"})

        log.start()

        assert log.contents() == self.CONTENTS

    @pytest.mark.parametrize("original", ["", ".deleted", None], ids=["there", "deleted", "gone"])
    def test_a_crash_after_all_parts_are_swaps_is_finished(
        self, log: MadeLog, original: str | None
    ) -> None:
        parts = self._split_aside(log)
        if original is None:
            log.path("0.log").unlink()
        else:
            log.path("0.log").rename(log.path(f"0.log{original}"))
        self._put(log, parts, {0: ".swap", BEYOND: ".swap", 2 * BEYOND: ".swap"})

        log.start()

        assert log.contents() == self.CONTENTS

    def test_a_crash_when_some_parts_have_their_final_names_is_finished(self, log: MadeLog) -> None:
        parts = self._split_aside(log)
        log.path("0.log").unlink()
        self._put(log, parts, {0: "", BEYOND: ".swap", 2 * BEYOND: ".swap"})

        log.start()

        assert log.contents() == self.CONTENTS

    def test_a_crash_at_any_step_of_a_split_loses_nothing(
        self, make_log: MakeLog, tmp_path: Path
    ) -> None:
        log = make_log()
        log.crash()
        log.write_segment(0, [log.build_at(5, "a=1"), log.build_at(BEYOND, "b=1")])
        aside = tmp_path / "aside"
        shutil.copytree(log.directory, aside)
        step = 0
        while True:
            log.fs = StoppingDisk(step)
            try:
                log.start()
            except PowerLossError:
                log.crash()
            else:
                break
            log.fs = HastyDisk()
            log.start()
            assert log.contents() == f"5:a=1 | {BEYOND}:b=1", f"after step {step}"
            log.crash()
            shutil.rmtree(log.directory)
            shutil.copytree(aside, log.directory)
            step += 1

        assert step > 20  # writes and renames of two parts

    def _split_aside(self, log: MadeLog) -> dict[str, bytes]:
        """Return the files of the parts, and leave the log as it was."""
        original = log.path("0.log").read_bytes()
        log.start()
        parts = {
            name: log.path(name).read_bytes()
            for name in log.names()
            if not name.endswith(".snapshot")
        }
        log.crash()
        for name in log.names():
            log.path(name).unlink()
        log.path("0.log").write_bytes(original)
        return parts

    def _put(self, log: MadeLog, parts: dict[str, bytes], suffixes: dict[int, str | None]) -> None:
        for name, data in parts.items():
            suffix = suffixes[int(name.partition(".")[0])]
            if suffix is not None:
                log.path(f"{name}{suffix}").write_bytes(data)
