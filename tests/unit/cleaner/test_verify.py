"""What a verification says about logs that are sound, torn, in use, or not to be judged."""

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.cleaner.commit import commit_pass
from siltstone.cleaner.verify import Report, Severity, VerifyRequest, verify_partition
from siltstone.cleaner.verify.batches import Chunk, Columns, Layout
from siltstone.cleaner.verify.files import SegmentFiles
from siltstone.cleaner.verify.findings import Findings
from siltstone.cleaner.verify.indexes import check_indexes
from siltstone.cleaner.verify.record_blocks import RecordHasher, iter_blocks
from siltstone.errors import LogDirOfflineError
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.identity import format_clean_shutdown
from siltstone.records.batch import read_header
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from siltstone.records.scan import walk
from tests.support import strategies
from tests.support.cleaning import ENGINES, Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.edited_logs import EditedLog
from tests.support.make_log import MadeLog
from tests.support.random_lives import PARTITION, RandomLife

SEEDS = range(10)
PASSES = 3

# What a sound log may be told about, and no more.
HARMLESS = {"I2", "I6", "I8", "I15", "I19", "I22"}


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


# Owners that were killed, and owners at work


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


# Look-ups


@st.composite
def indexed_batches(
    draw: st.DrawFn,
) -> tuple[Columns, list[tuple[int, int]], list[tuple[int, int]]]:
    """Batches of a segment with base offset 0, and entries that may be about them."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    spans = draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes)))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    times = draw(st.lists(st.integers(-1, 5), min_size=len(sizes), max_size=len(sizes)))
    ends = list(itertools.accumulate(map(sum, zip(gaps, spans, strict=True))))
    firsts = np.array(ends) - np.array(spans)
    positions = np.array([0, *itertools.accumulate(sizes[:-1])])
    columns = Columns(positions, firsts, np.array(ends) - 1, np.array(times))
    end = int(columns.last_offsets[-1])
    offset = st.integers(0, end + 1)
    position = st.sampled_from([*positions.tolist(), 3])
    entries = draw(st.lists(st.tuples(offset, position), max_size=3))
    time_entries = draw(st.lists(st.tuples(st.integers(0, 6), offset), max_size=3))
    return columns, sorted(entries), sorted(time_entries)


@given(indexed_batches())
def test_indexes_in_which_nothing_is_wrong_give_what_a_scan_gives(
    case: tuple[Columns, list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    columns, entries, time_entries = case
    segment = SegmentFiles(
        0,
        Path("0.log"),
        100,
        b"".join(struct.pack(">ii", *entry) for entry in entries),
        b"".join(struct.pack(">qi", *entry) for entry in time_entries),
        None,
        end_offset=100,
    )
    findings = Findings(PARTITION)
    check_indexes(segment, Layout(columns, 100, is_whole=True), findings, was_clean=True)
    wrong = {finding.file for finding in findings.finish()}

    def find(offset: int, position: int) -> int | None:
        """Return the number of the first batch from a position on that ends at an offset."""
        for number, (at, last) in enumerate(
            zip(columns.positions, columns.last_offsets, strict=True)
        ):
            if at >= position and last >= offset:
                return number
        return None

    def indexed_position(offset: int) -> int:
        return max((e for e in entries if e[0] <= offset), default=(0, 0))[1]

    if segment.name_of(".index") in wrong:
        return
    for offset in range(int(columns.last_offsets[-1]) + 2):
        assert find(offset, indexed_position(offset)) == find(offset, 0)
    if segment.name_of(".timeindex") in wrong:
        return
    for time_ms in range(8):
        _, offset = max((e for e in time_entries if e[0] <= time_ms), default=(-1, 0))
        first = find(offset, indexed_position(offset))
        assert first is not None
        newer = np.flatnonzero(columns.max_timestamps >= time_ms)
        assert not (newer < first).any()
        # The segment itself is found by its newest timestamp.
        last_ms = time_entries[-1][0] if time_entries else -1
        assert (last_ms >= time_ms) == bool(len(newer))


# Hashes


def _hashes(records: list[Record], hasher: RecordHasher, codec: Codec) -> Iterator[tuple[int, int]]:
    data = memoryview(build_batch(records, codec=codec))
    segment = SegmentFiles(0, Path("x.log"), len(data), None, None, None, None)
    chunk = Chunk(segment, 0, data, walk(data).batches)
    assert read_header(data).record_count == len(records)
    for block in iter_blocks(chunk, lambda *_: pytest.fail("not sound")):
        hashes = hasher.hash(block)
        assert hashes.keys.dtype == np.uint64
        yield from zip(hashes.keys.tolist(), hashes.contents.tolist(), strict=True)


@given(strategies.records(min_size=2), strategies.codecs)
def test_hashes_are_equal_where_records_are(records: tuple[Record, ...], codec: Codec) -> None:
    hasher = RecordHasher()

    hashed = list(zip(records, _hashes(list(records), hasher, codec), strict=True))

    for (one, (key, content)), (other, (other_key, other_content)) in itertools.pairwise(hashed):
        if one.key is not None and other.key is not None:
            assert (key == other_key) == (one.key == other.key)
        assert (content == other_content) == (one[1:] == other[1:])


@given(strategies.records(max_size=3), st.data())
def test_a_hash_does_not_depend_on_the_batch_around_it(
    records: tuple[Record, ...], data: st.DataObject
) -> None:
    hasher = RecordHasher()
    kept = data.draw(st.sampled_from(records))
    codec = data.draw(strategies.codecs)

    together = dict(zip(records, _hashes(list(records), hasher, Codec.NONE), strict=True))

    assert list(_hashes([kept], hasher, codec)) == [together[kept]]
