"""A reader sees what an owner would see after loading what a crash has left, and loads nothing."""

import shutil
from pathlib import Path

import pytest

from siltstone.errors import (
    CorruptBatchError,
)
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.records.builder import build_batch
from tests.support.make_log import (
    PARTITION,
    HastyDisk,
    MadeLog,
    MakeLog,
    parse_records,
)
from tests.support.seen_logs import describe, take_picture

BEYOND = 2**31  # the first offset that does not fit a segment with base offset 0


class TestWhatACrashLeaves:
    """A reader must see what an owner would see after loading, and load nothing."""

    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        """Three segments with transactions; its directory is the first of `make_log`."""
        log = make_log(index_interval_bytes=0, segment_ms=2**60)
        log.produce("a=1@10", producer=1, transactional=True)
        log.append("b=1@30 |")
        log.produce("c=1@20", producer=2, transactional=True)
        log.abort(producer=1)
        log.append("d=1@50 |")
        log.abort(producer=2)
        log.append("e=1@40 f=1@60")
        return log

    def check(self, log: MadeLog, root: Path) -> str:
        """Compare a reader's view with that of an owner of a copy, and return the content."""
        copy = root.with_name("copy")
        shutil.copytree(root, copy)
        before = take_picture(root)

        seen = describe(LogReader([root], clock=log.clock).get_log(PARTITION))

        assert take_picture(root) == before
        with LogManager([copy], fs=HastyDisk(), clock=log.clock) as manager:
            assert seen == describe(manager.get_log(PARTITION))
        contents = seen["contents"]
        assert isinstance(contents, str)
        return contents

    CONTENTS = "0:a=1 1:b=1 | 2:c=1 3:abort 4:d=1 | 5:abort 6:e=1 7:f=1"

    def test_nothing_special(self, log: MadeLog, root: Path) -> None:
        log.stop()
        (root / ".kafka_cleanshutdown").write_bytes(b"")

        assert self.check(log, root) == self.CONTENTS

    def test_no_clean_stop(self, log: MadeLog, root: Path) -> None:
        log.crash()

        assert self.check(log, root) == self.CONTENTS

    @pytest.mark.parametrize(
        "garbage",
        [b"\0", b"\0" * 500, b"torn" * 30, b"\xff" * 61],
        ids=["one zero", "zeros", "text", "ones"],
    )
    def test_a_torn_tail(self, log: MadeLog, root: Path, garbage: bytes) -> None:
        log.crash()
        with log.path("5.log").open("ab") as file:
            file.write(garbage)

        assert self.check(log, root) == self.CONTENTS

    def test_a_segment_that_is_cut_in_the_middle(self, log: MadeLog, root: Path) -> None:
        log.crash()
        data = log.path("2.log").read_bytes()
        log.path("2.log").write_bytes(data[:-10])

        assert self.check(log, root) == "0:a=1 1:b=1 | 2:c=1 3:abort"

    @pytest.mark.parametrize("is_clean", [True, False])
    @pytest.mark.parametrize("recovery_point", [0, 5, 8])
    def test_no_indexes(
        self, log: MadeLog, root: Path, recovery_point: int, is_clean: bool
    ) -> None:
        log.crash()
        for name in log.names():
            if name.endswith("index"):
                log.path(name).unlink()
        self.write_recovery_point(root, recovery_point)
        if is_clean:
            (root / ".kafka_cleanshutdown").write_bytes(b"")

        assert self.check(log, root) == self.CONTENTS

    def test_no_snapshots_and_no_epochs(self, log: MadeLog, root: Path) -> None:
        log.crash()
        for name in log.names():
            if name.endswith(".snapshot"):
                log.path(name).unlink()
        (log.directory / "leader-epoch-checkpoint").unlink()

        assert self.check(log, root) == self.CONTENTS

    def test_checkpoints_that_make_no_sense(self, log: MadeLog, root: Path) -> None:
        log.crash()
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            (root / name).write_text("nonsense")

        assert self.check(log, root) == self.CONTENTS

    def test_files_on_their_way_out(self, log: MadeLog, root: Path) -> None:
        log.crash()
        for name in ("0.log.deleted", "1.index.cleaned", "2.log.cleaned", "7.index", "9.snapshot"):
            log.path(name).write_bytes(b"whatever")

        assert self.check(log, root) == self.CONTENTS

    @pytest.mark.parametrize("recovery_point", [0, 8])
    @pytest.mark.parametrize(
        "done",
        ["", "log", "log index", "log index timeindex", "log index timeindex txnindex"],
        ids=["nothing", "log", "index", "timeindex", "txnindex"],
    )
    def test_a_swap_that_was_cut_short(
        self, log: MadeLog, root: Path, recovery_point: int, done: str
    ) -> None:
        """The first files of a segment have their final names already; the rest is `.swap`."""
        log.crash()
        self.write_recovery_point(root, recovery_point)
        for name in log.names():
            base, _, extension = name.partition(".")
            if base == "2" and extension not in ("snapshot", *done.split()):
                log.path(name).rename(log.path(f"{name}.swap"))

        assert self.check(log, root) == self.CONTENTS

    def test_a_swap_whose_originals_are_still_there(self, log: MadeLog, root: Path) -> None:
        log.crash()
        cleaned = build_batch(parse_records("b=1@30", 0, 1), base_offset=1, leader_epoch=0)
        log.path("0.log.swap").write_bytes(cleaned)
        for name in ("0.index.swap", "0.timeindex.swap"):
            log.path(name).write_bytes(b"")

        contents = self.check(log, root)

        assert contents == self.CONTENTS.replace("0:a=1 ", "")

    def test_a_swap_that_was_not_complete(self, log: MadeLog, root: Path) -> None:
        log.crash()
        log.path("2.log.swap").write_bytes(b"half of it")
        log.path("2.index.cleaned").write_bytes(b"")

        assert self.check(log, root) == self.CONTENTS

    def test_a_log_that_ends_before_its_start(self, log: MadeLog, root: Path) -> None:
        log.crash()
        (root / "log-start-offset-checkpoint").write_text(f"0\n1\n{PARTITION.topic} 3 100\n")

        assert self.check(log, root) == ""

    def test_an_empty_directory(self, log: MadeLog, root: Path) -> None:
        log.crash()
        shutil.rmtree(log.directory)
        log.directory.mkdir()

        assert self.check(log, root) == ""

    def test_offsets_that_do_not_fit_are_for_the_owner_to_split(
        self, log: MadeLog, root: Path
    ) -> None:
        log.crash()
        shutil.rmtree(log.directory)
        log.write_segment(0, [log.build_at(0, "a=1"), log.build_at(BEYOND, "b=1")])
        before = take_picture(root)

        with pytest.raises(CorruptBatchError) as error:
            LogReader([root]).get_log(PARTITION)

        assert str(error.value).endswith(
            "offsets do not fit the base offset: its owner must split the segment"
        )
        assert take_picture(root) == before

    def write_recovery_point(self, root: Path, offset: int) -> None:
        (root / "recovery-point-offset-checkpoint").write_text(
            f"0\n1\n{PARTITION.topic} {PARTITION.partition} {offset}\n"
        )
