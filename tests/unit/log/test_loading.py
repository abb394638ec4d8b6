"""Facts 8.G, one for one: what is made of a directory that somebody else, or a crash, has left.

8.G1 also wants an empty time index for data of magic 0. We refuse such data instead, which is
tested in its place.
"""

import shutil
from collections.abc import Callable

import pytest

from siltstone.errors import CorruptBatchError
from siltstone.log.reading import Isolation
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.layout import HEADER_SIZE
from tests.support.clock import ManualClock
from tests.support.loading import INDEXES, end_of, last_batches, read_indexes
from tests.support.make_log import MadeLog, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
TWO_SEGMENTS = "a=1@10 b=1@20 c=1@30 | d=1@40 e=1@50 f=1@60"
TWO_SEGMENTS_CONTENTS = "0:a=1 1:b=1 2:c=1 | 3:d=1 4:e=1 5:f=1"


class TestIndexes:  # 8.G1
    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        return make_log(TWO_SEGMENTS, index_interval_bytes=0)

    @pytest.mark.parametrize("missing", [*((name,) for name in INDEXES), INDEXES])
    @pytest.mark.parametrize("end", [MadeLog.stop, MadeLog.crash])
    def test_a_deleted_index_is_rebuilt(
        self, log: MadeLog, missing: tuple[str, ...], end: Callable[[MadeLog], None]
    ) -> None:
        log.restart()
        log.stop()
        indexes = read_indexes(log)
        assert set(INDEXES) == set(indexes)
        log.start()
        end(log)
        for name in missing:
            log.path(name).unlink()

        log.start()
        assert log.contents() == TWO_SEGMENTS_CONTENTS
        found = log.real.find_offset_by_timestamp(20)
        assert found is not None
        assert found.offset == 1
        log.stop()

        assert read_indexes(log) == indexes

    @pytest.mark.parametrize("name", INDEXES)
    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: b"\xff" * len(data),
            lambda data: data[::-1],
            lambda data: bytes(len(data)),
            lambda data: data[:-1],
            lambda data: data + b"garbage",
            lambda data: b"",
        ],
        ids=["ones", "reversed", "zeros", "torn", "garbage", "empty"],
    )
    def test_a_corrupt_index_is_rebuilt_where_recovery_gets_to(
        self, log: MadeLog, name: str, damage: Callable[[bytes], bytes]
    ) -> None:
        log.restart()
        log.stop()
        indexes = read_indexes(log)
        log.start()
        log.crash()
        log.path(name).write_bytes(damage(indexes[name]))

        log.start()
        assert log.contents() == TWO_SEGMENTS_CONTENTS
        log.stop()

        assert read_indexes(log) == indexes

    def test_an_index_without_its_log_file_is_deleted(self, log: MadeLog) -> None:
        log.stop()
        for name in ("7.index", "7.timeindex", "7.txnindex"):
            log.path(name).write_bytes(b"")

        log.start()

        assert not [name for name in log.names() if name.startswith("7.")]
        assert log.contents() == TWO_SEGMENTS_CONTENTS

    def test_data_of_magic_0_is_refused_and_left_alone(self, log: MadeLog) -> None:
        log.crash()
        # Offset, size, CRC, magic 0, attributes, no key, no value: a batch of Kafka 0.7 to 0.9.
        data = bytes.fromhex("0000000000000006 0000000e a7ec6803 00 00 ffffffff ffffffff")
        with log.path("3.log").open("ab") as file:
            file.write(data)
        size_bytes = log.path("3.log").stat().st_size

        with pytest.raises(CorruptBatchError) as error:
            log.start()

        assert str(error.value) == (
            f"orders-3/00000000000000000003.log is corrupt at position {3 * BATCH_BYTES}: "
            "magic 0 is not supported: let a Kafka copy the topic into a new one, "
            "which rewrites it as magic 2"
        )
        assert log.path("3.log").stat().st_size == size_bytes


class TestGarbage:  # 8.G2
    @pytest.mark.parametrize(
        "garbage",
        [
            b"\x00",
            b"\x00" * 500,
            b"\xff" * 500,
            b"garbage" * 20,
            # A batch that lacks its last byte, and one with its payload damaged.
            lambda log: log.build_at(6, "g=1")[:-1],
            lambda log: log.build_at(6, "g=1")[:-1] + b"\xee",
            lambda log: log.build_at(6, "g=1")[:HEADER_SIZE],
            # A sound batch, but one that has been here before.
            lambda log: log.build_at(5, "g=1"),
        ],
        ids=[
            "one zero",
            "zeros",
            "ones",
            "text",
            "torn batch",
            "damaged batch",
            "header only",
            "old offset",
        ],
    )
    def test_what_is_no_batch_is_cut_off_the_log(
        self, make_log: MakeLog, garbage: bytes | Callable[[MadeLog], bytes]
    ) -> None:
        log = make_log(TWO_SEGMENTS)
        log.crash()
        with log.path("3.log").open("ab") as file:
            file.write(garbage if isinstance(garbage, bytes) else garbage(log))

        log.start()

        assert log.contents() == TWO_SEGMENTS_CONTENTS
        assert log.path("3.log").stat().st_size == 3 * BATCH_BYTES
        assert end_of(log) == "0:a=1 1:b=1 2:c=1 3:d=1 4:e=1 5:f=1 6:z=9"

    def test_garbage_behind_an_index_is_forgotten(self, make_log: MakeLog) -> None:
        log = make_log(TWO_SEGMENTS, index_interval_bytes=0)
        log.crash()
        for name in INDEXES:
            with log.path(name).open("ab") as file:
                file.write(b"\xee" * 100)

        log.start()

        assert end_of(log) == "0:a=1 1:b=1 2:c=1 3:d=1 4:e=1 5:f=1 6:z=9"
        assert [entry.offset for entry in log.segment(3).offset_index.entries()] == [4, 5]

    def test_what_follows_a_cut_segment_is_gone(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1 d=1 | e=1", file_delete_delay_ms=1_000)
        log.crash()
        with log.path("2.log").open("r+b") as file:
            file.seek(2 * BATCH_BYTES - 1)
            file.write(b"\xee")

        log.start()

        assert log.contents() == "0:a=1 1:b=1 | 2:c=1"
        assert log.real.log_end_offset == 3
        assert "4.log.deleted" in log.names()
        assert end_of(log) == "0:a=1 1:b=1 2:c=1 3:z=9"

    def test_what_follows_a_cut_segment_is_removed_after_the_delay(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1 | b=1", file_delete_delay_ms=1_000)
        log.crash()
        log.path("0.log").write_bytes(b"")

        # An empty file is legal; a byte of garbage is not.
        log.path("0.log").write_bytes(b"\xee")
        log.start()
        clock.advance_ms(1_000)
        log.real.delete_due_files()

        assert not [name for name in log.names() if name.endswith(".deleted")]
        assert log.base_offsets() == [0]

    def test_below_the_recovery_point_nothing_is_cut(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1")
        log.crash(recovery_point=2)
        with log.path("0.log").open("r+b") as file:
            file.seek(BATCH_BYTES - 1)
            file.write(b"\xee")

        log.start()

        assert log.real.log_end_offset == 3
        with pytest.raises(CorruptBatchError, match=r"000\.log is corrupt at position 0: header"):
            log.contents()

    def test_the_zeros_of_a_preallocated_file_are_no_batches(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1", preallocate=True, segment_bytes=1_000)
        log.crash()
        assert log.path("0.log").stat().st_size == 1_000

        log.start()

        assert log.path("0.log").stat().st_size == 2 * BATCH_BYTES
        assert end_of(log) == "0:a=1 1:b=1 2:z=9"


class TestDeletedFiles:  # 8.G3
    @pytest.mark.parametrize("end", [MadeLog.stop, MadeLog.crash])
    def test_they_are_gone_after_loading(
        self, make_log: MakeLog, end: Callable[[MadeLog], None]
    ) -> None:
        log = make_log("a=1")
        end(log)
        doomed = ["0.index.deleted", "0.log.deleted", "5.log.deleted", "5.snapshot.deleted"]
        for name in doomed:
            log.path(name).write_bytes(b"whatever")

        log.start()

        assert not set(doomed) & set(log.names())
        assert log.contents() == "0:a=1"


class TestLogStart:  # 8.G7
    @pytest.mark.parametrize("log_start_offset", [7, 2**40])
    def test_a_log_that_ends_before_its_start_is_empty_there(
        self, make_log: MakeLog, log_start_offset: int
    ) -> None:
        log = make_log(TWO_SEGMENTS)
        log.crash(log_start_offset=log_start_offset)

        log.start()

        assert log.base_offsets() == [log_start_offset]
        assert log.real.log_start_offset == log.real.log_end_offset == log_start_offset
        log.append("z=9")
        assert log.contents() == f"{log_start_offset}:z=9"

    def test_a_log_that_ends_at_its_start_is_kept(self, make_log: MakeLog) -> None:
        log = make_log(TWO_SEGMENTS)
        log.crash(log_start_offset=6)

        log.start()

        assert log.base_offsets() == [0, 3]
        assert log.real.log_start_offset == log.real.log_end_offset == 6

    def test_without_a_checkpoint_the_log_starts_with_its_first_segment(
        self, make_log: MakeLog
    ) -> None:
        log = make_log("a=1 b=1 c=1 | d=1 e=1 f=1")
        log.real.delete_records(4)
        log.real.delete_old_segments()

        log.recover()

        assert log.real.log_start_offset == 3

    def test_an_empty_directory_becomes_an_empty_log(self, make_log: MakeLog) -> None:
        log = make_log()
        log.stop()
        shutil.rmtree(log.directory)

        log.start(log_start_offset=42)

        assert log.real.log_start_offset == log.real.log_end_offset == 42
        assert log.contents() == ""
        assert "42.log" in log.names()


class TestStraySnapshots:  # 8.G8
    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        log = make_log("a=1 b=1 c=1 | d=1 e=1 | f=1 g=1 h=1 i=1")
        assert log.snapshots() == [3, 5]
        log.stop()
        assert log.snapshots() == [3, 5, 9]
        return log

    def test_only_those_of_segments_and_the_newest_of_all_are_kept(self, log: MadeLog) -> None:
        for offset in (1, 2, 4, 6, 7):
            shutil.copy(log.path("3.snapshot"), log.path(f"{offset}.snapshot"))

        log.start()

        assert log.snapshots() == [3, 5, 9]

    def test_those_beyond_the_end_are_removed(self, log: MadeLog) -> None:
        shutil.copy(log.path("3.snapshot"), log.path("42.snapshot"))

        log.start()

        # 42 was the newest stray, so 9 was taken away, and written anew.
        assert log.snapshots() == [3, 5, 9]

    def test_those_up_to_the_log_start_are_removed(self, log: MadeLog) -> None:
        log.start()
        log.real.delete_records(4)

        log.restart()

        assert log.snapshots() == [5, 9]

    @pytest.mark.parametrize("damage", [b"", b"\0\1", b"\0\2" + bytes(8), b"\0\1" + bytes(60)])
    def test_a_damaged_one_gives_way_to_an_older_one(
        self, make_log: MakeLog, damage: bytes
    ) -> None:
        log = make_log()
        log.produce("a=1 b=1")
        log.append("|")
        log.produce("c=1")
        entry = log.real.producer_state.entries[1]
        log.stop()
        log.path("3.snapshot").write_bytes(damage)

        log.start()

        # Only the last batch of each producer is in a snapshot; the replay adds the one after it.
        assert log.real.producer_state.entries[1] == entry
        assert log.snapshots() == [2, 3]
        assert log.path("3.snapshot").read_bytes() != damage


class TestTransactionIndex:  # 8.G9
    ABORTED = (
        # Two transactions that overlap, one over a roll, and one that ends in the last segment.
        AbortedTxn(producer_id=1, first_offset=0, last_offset=4, last_stable_offset=1),
        AbortedTxn(producer_id=2, first_offset=1, last_offset=7, last_stable_offset=8),
        AbortedTxn(producer_id=1, first_offset=9, last_offset=10, last_stable_offset=11),
    )

    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        log = make_log()
        log.produce("a=1", producer=1, transactional=True)
        log.produce("b=1", producer=2, transactional=True)
        log.append("c=1 |")
        log.produce("d=1", producer=1, transactional=True)
        log.abort(producer=1)
        log.append("|")
        log.produce("e=1", producer=3, transactional=True)
        log.commit(producer=3)
        log.abort(producer=2)
        log.append("f=1 |")
        log.produce("g=1", producer=1, transactional=True)
        log.abort(producer=1)
        log.append("h=1")
        assert log.real.collect_aborted(0, 100) == list(self.ABORTED)
        assert log.real.last_stable_offset == 12
        return log

    @pytest.mark.parametrize("recovery_point", [0, 5, 10, 12])
    @pytest.mark.parametrize("snapshots", ["kept", "deleted"])
    @pytest.mark.parametrize("indexes", ["kept", "deleted"])
    def test_it_is_rebuilt_the_same_from_wherever_recovery_starts(
        self, log: MadeLog, recovery_point: int, snapshots: str, indexes: str
    ) -> None:
        before = {
            name: log.path(name).read_bytes() for name in log.names() if name.endswith(".txnindex")
        }
        assert list(before) == ["3.txnindex", "5.txnindex", "9.txnindex"]
        producers = dict(log.real.producer_state.entries)
        log.crash(recovery_point=recovery_point)
        for name in log.names():
            if snapshots == "deleted" and name.endswith(".snapshot"):
                log.path(name).unlink()
            if indexes == "deleted" and name.endswith(("index", ".timeindex")):
                # The transaction index is missed by nobody unless another one is missing too.
                log.path(name).unlink()

        log.start()

        assert {name: log.path(name).read_bytes() for name in before} == before
        assert log.real.collect_aborted(0, 100) == list(self.ABORTED)
        # Of each producer the last batch; how many before it are known depends on the replay.
        assert last_batches(log.real.producer_state.entries) == last_batches(producers)

    def test_an_open_transaction_is_still_open_after_recovery(self, log: MadeLog) -> None:
        log.produce("i=1", producer=2, transactional=True)
        log.append("| j=1")
        assert log.real.last_stable_offset == 12

        log.recover()
        assert log.real.last_stable_offset == 12

        log.abort(producer=2)
        assert log.real.collect_aborted(12, 100) == [AbortedTxn(2, 12, 14, 15)]

    def test_an_index_that_lies_about_its_segment_is_rebuilt_after_a_clean_stop(
        self, log: MadeLog
    ) -> None:
        log.stop()
        data = log.path("5.txnindex").read_bytes()
        log.path("5.txnindex").write_bytes(log.path("3.txnindex").read_bytes())

        log.start()

        assert log.path("5.txnindex").read_bytes() == data
        aborted = log.real.read(0, 10**6, Isolation.COMMITTED).aborted
        assert aborted == self.ABORTED[:2]
