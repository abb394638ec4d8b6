"""Reading what another process owns: the same view as its owner's, and not one byte changed."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from siltstone.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    LogDirOfflineError,
    UnknownSettingError,
    UnknownTopicError,
)
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.control import ControlType
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import (
    EVERYTHING,
    PARTITION,
    HastyDisk,
    MadeLog,
    MakeLog,
    format_batch,
    parse_records,
)

BEYOND = 2**31  # the first offset that does not fit a segment with base offset 0


def take_picture(root: Path) -> dict[str, tuple[int, int, str]]:
    """Note every file below a directory: its size, when it was changed, and what is in it."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            # Never the lock itself: closing any descriptor of it would end its owner's hold.
            hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file() and path.name != ".lock"
            else "",
        )
        for path in sorted([root, *root.rglob("*")])
    }


def describe(log: PartitionLog) -> dict[str, object]:
    """Say everything about a log that a reader may ask for."""
    batches = [batch for segment in log.segments for _, batch in segment.iter_batches()]
    times = sorted({batch.header.max_timestamp_ms for batch in batches})
    return {
        "contents": " | ".join(
            " ".join(format_batch(batch) for _, batch in segment.iter_batches())
            for segment in log.segments
        ),
        "ends": (log.log_start_offset, log.last_stable_offset, log.log_end_offset),
        "aborted": log.collect_aborted(0, 2**62),
        "times": {time_ms: log.find_offset_by_timestamp(time_ms) for time_ms in times},
        "newest": log.find_max_timestamp(),
        "epochs": log.leader_epochs.entries,
        "producers": {
            entry.producer_id: (entry.epoch, entry.last_sequence, entry.current_txn_first_offset)
            for entry in log.producer_state.entries.values()
        },
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log-dir-1"


@pytest.fixture
def manager(root: Path, clock: ManualClock) -> Iterator[LogManager]:
    """An owner at work."""
    manager = LogManager([root], fs=HastyDisk(), clock=clock)
    yield manager
    for directory in manager.directories:
        directory.release()


def append(manager: LogManager, topic: str, text: str, *, partition: int = 0) -> None:
    log = manager.get_log(TopicPartition(topic, partition))
    for token in text.split():
        if token == "|":
            log.roll()
        else:
            log.append(build_batch(parse_records(token, START_MS)))
    log.update_high_watermark(log.log_end_offset)


def read(reader: LogReader, topic: str, partition: int = 0) -> str:
    log = reader.get_log(TopicPartition(topic, partition))
    return " ".join(
        format_batch(batch) for segment in log.segments for _, batch in segment.iter_batches()
    )


class TestBesideAnOwner:
    def test_topics_are_seen(self, manager: LogManager, root: Path) -> None:
        created = manager.create_topic("orders", 2, {"segment.ms": "1000"})
        manager.create_topic("clicks", 1)

        reader = LogReader([root])

        assert [metadata.topic for metadata in reader.topics()] == ["clicks", "orders"]
        assert reader.describe("orders") == created
        assert reader.partitions("orders") == [0, 1]
        assert reader.config("orders").segment_ms == 1_000

    def test_records_are_seen_as_soon_as_they_are_appended(
        self, manager: LogManager, root: Path
    ) -> None:
        manager.create_topic("orders", 1)
        reader = LogReader([root])
        assert read(reader, "orders") == ""

        append(manager, "orders", "a=1 b=1")
        assert read(reader, "orders") == "0:a=1 1:b=1"
        append(manager, "orders", "c=1 | d=1")
        assert read(reader, "orders") == "0:a=1 1:b=1 2:c=1 3:d=1"
        append(manager, "orders", "e=1")
        assert read(reader, "orders") == "0:a=1 1:b=1 2:c=1 3:d=1 4:e=1"

    def test_records_are_seen_in_a_file_that_has_its_full_size_from_the_start(
        self, manager: LogManager, root: Path
    ) -> None:
        manager.create_topic("orders", 1, {"preallocate": "true", "segment.bytes": "10000"})
        append(manager, "orders", "a=1")
        reader = LogReader([root])
        assert read(reader, "orders") == "0:a=1"

        append(manager, "orders", "b=1")

        assert read(reader, "orders") == "0:a=1 1:b=1"

    def test_all_that_the_owner_knows_is_known(
        self, manager: LogManager, root: Path, clock: ManualClock
    ) -> None:
        manager.create_topic("orders", 1, {"index.interval.bytes": "0"})
        reader = LogReader([root], clock=clock)
        partition = TopicPartition("orders", 0)
        owned = manager.get_log(partition)

        for step in range(4):
            for producer in (1, 2):
                owned.append(
                    build_batch(
                        parse_records("a=1", START_MS - step),
                        producer_id=producer,
                        producer_epoch=0,
                        base_sequence=step,
                        is_transactional=True,
                    )
                )
            owned.append(
                build_marker(
                    ControlType.ABORT if step % 2 else ControlType.COMMIT,
                    offset=0,
                    timestamp_ms=START_MS,
                    producer_id=1,
                    producer_epoch=0,
                    coordinator_epoch=0,
                ),
                origin=AppendOrigin.COORDINATOR,
            )
            if step == 2:
                owned.roll()
            owned.update_high_watermark(owned.log_end_offset)

            assert describe(reader.get_log(partition)) == describe(owned)

    def test_retention_is_followed(self, manager: LogManager, root: Path) -> None:
        manager.create_topic("orders", 1)
        append(manager, "orders", "a=1 | b=1 | c=1")
        reader = LogReader([root])
        assert read(reader, "orders") == "0:a=1 1:b=1 2:c=1"
        log = manager.get_log(TopicPartition("orders", 0))

        log.delete_records(2)
        log.delete_old_segments()

        assert read(reader, "orders") == "2:c=1"
        assert reader.get_log(TopicPartition("orders", 0)).log_start_offset == 2

    def test_a_truncated_log_is_followed(self, manager: LogManager, root: Path) -> None:
        manager.create_topic("orders", 1)
        append(manager, "orders", "a=1 b=1 c=1")
        reader = LogReader([root])
        assert read(reader, "orders") == "0:a=1 1:b=1 2:c=1"
        log = manager.get_log(TopicPartition("orders", 0))

        log.truncate_to(1)
        assert read(reader, "orders") == "0:a=1"
        append(manager, "orders", "d=1")
        assert read(reader, "orders") == "0:a=1 1:d=1"

    def test_a_topic_that_is_deleted_meanwhile_is_gone(
        self, manager: LogManager, root: Path
    ) -> None:
        manager.create_topic("orders", 1)
        reader = LogReader([root])

        manager.delete_topic("orders")

        with pytest.raises(LogDirOfflineError):
            read(reader, "orders")
        assert LogReader([root]).topics() == []

    def test_a_reader_can_finish_what_the_owner_deletes(
        self, manager: LogManager, root: Path
    ) -> None:
        manager.create_topic("orders", 1, {"file.delete.delay.ms": "0"})
        append(manager, "orders", "a=1 | b=1")
        result = LogReader([root]).get_log(TopicPartition("orders", 0)).read(0, EVERYTHING)
        log = manager.get_log(TopicPartition("orders", 0))

        log.delete_records(1)
        log.delete_old_segments()
        log.delete_due_files()

        assert [format_batch(batch) for batch in result.batches()] == ["0:a=1"]

    def test_nothing_is_written_and_the_lock_stays_where_it_is(
        self, manager: LogManager, root: Path
    ) -> None:
        config = {"index.interval.bytes": "0", "preallocate": "true", "segment.bytes": "10000"}
        manager.create_topic("orders", 2, config)
        append(manager, "orders", "a=1 b=1 | c=1 d=1")
        manager.checkpoint()
        append(manager, "orders", "e=1")
        before = take_picture(root)

        reader = LogReader([root])
        for partition in reader.partitions("orders"):
            log = reader.get_log(TopicPartition("orders", partition))
            describe(log)
            log.read(0, EVERYTHING, Isolation.COMMITTED)
            log.close()

        assert take_picture(root) == before
        append(manager, "orders", "f=1")

    def test_an_owner_can_stop_and_start_while_a_reader_reads(
        self, root: Path, clock: ManualClock
    ) -> None:
        with LogManager([root], fs=HastyDisk(), clock=clock) as manager:
            manager.create_topic("orders", 1)
            append(manager, "orders", "a=1")
        reader = LogReader([root])
        assert read(reader, "orders") == "0:a=1"

        with LogManager([root], fs=HastyDisk(), clock=clock) as manager:
            append(manager, "orders", "b=1")
            assert read(reader, "orders") == "0:a=1 1:b=1"

        assert read(reader, "orders") == "0:a=1 1:b=1"


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


class TestOpening:
    def test_a_directory_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        path = tmp_path / "absent"

        with pytest.raises(LogDirOfflineError) as error:
            LogReader([path])

        assert str(error.value) == f"{path}: does not exist"
        assert not path.exists()

    def test_an_empty_directory_has_no_topics(self, tmp_path: Path) -> None:
        assert LogReader([tmp_path]).topics() == []
        assert list(tmp_path.iterdir()) == []

    def test_what_is_not_there_is_named(self, manager: LogManager, root: Path) -> None:
        manager.create_topic("orders", 1)
        reader = LogReader([root])

        calls: list[Callable[[], object]] = [
            lambda: reader.describe("x"),
            lambda: reader.config("x"),
            lambda: reader.partitions("x"),
            lambda: reader.get_log(TopicPartition("x", 0)),
        ]
        for call in calls:
            with pytest.raises(UnknownTopicError) as error:
                call()
            assert str(error.value) == "topic x does not exist"
        with pytest.raises(UnknownTopicError) as error:
            reader.get_log(TopicPartition("orders", 9))
        assert str(error.value) == "topic orders has no partition 9"

    def test_settings_can_be_given_for_the_time_of_reading(
        self, manager: LogManager, root: Path
    ) -> None:
        manager.create_topic("orders", 1, {"segment.ms": "1000"})

        assert LogReader([root], overrides={"segment.ms": "7"}).config("orders").segment_ms == 7
        with pytest.raises(UnknownSettingError):
            LogReader([root], overrides={"segment.mss": "7"})

    def test_several_directories_are_read_as_one(self, tmp_path: Path, clock: ManualClock) -> None:
        dirs = [tmp_path / "one", tmp_path / "two"]
        with LogManager(dirs, fs=HastyDisk(), clock=clock) as manager:
            manager.create_topic("orders", 2)
            append(manager, "orders", "a=1", partition=0)
            append(manager, "orders", "b=1", partition=1)

        reader = LogReader(dirs)

        assert reader.partitions("orders") == [0, 1]
        assert [read(reader, "orders", partition) for partition in (0, 1)] == ["0:a=1", "0:b=1"]

    def test_one_of_several_directories_knows_the_topics_of_all(
        self, tmp_path: Path, clock: ManualClock
    ) -> None:
        dirs = [tmp_path / "one", tmp_path / "two"]
        with LogManager(dirs, fs=HastyDisk(), clock=clock) as manager:
            manager.create_topic("orders", 2)

        reader = LogReader(dirs[1:])

        assert reader.describe("orders").partition_count == 2
        assert reader.partitions("orders") == [1]

    def test_a_directory_that_kafka_wrote_needs_nothing_of_ours(self, tmp_path: Path) -> None:
        partition = tmp_path / "my-topic-4"
        partition.mkdir()
        batch = build_batch(parse_records("a=1", START_MS, 0), leader_epoch=0)
        (partition / f"{0:020d}.log").write_bytes(batch)
        (tmp_path / "__cluster_metadata-0").mkdir()
        (tmp_path / "meta.properties").write_text("#\n#Mon\nversion=1\nnode.id=1\ncluster.id=x\n")

        reader = LogReader([tmp_path])

        assert [(t.topic, t.partition_count) for t in reader.topics()] == [("my-topic", 5)]
        assert read(reader, "my-topic", 4) == "0:a=1"

    def test_a_directory_that_is_no_partition_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "foo").mkdir()

        with pytest.raises(CorruptCheckpointError, match="foo is not a partition directory"):
            LogReader([tmp_path])
