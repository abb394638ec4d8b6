"""Reading a log by offset and by time."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import (
    OffsetOutOfRangeError,
)
from siltstone.log.reading import Isolation
from siltstone.log.time_index import TimestampOffset
from siltstone.records.batch import BatchHeader, iter_batches
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.make_log import EVERYTHING, MadeLog, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
COMMITTED = Isolation.COMMITTED
HIGH_WATERMARK = Isolation.HIGH_WATERMARK
LOG_END = Isolation.LOG_END


class TestReading:
    def test_as_many_whole_batches_as_fit(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 c=1 d=1")

        sizes = {
            max_bytes: len(list(log.real.read(0, max_bytes).batches()))
            for max_bytes in (139, 140, 141, 209, 210, 280, 1000)
        }

        assert sizes == {139: 1, 140: 2, 141: 2, 209: 2, 210: 3, 280: 4, 1000: 4}

    def test_one_batch_at_least(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")

        for max_bytes in (0, 1, 69):
            (batch,) = log.real.read(1, max_bytes).batches()
            assert batch.header.base_offset == 1

    def test_none_if_one_would_be_too_many(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")

        assert log.real.read(0, 69, min_one_batch=False).slice is None
        assert len(list(log.real.read(0, 70, min_one_batch=False).batches())) == 1

    def test_the_whole_batch_that_holds_the_offset(self, make_log: MakeLog) -> None:
        log = make_log("[a=1 b=1 c=1] [d=1 e=1 f=1]")

        starts = [next(log.real.read(o, 1).batches()).header.base_offset for o in range(6)]

        assert starts == [0, 0, 0, 3, 3, 3]

    def test_the_next_batch_where_there_is_a_gap(self, make_log: MakeLog) -> None:
        log = make_log()
        log.follow(log.build_at(2, "a=1"), log.build_at(5, "b=1"))
        log.append("|")
        log.follow(log.build_at(20, "c=1"))

        found = {
            offset: next(log.real.read(offset, 1).batches()).header.base_offset
            for offset in (0, 2, 3, 5, 6, 19, 20)
        }

        assert found == {0: 2, 2: 2, 3: 5, 5: 5, 6: 20, 19: 20, 20: 20}

    def test_one_segment_at_a_time(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1 | d=1")

        assert len(list(log.real.read(0, EVERYTHING).batches())) == 2
        assert len(list(log.real.read(2, EVERYTHING).batches())) == 1

    def test_nothing_at_the_end(self, make_log: MakeLog) -> None:
        log = make_log("a=1 |")

        result = log.real.read(1, EVERYTHING)

        assert result.slice is None
        assert list(result.batches()) == []
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
            1,
            1,
            0,
        )

    @pytest.mark.parametrize("offset", [-1, 1, 5, 100])
    def test_an_offset_outside_of_the_log_is_refused(self, make_log: MakeLog, offset: int) -> None:
        log = make_log("a=1 b=1 c=1 d=1")
        log.real.delete_records(2)

        with pytest.raises(OffsetOutOfRangeError) as error:
            log.real.read(offset, EVERYTHING)

        assert str(error.value) == f"offset {offset} of orders-3 is outside of the log (2 to 4)"

    def test_each_isolation_has_its_own_end(self, make_log: MakeLog) -> None:
        log = make_log("a=1")
        log.produce("b=1", transactional=True)
        log.append("c=1")
        log.is_replicated = False
        log.append("d=1")

        ends = {
            isolation: [b.header.base_offset for b in log.iter_fetched(isolation)]
            for isolation in Isolation
        }

        assert ends == {COMMITTED: [0], HIGH_WATERMARK: [0, 1, 2], LOG_END: [0, 1, 2, 3]}

    def test_an_end_in_the_middle_of_a_fetch_cuts_it(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")
        log.is_replicated = False
        log.append("c=1 | d=1")

        assert len(list(log.real.read(0, EVERYTHING).batches())) == 2
        assert list(log.real.read(2, EVERYTHING).batches()) == []
        assert len(list(log.real.read(0, EVERYTHING, LOG_END).batches())) == 3

    def test_a_reader_can_finish_what_it_has_begun(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1 | b=1", file_delete_delay_ms=0)
        result = log.real.read(0, EVERYTHING)

        log.real.delete_records(1)
        log.real.delete_old_segments()
        log.real.delete_due_files()

        assert "0.log" not in log.names()
        assert [batch.header.base_offset for batch in result.batches()] == [0]

    def test_damage_is_reported_with_its_place(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")
        with log.path("0.log").open("r+b") as file:
            file.seek(2 * BATCH_BYTES - 1)
            file.write(b"\xee")

        with pytest.raises(
            Exception, match=r"orders-3/0{20}\.log is corrupt at position 70: header says CRC 0x"
        ):
            list(log.real.read(0, EVERYTHING).batches())


class TestFindingTimestamps:
    def test_the_first_record_at_or_after_a_time(self, make_log: MakeLog) -> None:
        log = make_log("[a=1@10 b=1@30] c=1@20 | d=1@50 [e=1@40 f=1@60]")

        found = {
            time: log.real.find_offset_by_timestamp(time) for time in (0, 10, 11, 31, 50, 51, 61)
        }

        assert found == {
            0: TimestampOffset(10, 0),
            10: TimestampOffset(10, 0),
            11: TimestampOffset(30, 1),
            31: TimestampOffset(50, 3),
            50: TimestampOffset(50, 3),
            51: TimestampOffset(60, 5),
            61: None,
        }

    def test_nothing_below_the_log_start(self, make_log: MakeLog) -> None:
        log = make_log("[a=1@10 b=1@20 c=1@30] d=1@40")
        log.real.delete_records(2)

        assert log.real.find_offset_by_timestamp(0) == TimestampOffset(30, 2)

    def test_records_without_timestamps_are_never_found(self, make_log: MakeLog) -> None:
        log = make_log("a=1@-1 b=1@-1")

        assert log.real.find_offset_by_timestamp(0) is None
        assert log.real.find_max_timestamp() is None

    def test_the_newest_of_all(self, make_log: MakeLog) -> None:
        log = make_log("a=1@10 | [b=1@20 c=1@50 d=1@50] e=1@50 | f=1@30")

        assert log.real.find_max_timestamp() == TimestampOffset(50, 2)

    def test_the_epoch_itself_is_a_time(self, make_log: MakeLog) -> None:
        log = make_log("a=1@0 | b=1@-1")

        log.restart()

        assert log.real.find_offset_by_timestamp(0) == TimestampOffset(0, 0)
        assert log.real.find_max_timestamp() == TimestampOffset(0, 0)


# What a log answers must not depend on its indexes (I4): a full scan tells the same.


gaps = st.integers(0, 3)


layouts = st.lists(
    st.tuples(gaps, st.lists(st.integers(0, 50), min_size=1, max_size=3), st.booleans()),
    min_size=1,
    max_size=12,
)


def make_layout(
    directory: str, layout: list[tuple[int, list[int], bool]], interval_bytes: int
) -> MadeLog:
    """Fill a log with batches of records with these timestamps, gaps before them, and rolls."""
    log = MakeLog(Path(directory), ManualClock())(index_interval_bytes=interval_bytes)
    for gap, timestamps, rolls in layout:
        if rolls and log.segment(log.base_offsets()[-1]).size_bytes:
            log.append("|")
        text = " ".join(f"k=v@{timestamp}" for timestamp in timestamps)
        log.follow(log.build_at(log.real.log_end_offset + gap, text))
    return log


def scan(log: MadeLog) -> list[list[BatchHeader]]:
    return [
        [b.header for _, b in iter_batches(segment.path.read_bytes()[: segment.size_bytes])]
        for segment in log.real.segments
    ]


def scan_records(log: MadeLog) -> list[Record]:
    return [
        record
        for segment in log.real.segments
        for _, batch in segment.iter_batches()
        for record in batch.iter_records()
    ]


@given(
    layouts,
    st.sampled_from([0, 100, 4096]),
    st.sampled_from([0, 1, 100, 200, 10_000]),
    st.booleans(),
)
def test_a_read_at_any_offset_gives_what_a_scan_gives(
    layout: list[tuple[int, list[int], bool]], interval_bytes: int, max_bytes: int, restarts: bool
) -> None:
    with TemporaryDirectory() as directory:
        log = make_layout(directory, layout, interval_bytes)
        if restarts:
            log.restart()
        segments = scan(log)

        for offset in range(log.real.log_end_offset):
            found = [b.header for b in log.real.read(offset, max_bytes).batches()]

            following = next(
                rest
                for headers in segments
                if (rest := [header for header in headers if header.last_offset >= offset])
            )
            expected: list[BatchHeader] = []
            for header in following:
                size = sum(h.size_bytes for h in expected) + header.size_bytes
                if expected and size > max_bytes:
                    break
                expected.append(header)
            assert found == expected


@given(layouts, st.sampled_from([0, 100, 4096]), st.booleans())
def test_a_look_up_of_any_time_gives_what_a_scan_gives(
    layout: list[tuple[int, list[int], bool]], interval_bytes: int, restarts: bool
) -> None:
    with TemporaryDirectory() as directory:
        log = make_layout(directory, layout, interval_bytes)
        if restarts:
            log.restart()
        records = scan_records(log)

        for time_ms in range(52):
            expected = next(
                (
                    TimestampOffset(record.timestamp_ms, record.offset)
                    for record in records
                    if record.timestamp_ms >= time_ms
                ),
                None,
            )
            assert log.real.find_offset_by_timestamp(time_ms) == expected
