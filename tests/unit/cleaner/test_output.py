"""Cleaned segments as files: where they are split, and what their indexes say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siltstone.cleaner.output import GroupWriter, Written
from siltstone.cleaner.plan import CleaningPlan, Source
from siltstone.cleaner.result import OutputSegment
from siltstone.cleaner.storage import DirectoryStorage
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.transaction_index import AbortedTxn, pack_aborted
from siltstone.records.batch import iter_batches, read_header
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import MAX_RELATIVE_OFFSET
from siltstone.records.record import Record
from tests.support.cleaning import (
    Cleaner,
    MakeCompactedLog,
    batch_ends,
    file_bytes,
    horizons_ms,
    records_of,
)
from tests.support.clock import ManualClock
from tests.support.log_checks import check_lookups, check_segments
from tests.support.make_log import MadeLog

BATCH_BYTES = 70


def batch(offset: int, timestamp_ms: int = 0) -> bytes:
    """Build a batch of 70 bytes."""
    return build_batch([Record(offset, timestamp_ms, b"k", b"v")])


def make_plan(directory: Path, *sources: tuple[int, int], **fields: Any) -> CleaningPlan:
    """Make a plan by (base offset, size) of its sources, all of them one group."""
    return CleaningPlan(
        **{
            "pass_id": "1",
            "partition": TopicPartition("orders", 3),
            "directory": directory,
            "reason": "",
            "sources": tuple(Source(base, size, 0) for base, size in sources),
            "groups": (tuple(base for base, _ in sources),),
            "log_start_offset": 0,
            "first_dirty_offset": 0,
            "end_offset": 2**62,
            "aborted": (),
            "last_records": (),
            "now_ms": 0,
            "delete_retention_ms": 0,
            "segment_bytes": 10 * BATCH_BYTES,
            "index_interval_bytes": 4096,
            "segment_index_bytes": 10 << 20,
            "hash_key": bytes(16),
            **fields,
        }
    )


class Output:
    """Batches that went through a writer, and the files it made of them."""

    def __init__(self, plan: CleaningPlan, attempt: str = "test") -> None:
        self.directory = plan.directory
        self.writer = GroupWriter(plan, plan.groups[0], DirectoryStorage(plan.directory), attempt)
        self.outputs: tuple[OutputSegment, ...] = ()

    def add(self, batches: Sequence[bytes]) -> None:
        headers = [read_header(data) for data in batches]
        rows = [[h.size_bytes, h.base_offset, h.last_offset, h.max_timestamp_ms] for h in headers]
        self.writer.add(Written(memoryview(b"".join(batches)), np.array(rows, np.int64)))

    def finish(self, aborted: Sequence[AbortedTxn] = ()) -> None:
        self.outputs = self.writer.finish(aborted)

    def file(self, slot: int, extension: str) -> bytes | None:
        for file in self.outputs[slot].files:
            if file.extension == extension:
                return (self.directory / file.name).read_bytes()
        return None

    def offsets(self) -> dict[int, list[int]]:
        """Return the base offsets of the batches in each segment, by the segment's."""
        return {
            output.base_offset: [
                found.header.base_offset
                for _, found in iter_batches(self.file(slot, filenames.LOG) or b"")
            ]
            for slot, output in enumerate(self.outputs)
        }


def write(plan: CleaningPlan, *batches: bytes, aborted: Sequence[AbortedTxn] = ()) -> Output:
    written = Output(plan)
    written.add(batches)
    written.finish(aborted)
    return written


class TestSplit:
    def test_what_fits_is_one_segment_with_the_base_of_the_group(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 700), (10, 700))

        written = write(plan, *(batch(offset) for offset in range(5, 15)))

        assert written.offsets() == {0: list(range(5, 15))}
        assert written.writer.bytes_written == 700

    def test_what_does_not_fit_goes_on_in_a_segment_of_its_own(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 700), (10, 700), segment_bytes=3 * BATCH_BYTES)

        written = write(plan, *(batch(offset) for offset in range(2, 9)))

        assert written.offsets() == {0: [2, 3, 4], 5: [5, 6, 7], 8: [8]}

    def test_a_byte_less_is_a_batch_less(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 700), (10, 700), segment_bytes=3 * BATCH_BYTES - 1)

        written = write(plan, *(batch(offset) for offset in range(4)))

        assert written.offsets() == {0: [0, 1], 2: [2, 3]}

    def test_a_segment_that_was_larger_than_allowed_may_stay_as_large(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 4 * BATCH_BYTES), segment_bytes=BATCH_BYTES)

        written = write(plan, *(batch(offset) for offset in range(5)))

        assert written.offsets() == {0: [0, 1, 2, 3], 4: [4]}

    def test_a_batch_that_is_too_large_for_any_segment_gets_one(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 100), (10, 100), segment_bytes=100)
        large = build_batch([Record(3, 0, b"k", bytes(500))])

        written = write(plan, batch(0), large, batch(4), batch(5))

        assert written.offsets() == {0: [0], 3: [3], 4: [4], 5: [5]}

    def test_a_first_batch_that_is_too_large_leaves_no_empty_segment(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 100), (10, 100), segment_bytes=100)
        large = build_batch([Record(3, 0, b"k", bytes(500))])

        assert write(plan, large, batch(4)).offsets() == {0: [3], 4: [4]}

    def test_offsets_that_the_index_cannot_express_begin_a_segment(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 700))
        last = MAX_RELATIVE_OFFSET

        written = write(plan, batch(0), batch(last), batch(last + 1), batch(last + 2))

        assert written.offsets() == {0: [0, last], last + 1: [last + 1, last + 2]}

    def test_a_first_batch_out_of_reach_leaves_the_base_in_place(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 700))
        far = MAX_RELATIVE_OFFSET + 1

        assert write(plan, batch(far)).offsets() == {0: [], far: [far]}

    @pytest.mark.parametrize("piece", [1, 2, 3, 100])
    def test_it_does_not_matter_in_which_pieces_batches_come(
        self, piece: int, tmp_path: Path
    ) -> None:
        plan = make_plan(tmp_path, (0, 0), (9, 0), segment_bytes=500, index_interval_bytes=100)
        batches = [batch(offset, timestamp_ms=offset * 7 % 5) for offset in range(20)]
        whole = write(plan, *batches)

        written = Output(plan, "pieces")
        for start in range(0, len(batches), piece):
            written.add(batches[start : start + piece])
        written.finish()

        for slot in range(len(whole.outputs)):
            for extension in (filenames.LOG, filenames.OFFSET_INDEX, filenames.TIME_INDEX):
                assert written.file(slot, extension) == whole.file(slot, extension)
        assert written.offsets() == whole.offsets()


class TestFiles:
    def test_nothing_is_a_segment_of_no_bytes(self, tmp_path: Path) -> None:
        written = Output(make_plan(tmp_path, (7, 700), (10, 700)))
        written.finish()

        assert written.offsets() == {7: []}
        assert [(f.extension, f.size_bytes, f.crc32c) for f in written.outputs[0].files] == [
            (filenames.LOG, 0, 0),
            (filenames.OFFSET_INDEX, 0, 0),
            (filenames.TIME_INDEX, 0, 0),
        ]

    def test_sizes_and_checksums_are_those_of_the_files(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 0), (9, 0), segment_bytes=500, index_interval_bytes=100)

        written = write(
            plan,
            *(batch(offset, timestamp_ms=offset) for offset in range(20)),
            aborted=[AbortedTxn(1, 2, 3, 4)],
        )

        files = [file for output in written.outputs for file in output.files]
        assert len(files) == 3 * 3 + 1
        for file in files:
            data = (tmp_path / file.name).read_bytes()
            assert (len(data), crc32c(data)) == (file.size_bytes, file.crc32c)
        assert {file.name for file in files} == {path.name for path in tmp_path.iterdir()}

    def test_names_are_no_segments_and_tell_attempts_apart(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 0))
        names = []
        for attempt in ("task-1", "task-2"):
            written = Output(plan, attempt)
            written.add([batch(0)])
            written.finish()
            names += [file.name for file in written.outputs[0].files]

        assert len(set(names)) == 6
        assert all(filenames.is_pass_file(name) for name in names)
        assert not any(filenames.parse_segment_file(name) for name in names)

    def test_a_repeated_attempt_starts_over(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 0))
        first = write(plan, *(batch(offset) for offset in range(5)))
        assert first.offsets() == {0: [0, 1, 2, 3, 4]}

        assert write(plan, batch(0)).offsets() == {0: [0]}

    def test_discarding_deletes_every_file(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 0), (9, 0), segment_bytes=100)
        written = write(plan, batch(0), batch(1), aborted=[AbortedTxn(1, 0, 1, 2)])
        assert len(list(tmp_path.iterdir())) == 7

        written.writer.discard()

        assert list(tmp_path.iterdir()) == []

    def test_each_aborted_transaction_is_listed_where_its_marker_is(self, tmp_path: Path) -> None:
        plan = make_plan(tmp_path, (0, 0), (9, 0), segment_bytes=2 * BATCH_BYTES)
        txns = [AbortedTxn(1, 0, 1, 2), AbortedTxn(2, 0, 2, 3), AbortedTxn(1, 4, 5, 6)]

        written = write(plan, *(batch(offset) for offset in range(6)), aborted=txns)

        assert list(written.offsets()) == [0, 2, 4]
        listed = [written.file(slot, filenames.TRANSACTION_INDEX) for slot in range(3)]
        assert listed == [pack_aborted([txn]) for txn in txns]

    def test_a_segment_without_aborted_transactions_has_no_index_of_them(
        self, tmp_path: Path
    ) -> None:
        written = write(make_plan(tmp_path, (0, 0)), batch(0))

        assert written.file(0, filenames.TRANSACTION_INDEX) is None


class TestIndexes:
    @pytest.fixture
    def log(self, make_log: MakeCompactedLog) -> MadeLog:
        """Small segments that will become large ones, with times that go back and forth."""
        log = make_log(index_interval_bytes=200, segment_index_bytes=2400, segment_bytes=4000)
        for number in range(200):
            timestamp_ms = 1_000 + number * 10 - number * 7 % 5 * 35
            codec = list(Codec)[number % 5]
            log.append_batch(
                log.build(f"[k{number % 60}={number}@{timestamp_ms} u{number}=1@1]", codec=codec)
            )
        log.append("|")
        log.configure(segment_bytes=10_000)
        return log

    # I4; facts 3.7
    def test_indexes_are_the_ones_that_a_rebuild_gives(
        self, log: MadeLog, cleaner: Cleaner
    ) -> None:
        cleaner.clean(log)
        indexes = {n: d for n, d in file_bytes(log).items() if n.endswith("index")}
        assert sum(len(data) for data in indexes.values()) > 500

        log.stop()
        for name in indexes:
            log.path(name).unlink()
        log.start()

        assert {name: log.path(name).read_bytes() for name in indexes} == indexes
        assert log.names().count("0.index") == 1

    def test_every_look_up_gives_what_a_scan_gives(self, log: MadeLog, cleaner: Cleaner) -> None:
        before = len(log.base_offsets())

        cleaner.clean(log)

        assert len(log.base_offsets()) < before
        check_segments(log.real)
        check_lookups(log.real)
        log.recover()
        check_segments(log.real)
        check_lookups(log.real)

    # Facts 7.16
    def test_the_last_entry_of_the_time_index_is_the_newest_timestamp(
        self, log: MadeLog, cleaner: Cleaner
    ) -> None:
        cleaner.clean(log)

        for segment in list(log.real.segments)[:-1]:
            newest_ms = max(found.header.max_timestamp_ms for _, found in segment.iter_batches())
            assert segment.time_index.last.timestamp_ms == newest_ms

    def test_an_index_without_room_leaves_entries_out(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(index_interval_bytes=0, segment_index_bytes=10_000)
        for number in range(30):
            log.append(f"k{number % 20}={number}@{number + 1}")
        log.append("|")
        plan = cleaner.plan(log)
        log.configure(segment_index_bytes=48)

        tight = cleaner.plan(log)
        assert plan.groups == tight.groups
        cleaner.commit(log, tight, cleaner.run(tight))

        assert log.path("0.index").stat().st_size == 48
        assert log.path("0.timeindex").stat().st_size == 48
        check_segments(log.real)
        check_lookups(log.real)


class TestGrowth:
    """Facts 7.18: a horizon makes deltas longer, and a group may not fit its segment any more."""

    def test_a_segment_that_grows_over_its_limit_is_split(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(segment_bytes=280)  # four tombstones of 69 bytes
        for key in "abcdefg":
            log.append(f"{key}~")
        log.append("|")
        assert log.base_offsets() == [0, 4, 7]
        before = records_of(log)

        cleaner.clean(log)

        assert log.base_offsets() == [0, 3, 4, 7]
        assert all(segment.size_bytes <= 280 for segment in log.real.segments)
        assert records_of(log) == before
        assert set(horizons_ms(log).values()) == {clock.now_ms() + 86_400_000}
        check_segments(log.real)
        check_lookups(log.real)
        log.recover()
        assert records_of(log) == before

    def test_a_group_that_grows_over_its_limit_is_split(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a~ b~ | c~ d~ |", segment_bytes=280)
        assert cleaner.plan(log).groups == ((0, 2),)

        cleaner.clean(log)

        assert log.base_offsets() == [0, 3, 4]
        assert log.contents() == "0:a~ 1:b~ 2:c~ | 3:d~ |"

    def test_split_segments_are_merged_again_when_they_shrink(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a~ b~ | c~ d~ |", segment_bytes=280)
        cleaner.clean_twice(log)
        assert log.base_offsets() == [0, 3, 4]

        cleaner.clean(log)

        assert log.base_offsets() == [0, 4]
        assert batch_ends(log) == [3]  # the last batch of the pass, without records
