"""Topics of a log manager: their names, settings, places and end."""

import re
from pathlib import Path

import pytest

from siltstone.errors import (
    ConfigError,
    CorruptCheckpointError,
    LogDirOfflineError,
    StorageError,
    TopicExistsError,
    UnknownSettingError,
    UnknownTopicError,
    UsageError,
)
from siltstone.ids import TopicPartition
from siltstone.records.builder import build_batch
from tests.support.clock import START_MS, ManualClock
from tests.support.log_managers import OpenManager, append, crash, partition_dirs, read
from tests.support.make_log import parse_records


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

    def test_a_topic_with_more_than_is_wanted_was_not_cut_short(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("orders", 3)
        crash(manager)
        (dirs[0] / "silt-topics.json").unlink()  # as in a directory of Kafka's

        manager = open_manager()

        with pytest.raises(TopicExistsError):
            manager.create_topic("orders", 2)
        assert manager.partitions("orders") == [0, 1, 2]

    def test_a_topic_with_a_damaged_log_was_not_cut_short(
        self, open_manager: OpenManager, dirs: list[Path]
    ) -> None:
        manager = open_manager()
        manager.create_topic("orders", 2)
        append(manager, "orders", "a=1", partition=1)
        manager.close()
        (dirs[0] / "silt-topics.json").unlink()
        with (dirs[0] / "orders-1" / f"{0:020d}.log").open("r+b") as file:
            file.seek(16)
            file.write(b"\x09")  # no magic that anybody knows

        manager = open_manager()

        with pytest.raises(StorageError):
            manager.get_log(TopicPartition("orders", 1))
        with pytest.raises(TopicExistsError):
            manager.create_topic("orders", 2)


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
