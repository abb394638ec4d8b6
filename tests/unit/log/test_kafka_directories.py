"""Directories that Kafka has left, and what it finds in ours."""

import uuid
from pathlib import Path

import pytest

from siltstone.errors import (
    CorruptCheckpointError,
    TopicExistsError,
)
from siltstone.ids import TopicId, TopicPartition
from siltstone.records.builder import build_batch
from tests.support.clock import START_MS
from tests.support.log_managers import OpenManager, append, partition_dirs, read
from tests.support.make_log import parse_records


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
