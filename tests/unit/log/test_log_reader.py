"""Reading what another process owns: the same view as its owner's, and not one byte changed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from siltstone.errors import (
    CorruptCheckpointError,
    LogDirOfflineError,
    UnknownSettingError,
    UnknownTopicError,
)
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.origin import AppendOrigin
from siltstone.log.reading import Isolation
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.control import ControlType
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import (
    EVERYTHING,
    HastyDisk,
    format_batch,
    parse_records,
)
from tests.support.seen_logs import describe, take_picture


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
