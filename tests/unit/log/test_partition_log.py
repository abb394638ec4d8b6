"""The life of a log: it rolls when idle, flushes, follows a leader, fails and ends."""

from collections.abc import Sequence

import pytest

from siltstone.errors import (
    ChecksumError,
    LogDirOfflineError,
    MalformedDataError,
    OffsetOrderError,
    RecordTooLargeError,
)
from siltstone.log.filesystem import File
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import read_batch
from siltstone.records.builder import encode_batch
from siltstone.records.compression import Codec
from siltstone.records.layout import HEADER_SIZE
from tests.support.clock import ManualClock
from tests.support.counting_disk import CountingDisk
from tests.support.make_log import HastyDisk, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class TestIdleRolling:
    def test_a_timer_rolls_a_segment_that_gets_nothing_any_more(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1", segment_ms=HOUR_MS)
        log.real.maybe_roll_idle()

        clock.advance_ms(HOUR_MS)
        assert not log.real.maybe_roll_idle()
        clock.advance_ms(1)
        assert log.real.maybe_roll_idle()

        assert log.base_offsets() == [0, 1]
        assert log.real.recovery_point == 1

    def test_an_empty_segment_is_not_rolled(self, make_log: MakeLog, clock: ManualClock) -> None:
        log = make_log(segment_ms=HOUR_MS)

        clock.advance_ms(DAY_MS)

        assert not log.real.maybe_roll_idle()
        assert not log.real.maybe_roll_idle()

    def test_records_without_timestamps_count_from_the_segments_beginning(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1@-1", segment_ms=HOUR_MS)
        log.real.maybe_roll_idle()

        clock.advance_ms(HOUR_MS + 1)

        assert log.real.maybe_roll_idle()

    @pytest.mark.parametrize(
        ("policy", "is_rolled"), [("compact", True), ("compact,delete", True), ("delete", False)]
    )
    def test_a_compacted_log_rolls_in_time_to_be_cleaned(
        self, make_log: MakeLog, clock: ManualClock, policy: str, is_rolled: bool
    ) -> None:
        log = make_log("a=1", cleanup_policy=policy, max_compaction_lag_ms=1_000)
        log.real.maybe_roll_idle()

        clock.advance_ms(1_001)

        assert log.real.maybe_roll_idle() is is_rolled

    def test_a_log_that_is_filled_with_old_records_is_left_alone(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(segment_ms=HOUR_MS)
        old_ms = clock.now_ms() - DAY_MS

        for _ in range(3):
            log.append(f"a=1@{old_ms}")
            log.real.maybe_roll_idle()
        assert log.base_offsets() == [0]

        assert log.real.maybe_roll_idle()  # now nothing has come since the last time

    def test_a_log_that_is_open_for_reading_only_is_left_alone(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1", segment_ms=HOUR_MS)
        log.stop()
        log.start(writable=False)
        clock.advance_ms(DAY_MS)

        assert not log.real.maybe_roll_idle()
        assert not log.real.maybe_roll_idle()


class TestFlushing:
    def test_every_file_and_the_directory_are_flushed(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log(fs=disk, index_interval_bytes=0)
        log.produce("a=1", transactional=True)
        log.abort()
        log.append("b=1")
        disk.flushed.clear()

        log.real.flush()

        assert sorted(disk.flushed) == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000000.txnindex",
            "orders-3",
        ]
        assert log.real.recovery_point == 3

    def test_what_is_durable_is_not_flushed_again(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log("a=1 | b=1 | c=1", fs=disk)
        disk.flushed.clear()

        log.real.flush()
        assert [name for name in disk.flushed if name.endswith(".log")] == [
            "00000000000000000002.log"
        ]
        disk.flushed.clear()
        log.real.flush()
        assert disk.flushed == []

    def test_so_many_records_are_flushed(self, make_log: MakeLog) -> None:
        log = make_log(flush_messages=3)
        points = []

        for text in ("a=1", "b=1", "c=1", "d=1", "[e=1 f=1]", "[g=1 h=1 i=1 j=1]"):
            log.append(text)
            points.append(log.real.recovery_point)

        assert points == [0, 0, 3, 3, 6, 10]

    def test_records_wait_so_long_for_their_flush(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1", flush_ms=1_000)

        clock.advance_ms(999)
        assert not log.real.maybe_flush()
        clock.advance_ms(1)
        assert log.real.maybe_flush()
        assert log.real.recovery_point == 1
        assert not log.real.maybe_flush()

    def test_nothing_is_flushed_when_there_is_nothing_new(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(flush_ms=0)

        clock.advance_ms(DAY_MS)

        assert not log.real.maybe_flush()

    def test_closing_flushes(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log("a=1", fs=disk)
        disk.flushed.clear()

        log.real.close()

        assert log.real.recovery_point == 1
        assert {
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000001.snapshot",
            "orders-3",
        } <= set(disk.flushed)

    def test_a_new_epoch_is_durable_before_its_batch_is_written(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log(fs=disk)
        disk.flushed.clear()

        log.append_batch(log.build("a=1"), leader_epoch=3)

        assert disk.flushed == ["leader-epoch-checkpoint.tmp", "orders-3"]


class TestFollowing:
    def test_batches_are_stored_byte_for_byte(self, make_log: MakeLog) -> None:
        log = make_log()
        data = [
            log.build_at(3, "a=1@30", leader_epoch=4, codec=Codec.ZSTD),
            log.build_at(7, "=1@20 b~@10", leader_epoch=6),
        ]

        info = log.follow(*data)

        assert info is not None
        assert (info.first_offset, info.last_offset, info.max_timestamp_ms) == (3, 8, 30)
        assert log.path("0.log").read_bytes() == b"".join(data)
        assert log.epochs() == "0\n2\n4 3\n6 7\n"

    def test_a_compacted_leaders_gaps_and_empty_batches_are_kept(self, make_log: MakeLog) -> None:
        log = make_log(cleanup_policy="compact")
        header = read_batch(log.build_at(5, "a=1", last_offset_delta=4)).header
        empty = encode_batch(header._replace(record_count=0), b"")

        log.follow(log.build_at(2, "a=1"), empty)

        assert log.contents() == "2:a=1 5..9:empty"
        assert log.real.log_end_offset == 10

    def test_what_was_cut_off_at_the_end_is_left_out(self, make_log: MakeLog) -> None:
        log = make_log()
        data = log.build_at(0, "a=1") + log.build_at(1, "b=1")

        for size in range(BATCH_BYTES, 2 * BATCH_BYTES):
            log.real.truncate_fully_and_start_at(0)
            log.follow(data[:size])
            assert log.contents() == "0:a=1"

    @pytest.mark.parametrize("size", [0, 10, HEADER_SIZE, BATCH_BYTES - 1])
    def test_less_than_a_batch_is_nothing(self, make_log: MakeLog, size: int) -> None:
        log = make_log()

        assert log.follow(log.build_at(0, "a=1")[:size]) is None

    @pytest.mark.parametrize("offsets", [(0,), (1,), (2, 2), (5, 4)])
    def test_an_offset_that_does_not_rise_is_refused(
        self, make_log: MakeLog, offsets: Sequence[int]
    ) -> None:
        log = make_log("a=1 b=1")

        with pytest.raises(OffsetOrderError):
            log.follow(*(log.build_at(offset, "c=1") for offset in offsets))

        assert log.contents() == "0:a=1 1:b=1"

    def test_a_damaged_batch_is_refused_with_all_that_came_along(self, make_log: MakeLog) -> None:
        log = make_log()
        data = bytearray(log.build_at(0, "a=1") + log.build_at(1, "b=1"))
        data[-2] ^= 1

        with pytest.raises(ChecksumError):
            log.follow(bytes(data))

        assert log.contents() == ""

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"last_offset_delta": -1}, "last offset delta is -1"),
            ({"record_count": 2}, "header says 2 records in 1 offsets"),
            ({"record_count": -1}, "header says -1 records in 1 offsets"),
        ],
    )
    def test_a_header_that_recovery_would_cut_off_is_refused(
        self, make_log: MakeLog, fields: dict[str, int], message: str
    ) -> None:
        log = make_log("x=1")
        data = log.build_at(3, "a=1")
        damaged = encode_batch(read_batch(data).header._replace(**fields), data[HEADER_SIZE:])

        with pytest.raises(MalformedDataError, match=message):
            log.follow(damaged)

        assert log.contents() == "0:x=1"

    def test_producers_and_transactions_are_followed_too(self, make_log: MakeLog) -> None:
        leader = make_log("x=1")
        leader.produce("a=1", producer=1, transactional=True)
        leader.produce("b=1", producer=2, transactional=True)
        leader.abort(producer=1)
        leader.produce("c=1", producer=3)
        follower = make_log()

        follower.follow(leader.path("0.log").read_bytes())

        assert follower.contents() == leader.contents()
        assert follower.real.last_stable_offset == leader.real.last_stable_offset == 2
        assert follower.real.producer_state.entries == leader.real.producer_state.entries
        assert follower.real.collect_aborted(0, 9) == [AbortedTxn(1, 1, 3, 2)]

    def test_a_whole_transaction_in_one_fetch_is_followed(self, make_log: MakeLog) -> None:
        leader = make_log()
        leader.produce("a=1", transactional=True)
        leader.abort()
        leader.append("b=1")
        follower = make_log()

        follower.follow(leader.path("0.log").read_bytes())
        follower.recover()

        assert follower.real.last_stable_offset == 3
        assert follower.real.collect_aborted(0, 9) == [AbortedTxn(1, 0, 1, 2)]

    def test_a_fetch_may_hold_any_number_of_batches(self, make_log: MakeLog) -> None:
        log = make_log()
        batches = [log.build_at(offset, "a=1") for offset in range(1_500)]

        log.follow(*batches)

        assert log.path("0.log").read_bytes() == b"".join(batches)

    def test_each_batch_of_a_fetch_is_indexed(self, make_log: MakeLog) -> None:
        log = make_log(index_interval_bytes=100)

        log.follow(*(log.build_at(offset, f"a=1@{offset}") for offset in range(7)))

        # Every third batch: two are 140 bytes, and more than 100 must lie before an entry.
        assert log.segment().offset_index.entries() == [(2, 140), (4, 280), (6, 420)]
        assert log.segment().time_index.entries() == [(2, 2), (4, 4), (6, 6)]

    def test_the_newest_timestamp_of_a_fetch_decides_about_a_roll(self, make_log: MakeLog) -> None:
        log = make_log("a=1@10", segment_ms=1_000)

        log.follow(log.build_at(1, "b=1@1011"), log.build_at(2, "c=1@20"))

        assert log.base_offsets() == [0, 1]

    def test_a_fetch_over_segment_bytes_is_refused(self, make_log: MakeLog) -> None:
        log = make_log(segment_bytes=3 * BATCH_BYTES - 1)

        with pytest.raises(RecordTooLargeError):
            log.follow(*(log.build_at(offset, "a=1") for offset in range(3)))


class RefusingDisk(HastyDisk):
    """A disk that refuses to write to some files, after half of the bytes."""

    def __init__(self) -> None:
        self.refused: tuple[str, ...] = ()

    def write(self, file: File, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        if file.path.name.endswith(self.refused):
            half = b"".join(buffers)[: sum(map(len, buffers)) // 2]
            super().write(file, position, [half])
            raise LogDirOfflineError(file.path, "cannot write: No space left on device")
        super().write(file, position, buffers)


class TestFailures:
    @pytest.fixture
    def disk(self) -> RefusingDisk:
        return RefusingDisk()

    def test_a_batch_that_the_disk_refuses_is_not_there(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log("a=1", fs=disk)
        disk.refused = (".log",)

        with pytest.raises(LogDirOfflineError, match="No space left on device"):
            log.append("b=1")

        assert log.real.log_end_offset == 1
        assert log.contents() == "0:a=1"
        assert log.path("0.log").stat().st_size == BATCH_BYTES

    def test_nothing_is_appended_until_the_log_is_opened_anew(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log("a=1", fs=disk)
        disk.refused = (".log",)
        with pytest.raises(LogDirOfflineError):
            log.append("b=1")
        disk.refused = ()

        with pytest.raises(LogDirOfflineError, match="No space left on device"):
            log.append("c=1")
        with pytest.raises(LogDirOfflineError):
            log.real.truncate_to(0)
        assert log.readable() == "0:a=1"

        log.recover()
        log.append("c=1")
        assert log.contents() == "0:a=1 1:c=1"

    @pytest.mark.parametrize("extension", [".index", ".timeindex"])
    def test_an_index_that_the_disk_refuses_stops_the_log_as_well(
        self, make_log: MakeLog, disk: RefusingDisk, extension: str
    ) -> None:
        log = make_log("a=1@10 b=1@20", fs=disk, index_interval_bytes=0)
        disk.refused = (extension,)
        with pytest.raises(LogDirOfflineError):
            log.real.flush()  # which writes what waited for company
        disk.refused = ()
        with pytest.raises(LogDirOfflineError):
            log.append("c=1@30")

        log.recover()

        assert log.contents() == "0:a=1 1:b=1"
        found = log.real.find_offset_by_timestamp(10)
        assert found is not None
        assert found.offset == 0

    def test_a_state_is_not_changed_by_a_batch_that_was_not_written(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log(fs=disk)
        log.produce("a=1")
        before = dict(log.real.producer_state.entries)
        disk.refused = (".log",)

        with pytest.raises(LogDirOfflineError):
            log.produce("b=1", transactional=True)

        assert dict(log.real.producer_state.entries) == before
        assert log.real.last_stable_offset == 1

    def test_a_log_that_failed_can_still_be_closed(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log("a=1", fs=disk)
        disk.refused = (".log", ".index", ".timeindex", ".snapshot")
        with pytest.raises(LogDirOfflineError):
            log.append("b=1")

        log.real.close()

        assert log.snapshots() == []


class TestTheEnd:
    def test_a_closed_log_takes_nothing(self, make_log: MakeLog) -> None:
        log = make_log("a=1")
        log.real.close()

        with pytest.raises(LogDirOfflineError):
            log.append("b=1")

    def test_closing_twice_does_no_harm(self, make_log: MakeLog) -> None:
        log = make_log("a=1")

        log.real.close()
        log.real.close()

    def test_a_deleted_log_writes_nothing_any_more(self, make_log: MakeLog) -> None:
        log = make_log("a=1")
        doomed = log.directory.with_name("orders-3.0-delete")
        log.directory.rename(doomed)
        before = sorted(path.name for path in doomed.iterdir())

        log.real.mark_deleted(doomed)
        with pytest.raises(LogDirOfflineError):
            log.append("b=1")
        log.real.close()

        assert sorted(path.name for path in doomed.iterdir()) == before
        assert not log.directory.exists()

    def test_a_log_that_is_open_for_reading_only_can_be_read(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1")
        log.stop()

        log.start(writable=False)

        assert log.readable() == "0:a=1 1:b=1"
        with pytest.raises(LogDirOfflineError, match="opened for reading only"):
            log.append("c=1")
