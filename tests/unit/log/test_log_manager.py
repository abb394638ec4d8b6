"""Log directories and their topics: who owns them, what is written down, what a failure takes."""

import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from siltstone.errors import (
    ConfigError,
    CorruptBatchError,
    CorruptCheckpointError,
    LogDirLockedError,
    LogDirOfflineError,
    TopicExistsError,
    UnknownSettingError,
    UnknownTopicError,
    UsageError,
)
from siltstone.ids import TopicId, TopicPartition
from siltstone.log.directory_lock import DirectoryLock
from siltstone.log.filesystem import File
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import HastyDisk, format_batch, parse_records

HOUR_MS = 3_600_000


class BrokenDisk(HastyDisk):
    """A disk that refuses everything below some directories."""

    def __init__(self) -> None:
        self.broken: set[Path] = set()

    def _check(self, path: Path) -> None:
        if self.broken & {path, *path.parents}:
            raise LogDirOfflineError(path, "cannot reach: Input/output error")

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        self._check(path)
        return super().open(path, create=create, writable=writable)

    def write(self, file: File, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        self._check(file.path)
        super().write(file, position, buffers)

    def truncate(self, file: File, size_bytes: int) -> None:
        self._check(file.path)
        super().truncate(file, size_bytes)

    def fsync(self, file: File) -> None:
        self._check(file.path)

    def fsync_dir(self, path: Path) -> None:
        self._check(path)

    def rename(self, source: Path, target: Path) -> None:
        self._check(source)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._check(path)
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._check(path)
        super().mkdir(path)

    def remove_dir(self, path: Path) -> None:
        self._check(path)
        super().remove_dir(path)

    def list_names(self, path: Path) -> list[str]:
        self._check(path)
        return super().list_names(path)

    def read_file(self, path: Path) -> bytes | None:
        self._check(path)
        return super().read_file(path)


@pytest.fixture
def disk() -> BrokenDisk:
    return BrokenDisk()


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


OpenManager = Callable[..., LogManager]


@pytest.fixture
def open_manager(dirs: list[Path], disk: BrokenDisk, clock: ManualClock) -> Iterator[OpenManager]:
    """Open managers over the first `count` directories; all are let go of in the end."""
    opened: list[LogManager] = []

    def open_it(count: int = 1, **overrides: str) -> LogManager:
        settings = {name.replace("_", "."): value for name, value in overrides.items()}
        manager = LogManager(dirs[:count], fs=disk, clock=clock, overrides=settings)
        opened.append(manager)
        return manager

    yield open_it
    for manager in opened:
        crash(manager)


def crash(manager: LogManager) -> None:
    """End the manager as the end of its process would."""
    for directory in manager.directories:
        directory.release()
    manager.directories = []


def append(manager: LogManager, topic: str, text: str, partition: int = 0) -> None:
    log = manager.get_log(TopicPartition(topic, partition))
    for token in text.split():
        log.append(build_batch(parse_records(token, START_MS)))
    log.update_high_watermark(log.log_end_offset)


def read(manager: LogManager, topic: str, partition: int = 0) -> str:
    log = manager.get_log(TopicPartition(topic, partition))
    return " ".join(
        format_batch(batch) for segment in log.segments for _, batch in segment.iter_batches()
    )


def partition_dirs(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


class TestTopics:
    def test_a_topic_is_there_when_it_was_created(self, open_manager: OpenManager) -> None:
        manager = open_manager()

        created = manager.create_topic("orders", 2, {"cleanup.policy": "compact"})

        assert manager.topics() == [created]
        assert manager.describe("orders") == created
        assert manager.partitions("orders") == [0, 1]
        assert manager.config("orders").is_compacted

    def test_it_is_still_there_after_a_restart(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        created = manager.create_topic("orders", 2, {"segment.ms": "1000"})
        append(manager, "orders", "a=1 b=1", partition=1)
        manager.close()

        manager = open_manager()

        assert manager.topics() == [created]
        assert read(manager, "orders", 0) == ""
        assert read(manager, "orders", 1) == "0:a=1 1:b=1"
        assert manager.get_log(TopicPartition("orders", 1)).config.segment_ms == 1_000

    def test_every_partition_knows_the_id_of_its_topic(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        created = open_manager().create_topic("orders", 1)

        data = (dirs[0] / "orders-0" / "partition.metadata").read_bytes()

        assert data == f"version: 0\ntopic_id: {created.topic_id}".encode()

    def test_topics_come_by_name(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        for topic in ("b", "c", "a"):
            manager.create_topic(topic, 1)
        manager.close()

        assert [metadata.topic for metadata in open_manager().topics()] == ["a", "b", "c"]

    def test_a_topic_cannot_be_created_twice(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        manager.create_topic("orders", 1)

        with pytest.raises(TopicExistsError) as error:
            manager.create_topic("orders", 1)

        assert str(error.value) == "topic orders already exists"

    @pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
    def test_an_illegal_name_is_refused(
        self, open_manager: OpenManager, dirs: list[Path], topic: str
    ) -> None:
        with pytest.raises(UsageError, match="illegal topic name"):
            open_manager().create_topic(topic, 1)

        assert partition_dirs(dirs[0]) == []

    @pytest.mark.parametrize("count", [0, -1])
    def test_a_topic_needs_a_partition(self, open_manager: OpenManager, count: int) -> None:
        with pytest.raises(UsageError) as error:
            open_manager().create_topic("orders", count)

        assert str(error.value) == f"a topic needs at least 1 partition, got {count}"

    def test_a_bad_setting_is_refused_before_anything_is_made(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()

        with pytest.raises(ConfigError):
            manager.create_topic("orders", 1, {"segment.ms": "0"})
        with pytest.raises(UnknownSettingError):
            manager.create_topic("orders", 1, {"segment.mss": "1"})

        assert manager.topics() == []
        assert partition_dirs(dirs[0]) == []

    def test_partitions_can_be_added(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        created = manager.create_topic("orders", 1)
        append(manager, "orders", "a=1")

        grown = manager.add_partitions("orders", 3)

        assert grown.topic_id == created.topic_id
        assert manager.partitions("orders") == [0, 1, 2]
        assert read(manager, "orders") == "0:a=1"

    @pytest.mark.parametrize("count", [2, 1])
    def test_partitions_cannot_be_taken_away(self, open_manager: OpenManager, count: int) -> None:
        manager = open_manager()
        manager.create_topic("orders", 2)

        with pytest.raises(UsageError) as error:
            manager.add_partitions("orders", count)

        assert str(error.value) == f"topic orders has 2 partitions already, {count} is not more"

    def test_what_is_not_there_is_named(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        manager.create_topic("orders", 1)

        for call in (
            lambda: manager.describe("x"),
            lambda: manager.config("x"),
            lambda: manager.partitions("x"),
            lambda: manager.alter_topic("x"),
            lambda: manager.add_partitions("x", 2),
            lambda: manager.delete_topic("x"),
            lambda: manager.get_log(TopicPartition("x", 0)),
        ):
            with pytest.raises(UnknownTopicError) as error:
                call()
            assert str(error.value) == "topic x does not exist"
        with pytest.raises(UnknownTopicError) as error:
            manager.get_log(TopicPartition("orders", 9))
        assert str(error.value) == "topic orders has no partition 9"

    def test_a_topic_whose_creation_was_cut_short_can_be_created(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        created = manager.create_topic("orders", 1, {"segment.ms": "1000"})
        crash(manager)
        (dirs[0] / "silt-topics.json").unlink()  # as if the crash came just before it

        manager = open_manager()
        again = manager.create_topic("orders", 2, {"segment.ms": "2000"})

        assert again.topic_id == created.topic_id
        assert manager.partitions("orders") == [0, 1]
        assert manager.config("orders").segment_ms == 2_000


class TestSettings:
    def test_a_change_acts_at_once_and_is_remembered(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        manager.create_topic("orders", 1, {"segment.ms": "1000", "retention.ms": "5"})
        log = manager.get_log(TopicPartition("orders", 0))

        manager.alter_topic("orders", {"segment.ms": "2000"}, resets=["retention.ms"])

        assert log.config.segment_ms == 2_000
        assert log.config.retention_ms == 604_800_000
        manager.close()
        assert open_manager().describe("orders").config == {"segment.ms": "2000"}

    def test_a_bad_change_changes_nothing(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        manager.create_topic("orders", 1, {"segment.ms": "1000"})

        with pytest.raises(ConfigError):
            manager.alter_topic("orders", {"segment.ms": "no"})
        with pytest.raises(UnknownSettingError, match=r"did you mean segment\.ms"):
            manager.alter_topic("orders", resets=["segment.mss"])

        assert manager.describe("orders").config == {"segment.ms": "1000"}

    def test_an_override_of_the_process_wins_and_is_not_remembered(
        self, open_manager: OpenManager
    ) -> None:
        manager = open_manager(segment_ms="7")
        manager.create_topic("orders", 1, {"segment.ms": "1000"})

        assert manager.config("orders").segment_ms == 7
        assert manager.get_log(TopicPartition("orders", 0)).config.segment_ms == 7
        assert manager.describe("orders").config == {"segment.ms": "1000"}

    def test_a_bad_override_is_refused_before_anything_is_touched(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        with pytest.raises(UnknownSettingError):
            open_manager(segment_mss="7")

        assert not dirs[0].exists()


class TestPlacing:
    def test_a_new_partition_goes_to_the_directory_with_the_fewest(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager(2)
        manager.create_topic("a", 3)
        assert [partition_dirs(path) for path in dirs[:2]] == [["a-0", "a-2"], ["a-1"]]
        manager.close()

        manager = open_manager(3)
        manager.create_topic("b", 4)

        assert [partition_dirs(path) for path in dirs] == [
            ["a-0", "a-2", "b-3"],
            ["a-1", "b-1"],
            ["b-0", "b-2"],
        ]

    def test_a_partition_is_found_wherever_it_lies(self, open_manager: OpenManager) -> None:
        manager = open_manager(3)
        manager.create_topic("a", 3)
        for partition in range(3):
            append(manager, "a", f"k={partition}", partition)
        manager.close()

        manager = open_manager(3)

        assert [read(manager, "a", partition) for partition in range(3)] == [
            "0:k=0",
            "0:k=1",
            "0:k=2",
        ]

    def test_every_directory_knows_all_topics(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager(3)
        manager.create_topic("a", 1, {"segment.ms": "1000"})
        manager.close()

        copies = {(path / "silt-topics.json").read_bytes() for path in dirs}

        assert len(copies) == 1

    def test_a_partition_in_two_directories_is_refused(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        manager.close()
        (dirs[1] / "a-0").mkdir(parents=True)
        (dirs[1] / "a-0" / "00000000000000000000.log").touch()

        with pytest.raises(CorruptCheckpointError) as error:
            open_manager(2)

        assert "a-0" in str(error.value)
        assert str(dirs[0]) in str(error.value)
        assert str(dirs[1]) in str(error.value)

    def test_what_a_refused_creation_left_behind_is_no_second_partition(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        manager.close()
        (dirs[1] / "a-0").mkdir(parents=True)

        assert open_manager(2).get_log(TopicPartition("a", 0)).directory == dirs[0] / "a-0"


class TestDeletingTopics:
    def test_a_deleted_topic_is_gone_at_once(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager(2)
        manager.create_topic("a", 2)
        manager.create_topic("b", 1)
        log = manager.get_log(TopicPartition("a", 0))

        manager.delete_topic("a")

        assert [metadata.topic for metadata in manager.topics()] == ["b"]
        with pytest.raises(UnknownTopicError):
            manager.get_log(TopicPartition("a", 0))
        with pytest.raises(LogDirOfflineError):
            log.append(build_batch(parse_records("a=1", START_MS)))
        names = sorted(name for path in dirs[:2] for name in partition_dirs(path))
        assert re.fullmatch(
            r"a-0\.[0-9a-f]{32}-delete a-1\.[0-9a-f]{32}-delete b-0", " ".join(names)
        )

    def test_its_files_go_after_the_delay(
        self, open_manager: OpenManager, dirs: list[Path], clock: ManualClock
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1, {"file.delete.delay.ms": "1000"})
        manager.delete_topic("a")

        clock.advance_ms(999)
        manager.run_maintenance()
        assert len(partition_dirs(dirs[0])) == 1
        clock.advance_ms(1)
        manager.run_maintenance()
        assert partition_dirs(dirs[0]) == []

    def test_what_a_restart_finds_of_them_goes_at_once(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        manager.delete_topic("a")
        manager.close()
        assert len(partition_dirs(dirs[0])) == 1

        manager = open_manager()

        assert manager.topics() == []
        assert partition_dirs(dirs[0]) == []

    def test_a_topic_can_be_created_again_under_its_name(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        first = manager.create_topic("a", 1)
        append(manager, "a", "k=1")
        manager.delete_topic("a")

        second = manager.create_topic("a", 1)
        manager.delete_topic("a")
        manager.create_topic("a", 1)

        assert second.topic_id != first.topic_id
        assert read(manager, "a") == ""
        assert len(partition_dirs(dirs[0])) == 3

    def test_its_offsets_are_struck_from_the_checkpoints(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        manager.create_topic("b", 1)
        manager.checkpoint()

        manager.delete_topic("a")

        text = (dirs[0] / "recovery-point-offset-checkpoint").read_text()
        assert text == "0\n1\nb 0 0\n"


class TestCheckpoints:
    def test_each_is_written_as_kafka_writes_it(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("b", 2)
        manager.create_topic("a", 1)
        append(manager, "b", "k=1 k=2 k=3", partition=1)
        append(manager, "a", "k=1 k=2")
        manager.get_log(TopicPartition("b", 1)).flush()
        manager.get_log(TopicPartition("b", 1)).delete_records(2)

        manager.checkpoint()

        texts = {
            path.name: path.read_text() for path in dirs[0].iterdir() if "checkpoint" in path.name
        }
        assert texts == {
            "recovery-point-offset-checkpoint": "0\n3\na 0 0\nb 0 0\nb 1 3\n",
            "replication-offset-checkpoint": "0\n3\na 0 2\nb 0 0\nb 1 3\n",
            # Only those that do not start with their first segment.
            "log-start-offset-checkpoint": "0\n1\nb 1 2\n",
        }

    def test_a_crash_does_not_forget_the_log_start(self, open_manager: OpenManager) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        append(manager, "a", "k=1 k=2 k=3")
        manager.get_log(TopicPartition("a", 0)).delete_records(2)
        manager.checkpoint()
        crash(manager)

        log = open_manager().get_log(TopicPartition("a", 0))

        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 3, 3)

    @pytest.mark.parametrize(
        "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
    )
    @pytest.mark.parametrize("text", ["", "nonsense", "1\n0\n", "0\n5\n", "0\n1\na 0 x\n"])
    def test_a_damaged_one_is_as_good_as_none(
        self, open_manager: OpenManager, dirs: list[Path], name: str, text: str
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        append(manager, "a", "k=1")
        manager.checkpoint()
        crash(manager)
        (dirs[0] / name).write_text(text)

        assert read(open_manager(), "a") == "0:k=1"


class TestShutdown:
    def test_a_clean_stop_is_written_down_and_counts_once(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        marker = dirs[0] / ".kafka_cleanshutdown"
        manager = open_manager()
        manager.create_topic("a", 1)
        assert not marker.exists()

        manager.close()
        assert marker.read_text() == '{"version":0,"brokerEpoch":-1}'
        open_manager()
        assert not marker.exists()

    def test_a_clean_stop_makes_everything_durable(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        append(manager, "a", "k=1 k=2")

        manager.close()

        text = (dirs[0] / "recovery-point-offset-checkpoint").read_text()
        assert text == "0\n1\na 0 2\n"

    def test_after_a_crash_a_torn_tail_is_cut(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        append(manager, "a", "k=1 k=2")
        crash(manager)
        with (dirs[0] / "a-0" / f"{0:020d}.log").open("ab") as file:
            file.write(b"torn")

        manager = open_manager()

        assert read(manager, "a") == "0:k=1 1:k=2"
        append(manager, "a", "k=3")
        assert read(manager, "a") == "0:k=1 1:k=2 2:k=3"

    def test_after_a_clean_stop_nothing_is_recovered(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        append(manager, "a", "k=1 k=2")
        manager.close()
        path = dirs[0] / "a-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[-1] ^= 0xFF
        path.write_bytes(data)

        log = open_manager().get_log(TopicPartition("a", 0))

        assert log.log_end_offset == 2

    def test_it_is_a_context(self, dirs: list[Path], disk: BrokenDisk, clock: ManualClock) -> None:
        with LogManager(dirs[:1], fs=disk, clock=clock) as manager:
            manager.create_topic("a", 1)

        assert (dirs[0] / ".kafka_cleanshutdown").exists()

    def test_closing_twice_does_no_harm(self, open_manager: OpenManager, dirs: list[Path]) -> None:
        manager = open_manager()
        manager.close()
        (dirs[0] / ".kafka_cleanshutdown").unlink()

        manager.close()

        assert not (dirs[0] / ".kafka_cleanshutdown").exists()

    def test_meta_properties_are_made_once(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        first = (dirs[0] / "meta.properties").read_text()
        manager.close()

        open_manager()

        assert re.fullmatch(
            r"version=1\ncluster\.id=[\w-]{22}\nnode\.id=0\ndirectory\.id=[\w-]{22}\n", first
        )
        assert (dirs[0] / "meta.properties").read_text() == first


class TestMaintenance:
    def test_what_is_due_is_done(
        self, open_manager: OpenManager, dirs: list[Path], clock: ManualClock
    ) -> None:
        manager = open_manager()
        manager.create_topic(
            "a",
            1,
            {
                "segment.ms": str(HOUR_MS),
                "retention.ms": str(2 * HOUR_MS),
                "file.delete.delay.ms": "1000",
                "flush.ms": "1000",
            },
        )
        append(manager, "a", "k=1")
        log = manager.get_log(TopicPartition("a", 0))

        clock.advance_ms(1_000)
        manager.run_maintenance()
        assert log.recovery_point == 1  # flushed

        clock.advance_ms(HOUR_MS)
        manager.run_maintenance()
        assert list(log.segments.base_offsets) == [0, 1]  # rolled

        clock.advance_ms(HOUR_MS)
        manager.run_maintenance()
        assert list(log.segments.base_offsets) == [1]  # expired
        assert (dirs[0] / "a-0" / f"{0:020d}.log.deleted").exists()

        clock.advance_ms(1_000)
        manager.run_maintenance()
        assert not (dirs[0] / "a-0" / f"{0:020d}.log.deleted").exists()

    def test_silent_producers_are_forgotten(
        self, open_manager: OpenManager, clock: ManualClock
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 1)
        log = manager.get_log(TopicPartition("a", 0))
        log.append(
            build_batch(
                parse_records("k=1", START_MS), producer_id=1, producer_epoch=0, base_sequence=0
            )
        )

        clock.advance_ms(24 * HOUR_MS)
        manager.run_maintenance()

        assert dict(log.producer_state.entries) == {}


class TestFailures:
    @pytest.fixture
    def manager(self, open_manager: OpenManager) -> LogManager:
        """Partition 0 lies in the first directory, partition 1 in the second."""
        manager = open_manager(2)
        manager.create_topic("a", 2)
        append(manager, "a", "k=1", 0)
        append(manager, "a", "k=1", 1)
        return manager

    def test_a_refused_append_takes_one_directory_offline(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path]
    ) -> None:
        disk.broken = {dirs[0]}

        with pytest.raises(LogDirOfflineError, match="Input/output error"):
            append(manager, "a", "k=2", 0)
        append(manager, "a", "k=2", 1)

        assert list(manager.offline) == [dirs[0]]
        assert read(manager, "a", 1) == "0:k=1 1:k=2"
        assert manager.partitions("a") == [1]
        with pytest.raises(LogDirOfflineError) as error:
            manager.get_log(TopicPartition("a", 0))
        assert str(error.value).startswith(f"{dirs[0]}: offline: ")

    def test_it_stays_offline_though_the_disk_recovers(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path]
    ) -> None:
        disk.broken = {dirs[0]}
        manager.checkpoint()
        disk.broken = set()

        with pytest.raises(LogDirOfflineError):
            manager.get_log(TopicPartition("a", 0))

    @pytest.mark.parametrize("call", [LogManager.checkpoint, LogManager.run_maintenance])
    def test_others_are_looked_after_all_the_same(
        self,
        manager: LogManager,
        disk: BrokenDisk,
        dirs: list[Path],
        clock: ManualClock,
        call: Callable[[LogManager], None],
    ) -> None:
        manager.alter_topic("a", {"flush.ms": "0"})
        disk.broken = {dirs[0]}
        clock.advance_ms(1)

        call(manager)

        assert list(manager.offline) == [dirs[0]]
        append(manager, "a", "k=2", 1)

    def test_new_partitions_go_elsewhere(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path]
    ) -> None:
        disk.broken = {dirs[0]}
        manager.checkpoint()

        manager.create_topic("b", 2)

        assert partition_dirs(dirs[1]) == ["a-1", "b-0", "b-1"]

    def test_only_the_others_stop_cleanly(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path]
    ) -> None:
        disk.broken = {dirs[0]}

        manager.close()

        disk.broken = set()
        assert not (dirs[0] / ".kafka_cleanshutdown").exists()
        assert (dirs[1] / ".kafka_cleanshutdown").exists()

    def test_what_was_acknowledged_is_there_when_the_disk_is_back(
        self,
        manager: LogManager,
        disk: BrokenDisk,
        dirs: list[Path],
        open_manager: OpenManager,
    ) -> None:
        disk.broken = {dirs[0]}
        with pytest.raises(LogDirOfflineError):
            append(manager, "a", "k=2", 0)
        append(manager, "a", "k=2", 1)
        manager.close()
        disk.broken = set()

        manager = open_manager(2)

        assert read(manager, "a", 0) == "0:k=1"
        assert read(manager, "a", 1) == "0:k=1 1:k=2"
        assert manager.offline == {}

    def test_a_directory_that_cannot_be_opened_is_left_out(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path], open_manager: OpenManager
    ) -> None:
        manager.close()
        disk.broken = {dirs[0]}

        manager = open_manager(2)

        assert list(manager.offline) == [dirs[0]]
        assert manager.partitions("a") == [1]
        assert read(manager, "a", 1) == "0:k=1"
        assert manager.describe("a").partition_count == 2

    def test_a_partition_that_cannot_be_opened_takes_its_directory_along(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path], open_manager: OpenManager
    ) -> None:
        manager.close()
        disk.broken = {dirs[0] / "a-0" / f"{0:020d}.log"}

        manager = open_manager(2)

        assert list(manager.offline) == [dirs[0]]
        assert manager.partitions("a") == [1]

    def test_without_any_directory_there_is_no_manager(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path], open_manager: OpenManager
    ) -> None:
        manager.close()
        disk.broken = set(dirs)

        with pytest.raises(LogDirOfflineError, match="Input/output error"):
            open_manager(2)

    def test_without_any_directory_no_topic_can_be_created(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path]
    ) -> None:
        disk.broken = set(dirs)
        manager.checkpoint()

        with pytest.raises(LogDirOfflineError, match="offline, as all others"):
            manager.create_topic("b", 1)
        with pytest.raises(LogDirOfflineError, match="offline, as all others"):
            manager.add_partitions("a", 3)

        assert [(t.topic, t.partition_count) for t in manager.topics()] == [("a", 2)]

    def test_a_partition_that_one_disk_refuses_is_created_on_another(
        self, manager: LogManager, disk: BrokenDisk, dirs: list[Path]
    ) -> None:
        disk.broken = {dirs[0] / "b-0"}

        manager.create_topic("b", 1)
        append(manager, "b", "k=1")

        assert list(manager.offline) == [dirs[0]]
        assert partition_dirs(dirs[1]) == ["a-1", "b-0"]

    def test_a_directory_whose_leavings_cannot_be_removed_goes_offline(
        self,
        manager: LogManager,
        disk: BrokenDisk,
        dirs: list[Path],
        clock: ManualClock,
    ) -> None:
        manager.delete_topic("a")
        (doomed,) = (path for path in dirs[0].iterdir() if path.name.endswith("-delete"))
        disk.broken = {doomed}
        clock.advance_ms(HOUR_MS)

        manager.run_maintenance()

        assert list(manager.offline) == [dirs[0]]
        assert partition_dirs(dirs[1]) == []


class TestDamage:
    def test_a_log_with_damaged_records_does_not_hold_up_the_others(
        self, open_manager: OpenManager, dirs: list[Path], clock: ManualClock
    ) -> None:
        manager = open_manager()
        manager.create_topic("a", 3, {"index.interval.bytes": "0", "segment.ms": str(HOUR_MS)})
        for partition in range(3):
            append(manager, "a", "k=1 k=2 k=3", partition)
        manager.close()
        with (dirs[0] / "a-1" / f"{0:020d}.log").open("r+b") as file:
            file.seek(16)
            file.write(b"\x09")  # no magic that anybody knows

        manager = open_manager()
        clock.advance_ms(2 * HOUR_MS)
        manager.run_maintenance()
        manager.run_maintenance()

        rolled = [
            len(manager.get_log(TopicPartition("a", partition)).segments) for partition in (0, 2)
        ]
        assert rolled == [2, 2]
        assert manager.offline == {}
        assert read(manager, "a", 2) == "0:k=1 1:k=2 2:k=3"


class TestOwnership:
    def test_a_directory_has_one_owner(self, open_manager: OpenManager, dirs: list[Path]) -> None:
        open_manager()

        with pytest.raises(LogDirLockedError):
            open_manager()

    def test_another_process_is_told_who_it_is(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        with locked_by_a_child(dirs[0]) as pid:
            with pytest.raises(LogDirLockedError) as error:
                open_manager()

            assert error.value.pid == pid
            assert str(error.value) == f"{dirs[0]} is in use by process {pid}"

        open_manager()  # the lock ended with the process

    def test_a_process_that_was_killed_leaves_no_lock(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        with locked_by_a_child(dirs[0]):
            pass
        assert (dirs[0] / ".lock").exists()

        open_manager()

    def test_it_is_free_when_its_owner_has_closed(self, open_manager: OpenManager) -> None:
        open_manager().close()

        open_manager()

    def test_who_is_refused_by_one_directory_leaves_the_others_as_they_were(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager(2)
        manager.create_topic("a", 2)
        manager.close()

        with locked_by_a_child(dirs[1]), pytest.raises(LogDirLockedError):
            open_manager(2)

        # Still a clean stop, and nobody's.
        assert (dirs[0] / ".kafka_cleanshutdown").exists()
        open_manager(2)

    def test_a_second_path_to_a_directory_is_the_same_directory(
        self, dirs: list[Path], disk: BrokenDisk, clock: ManualClock
    ) -> None:
        link = dirs[0].with_name("link")
        dirs[0].mkdir()
        link.symlink_to(dirs[0])

        with pytest.raises(LogDirLockedError):
            LogManager([dirs[0], link], fs=disk, clock=clock)

        DirectoryLock(dirs[0]).release()


@contextmanager
def locked_by_a_child(directory: Path) -> Iterator[int]:
    """Let another process hold the lock of a directory, and kill it in the end."""
    directory.mkdir(parents=True, exist_ok=True)
    code = (
        "import sys; from pathlib import Path;"
        "from siltstone.log.directory_lock import DirectoryLock;"
        "lock = DirectoryLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        yield child.pid
        child.kill()


class TestDirectoriesOfKafka:
    TOPIC_ID = TopicId.parse("Tn8WAAMzQZSLxu4qy6tOJg")

    @pytest.fixture
    def kafka(self, dirs: list[Path]) -> Path:
        """A log directory as a stopped Kafka 4.3.1 leaves it."""
        root = dirs[0]
        root.mkdir()
        files = {
            ".lock": b"",
            ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":12}',
            "bootstrap.checkpoint": b"\0" * 100,
            "cleaner-offset-checkpoint": b"0\n0\n",
            "log-start-offset-checkpoint": b"0\n1\nclicks 1 1\n",
            "recovery-point-offset-checkpoint": b"0\n2\nclicks 1 2\nmy-dashed-topic 0 0\n",
            "replication-offset-checkpoint": b"0\n2\nclicks 1 2\nmy-dashed-topic 0 0\n",
            "meta.properties": (
                b"#\n#Mon Nov 16 03:00:00 UTC 2026\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"
                b"directory.id=DMbVEzzbTOePxDmPnQbyZA\nnode.id=7\nversion=1\n"
            ),
            "__cluster_metadata-0/00000000000000000000.log": b"",
            "__cluster_metadata-0/quorum-state": b"{}",
            "remote-log-index-cache/x": b"",
            "clicks-1/partition.metadata": f"version: 0\ntopic_id: {self.TOPIC_ID}".encode(),
            "clicks-1/leader-epoch-checkpoint": b"0\n1\n0 0\n",
            f"clicks-1/{0:020d}.log": b"".join(
                build_batch(parse_records("k=v", START_MS, offset), leader_epoch=0)
                for offset in range(2)
            ),
            f"clicks-1/{0:020d}.index": b"",
            f"clicks-1/{0:020d}.timeindex": (START_MS.to_bytes(8, "big") + (0).to_bytes(4, "big")),
            f"clicks-1/{2:020d}.snapshot": bytes.fromhex("0001 48674bc7 00000000"),
            "my-dashed-topic-0/leader-epoch-checkpoint": b"",
            f"my-dashed-topic-0/{0:020d}.log": b"",
            f"gone-0.{uuid.UUID(int=1).hex}-delete/{0:020d}.log": b"",
            f"moving-0.{uuid.UUID(int=2).hex}-future/{0:020d}.log": b"",
            f"lost-0.{uuid.UUID(int=3).hex}-stray/{0:020d}.log": b"",
        }
        for name, data in files.items():
            path = root / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        return root

    def test_topics_are_found_by_their_directories(
        self, open_manager: OpenManager, kafka: Path
    ) -> None:
        manager = open_manager()

        assert [
            (metadata.topic, metadata.partition_count, metadata.config)
            for metadata in manager.topics()
        ] == [("clicks", 2, {}), ("my-dashed-topic", 1, {})]
        assert manager.describe("clicks").topic_id == self.TOPIC_ID
        assert manager.partitions("clicks") == [1]

    def test_their_records_are_there(self, open_manager: OpenManager, kafka: Path) -> None:
        manager = open_manager()

        assert read(manager, "clicks", 1) == "0:k=v 1:k=v"
        log = manager.get_log(TopicPartition("clicks", 1))
        assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (1, 2, 2)
        append(manager, "clicks", "k=w", 1)
        assert read(manager, "clicks", 1) == "0:k=v 1:k=v 2:k=w"

    def test_its_identity_is_kept(self, open_manager: OpenManager, kafka: Path) -> None:
        before = (kafka / "meta.properties").read_bytes()

        manager = open_manager()

        assert manager.directories[0].properties.node_id == 7
        assert (kafka / "meta.properties").read_bytes() == before

    def test_what_is_not_ours_is_left_alone(self, open_manager: OpenManager, kafka: Path) -> None:
        open_manager().close()

        assert set(partition_dirs(kafka)) == {
            "__cluster_metadata-0",
            "remote-log-index-cache",
            "clicks-1",
            "my-dashed-topic-0",
            f"moving-0.{uuid.UUID(int=2).hex}-future",
            f"lost-0.{uuid.UUID(int=3).hex}-stray",
        }
        assert (kafka / "bootstrap.checkpoint").read_bytes() == b"\0" * 100
        assert (kafka / "cleaner-offset-checkpoint").read_bytes() == b"0\n0\n"

    def test_settings_can_be_given_to_a_topic_that_was_found(
        self, open_manager: OpenManager, kafka: Path
    ) -> None:
        manager = open_manager()
        manager.alter_topic("clicks", {"cleanup.policy": "compact"})
        manager.close()

        manager = open_manager()

        assert manager.config("clicks").is_compacted
        assert manager.describe("clicks").topic_id == self.TOPIC_ID

    def test_a_topic_that_was_found_cannot_be_created(
        self, open_manager: OpenManager, kafka: Path
    ) -> None:
        manager = open_manager()

        with pytest.raises(TopicExistsError):
            manager.create_topic("clicks", 1)

    def test_no_file_of_ours_is_a_directory_or_looks_like_one_of_kafkas(
        self, open_manager: OpenManager, kafka: Path
    ) -> None:
        before = {path.relative_to(kafka) for path in kafka.rglob("*")}
        manager = open_manager()
        manager.alter_topic("clicks", {"segment.ms": "1000"})
        append(manager, "clicks", "k=1", 1)
        manager.close()

        added = {path.relative_to(kafka) for path in kafka.rglob("*")} - before

        unknown = {path for path in added if len(path.parts) == 1}
        assert unknown == {Path("silt-topics.json")}

    @pytest.mark.parametrize("name", ["foo", "foo-", "foo-bar", "foo-1-delete", "-1"])
    def test_a_directory_that_is_no_partition_is_refused(
        self, open_manager: OpenManager, kafka: Path, name: str
    ) -> None:
        (kafka / name).mkdir()

        with pytest.raises(CorruptCheckpointError) as error:
            open_manager()

        assert str(error.value) == f"{kafka}: {name} is not a partition directory"

    def test_a_partition_of_another_topic_with_the_same_name_is_refused(
        self, open_manager: OpenManager, kafka: Path
    ) -> None:
        other = TopicId.parse("MkU3OEVBNTcwNTJENDM2Qg")
        (kafka / "clicks-0").mkdir()
        (kafka / "clicks-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {other}")

        with pytest.raises(CorruptCheckpointError) as error:
            open_manager()

        assert str(error.value) == (
            f"{kafka}/clicks-1: topic id is {self.TOPIC_ID}, expected {other}"
        )


def test_a_log_that_cannot_be_opened_is_left_alone_and_the_others_are_served(
    tmp_path: Path,
) -> None:
    with LogManager([tmp_path]) as manager:
        manager.create_topic("orders", 2)
        for number in range(2):
            log = manager.get_log(TopicPartition("orders", number))
            log.append(build_batch([Record(0, START_MS, b"k", b"v")]))
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[16] = 9  # no magic that anybody knows
    path.write_bytes(data)

    with LogManager([tmp_path]) as manager:
        assert manager.get_log(TopicPartition("orders", 1)).log_end_offset == 1
        assert manager.partitions("orders") == [0, 1]
        with pytest.raises(CorruptBatchError, match="position 0: unknown magic 9"):
            manager.get_log(TopicPartition("orders", 0))

    # Whoever mends it must have it recovered: the stop does not count as clean.
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert path.read_bytes() == data
