"""Log directories: who owns them, what is written down, and what is done now and then."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from siltstone.errors import (
    LogDirLockedError,
)
from siltstone.ids import TopicPartition
from siltstone.log.directory_lock import DirectoryLock
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from tests.support.busy_disk import BusyDisk
from tests.support.clock import START_MS, ManualClock
from tests.support.log_managers import BrokenDisk, OpenManager, append, crash, read
from tests.support.make_log import parse_records

HOUR_MS = 3_600_000


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

    def test_a_topic_may_be_deleted_while_they_are_written(self, tmp_path: Path) -> None:
        disk = BusyDisk()
        with LogManager([tmp_path], fs=disk) as manager:
            manager.create_topic("kept", 1)
            manager.create_topic("deleted", 1)

            disk.meanwhile = lambda: manager.delete_topic("deleted")
            manager.checkpoint()
            disk.other.join()

        assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nkept 0 0\n"


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

    @pytest.mark.parametrize("expiration_ms", [24 * HOUR_MS, 5_000])
    def test_silent_producers_are_forgotten(
        self, dirs: list[Path], clock: ManualClock, expiration_ms: int
    ) -> None:
        with LogManager(dirs[:1], clock=clock, producer_expiration_ms=expiration_ms) as manager:
            manager.create_topic("a", 1)
            log = manager.get_log(TopicPartition("a", 0))
            log.append(
                build_batch(
                    parse_records("k=1", START_MS), producer_id=1, producer_epoch=0, base_sequence=0
                )
            )

            clock.advance_ms(expiration_ms - 1)
            manager.run_maintenance()
            assert list(log.producer_state.entries) == [1]

            clock.advance_ms(1)
            manager.run_maintenance()
            assert dict(log.producer_state.entries) == {}


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
