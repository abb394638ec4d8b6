"""What a failure takes: one directory, or one log, and never the others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.errors import (
    CorruptBatchError,
    LogDirOfflineError,
)
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import START_MS, ManualClock
from tests.support.log_managers import BrokenDisk, OpenManager, append, partition_dirs, read

HOUR_MS = 3_600_000


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
