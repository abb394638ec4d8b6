"""What a verification says about logs that are sound, grown old, or not to be judged."""

from pathlib import Path

import pytest

from siltstone.cleaner.verify import VerifyRequest, verify_partition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.records.compression import Codec
from tests.support.cleaning import ENGINES, Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.random_lives import PARTITION, RandomLife
from tests.support.verifying import edited, found, verify

SEEDS = range(10)
PASSES = 3

# What a sound log may be told about, and no more.
HARMLESS = {"I2", "I6", "I8", "I15", "I19", "I22"}


# Sound logs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a=1",
        "a=1 a=2 | a=3 b~ | b=1",
        "[a=1 b=1 a=2] | [a~ c=1] | | d=1",
        "a=1@5 b=1@3 c=1@9 | a=2@-1 | b=2@7",
    ],
)
def test_nothing_is_found_in_a_sound_log_before_and_after_a_pass(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock, tmp_path: Path, text: str
) -> None:
    log = make_log(text)
    assert verify(log, clock).findings == ()
    if "|" not in text:
        return
    before = edited(log).copy_to(tmp_path / "before")

    cleaner.clean(log)

    assert verify(log, clock, deep=False).findings == ()
    assert verify(log, clock, before=before.log_dir).findings == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_violation_is_found_in_a_random_life(seed: int, tmp_path: Path) -> None:
    make_engine = list(ENGINES.values())[seed % len(ENGINES)]
    life = RandomLife(tmp_path / "data", make_engine(), seed)
    for number in range(PASSES):
        life.live(life.rng.randint(5, 40))
        before = life.copy_to(tmp_path / f"copy-{number}")
        life.clean()
        life.live(life.rng.choice([0, 0, 5]))
        _check(life, before)
    _check(life, tmp_path / "copy-0")
    life.stop()
    _check(life, None)


def _check(life: RandomLife, before: Path | None) -> None:
    report = verify_partition(
        VerifyRequest(
            partition=PARTITION,
            log_dir=life.log_dir,
            config=life.config,
            now_ms=life.clock.now_ms(),
            deep=True,
            before_dir=before,
        )
    )
    story = "\n".join([*life.trace, f"against {before}", *map(str, report.findings)])
    assert report.violations == (), story
    assert {finding.invariant for finding in report.warnings} <= HARMLESS, story


def test_a_report_says_how_much_was_looked_at(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 a=2 | [b=1 c=1] | d=1")
    cleaner.clean(log)

    report = verify(log, clock)

    assert (report.segment_count, report.batch_count, report.record_count) == (2, 3, 4)
    assert report.size_bytes == log.real.size_bytes
    assert (report.log_start_offset, report.first_dirty_offset, report.log_end_offset) == (0, 4, 5)
    assert report.is_ok


def test_a_partition_without_segments_is_sound(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    request = VerifyRequest(
        partition=filenames.parse_partition_dir("t-0").partition,
        log_dir=tmp_path,
        config=LogConfig(),
        now_ms=0,
        deep=True,
        before_dir=tmp_path,
    )

    assert verify_partition(request).findings == ()


def test_a_copy_that_lacks_the_partition_is_worth_a_warning(
    make_log: MakeCompactedLog, clock: ManualClock, tmp_path: Path
) -> None:
    report = verify(make_log("a=1"), clock, before=tmp_path)

    assert found(report) == {("I3", "warning")}


def test_a_copy_that_is_damaged_itself_is_named_as_such(
    make_log: MakeCompactedLog, clock: ManualClock, tmp_path: Path
) -> None:
    log = make_log("a=1 b=1 | c=1")
    before = edited(log).copy_to(tmp_path / "before")
    before.flip(0, 65)

    report = verify(log, clock, before=before.log_dir)

    assert "in the copy from before: header says CRC" in report.violations[0].message


# What time does


def test_what_is_past_its_delete_horizon_is_worth_a_warning(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 | a~ | b=1", delete_retention_ms=1000)
    cleaner.clean(log)

    clock.advance_ms(999)
    assert verify(log, clock).findings == ()

    clock.advance_ms(1)
    report = verify(log, clock)
    assert found(report) == {("I15", "warning")}
    assert "1 tombstones or markers are past their delete horizon" in report.findings[0].message


def test_a_tombstone_may_go_once_its_horizon_has_passed(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock, tmp_path: Path
) -> None:
    log = make_log("a=1 | a~ | b=1 | c=1", delete_retention_ms=1000)
    first = edited(log).copy_to(tmp_path / "first").log_dir
    cleaner.clean(log)
    clock.advance_ms(1000)
    second = edited(log).copy_to(tmp_path / "second").log_dir
    cleaner.clean(log)
    assert log.contents() == "2:b=1 | 3:c=1"

    assert verify(log, clock, before=second).findings == ()
    assert verify(log, clock, before=first).findings == ()


def test_a_tombstone_that_went_is_no_violation_if_nobody_knows_when(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock, tmp_path: Path
) -> None:
    log = make_log("a=1 | a~ | b=1 | c=1", delete_retention_ms=1000)
    before = edited(log).copy_to(tmp_path / "before").log_dir
    cleaner.clean(log)
    clock.advance_ms(1000)
    cleaner.clean(log)
    edited(log).forget_manifests()

    assert found(verify(log, clock, before=before)) == {("I15", "warning")}


def test_a_key_whose_tombstone_came_and_went_is_no_violation(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock, tmp_path: Path
) -> None:
    log = make_log("a=1 | b=1", delete_retention_ms=0)
    before = edited(log).copy_to(tmp_path / "before").log_dir
    log.append("a~ | c=1 | d=1")
    for _ in range(2):
        cleaner.clean(log)
    assert log.contents() == "1:b=1 3:c=1 | 4:d=1"

    assert found(verify(log, clock, before=before)) == {("I6", "warning")}


# Other cleaners


def test_another_cleaner_may_go_on_where_ours_ended(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 a=2 | b=1")
    cleaner.clean(log)
    manifests = {p.name: p.read_bytes() for p in edited(log).manifests()}
    log.append("a=3 | c=1")
    cleaner.clean(log)
    edited(log).forget_manifests()
    for name, data in manifests.items():
        (log.directory / name).write_bytes(data)

    assert verify(log, clock).findings == ()


def test_passes_of_the_same_moment_are_told_apart(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock, tmp_path: Path
) -> None:
    log = make_log("a=1 a=2 | b=1")
    before = edited(log).copy_to(tmp_path / "before").log_dir
    for number in range(5):
        cleaner.clean(log)
        log.append(f"a={number} | c=1")

    assert verify(log, clock).findings == ()
    assert verify(log, clock, before=before).violations == ()


def test_one_index_entry_may_stand_for_several_batches(
    make_log: MakeCompactedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka wrote them before 4.0: an append's last offset, and where its first batch begins."""
    log = make_log("a=1 b=1 c=1 d=1 | e=1", index_interval_bytes=0)
    files = edited(log)
    files.edit_entries(files.path(0, ".index"), ">ii", lambda rows: [[rows[-1][0], rows[0][1]]])

    assert verify(log, clock).findings == ()
    log.restart()
    assert log.readable() == "0:a=1 1:b=1 2:c=1 3:d=1 4:e=1"
    assert caplog.messages == []


def test_a_checkpoint_below_the_log_start_is_worth_a_warning(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 a=2 | b=1 | c=1")
    cleaner.clean(log)
    edited(log).write_offset(filenames.LOG_START_OFFSETS, 3)
    edited(log).write_offset(filenames.CLEANER_OFFSETS, 2)

    assert found(verify(log, clock)) == {("I22", "warning")}


def test_records_below_the_log_start_are_nobodys_business(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 a=2 a=3 | b=1")
    edited(log).write_offset(filenames.LOG_START_OFFSETS, 2)
    edited(log).write_offset(filenames.CLEANER_OFFSETS, 3)

    assert verify(log, clock).findings == ()


def test_many_findings_of_a_kind_are_counted(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = make_log("a=1 " * 50 + "| b=1")
    edited(log).write_offset(filenames.CLEANER_OFFSETS, 50)

    report = verify(log, clock)

    assert {f.invariant for f in report.violations} == {"I9"}
    assert len(report.violations) == 21
    assert report.violations[-1].message == "and 29 more like these"


def test_keys_are_unique_only_up_to_the_first_dirty_offset(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    """A pass of Kafka's whose map was full may end within a batch."""
    log = make_log("[a=1 b=1 c=1 a=2] | b=2")
    for offset, keys in ((3, set()), (4, {"I9"})):
        edited(log).write_offset(filenames.CLEANER_OFFSETS, offset)
        violations = verify(log, clock).violations
        assert {finding.invariant for finding in violations} == keys


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_decoded(
    make_log: MakeCompactedLog, clock: ManualClock, codec: Codec
) -> None:
    log = make_log()
    for _ in range(2):
        log.append_batch(log.build("[a=1 b=1 c~]", codec=codec))
    log.append("| d=1")
    edited(log).write_offset(filenames.CLEANER_OFFSETS, 6)

    report = verify(log, clock)

    assert [f.invariant for f in report.violations] == ["I9"] * 3
    assert [f.offset for f in report.violations] == [0, 1, 2]
