"""A crash at any step of creating, changing or deleting a topic: it can be done again."""

import contextlib
from pathlib import Path

import pytest

from siltstone.errors import TopicExistsError, UsageError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.identity import parse_partition_metadata
from tests.support.crash_runs import Aftermath, ManagerScene, ManagerStory, crash_everywhere


def check_whole(scene: ManagerScene, topic: str, partition_count: int) -> None:
    """Check that a topic has all of its partitions, each with its id, and each for use."""
    manager = scene.manager
    metadata = manager.describe(topic)
    assert metadata.partition_count == partition_count
    assert manager.partitions(topic) == list(range(partition_count))
    for number in range(partition_count):
        log = manager.get_log(TopicPartition(topic, number))
        path = log.directory / filenames.PARTITION_METADATA
        assert parse_partition_metadata(path, path.read_bytes()) == metadata.topic_id
        assert log.topic_id == metadata.topic_id
        scene.append(topic, number)
    scene.check_topic(topic)


class Creation(ManagerStory):
    """A topic is created, with settings, over two log directories."""

    def act(self, scene: ManagerScene) -> None:
        scene.manager.create_topic("new", 3, self.settings)

    def check_opened(self, scene: ManagerScene, *, is_complete: bool) -> None:
        with contextlib.suppress(TopicExistsError):
            scene.manager.create_topic("new", 3, self.settings)
            assert not is_complete, "a topic that was created is forgotten"
        assert scene.manager.describe("new").config == self.settings
        check_whole(scene, "new", 3)


class Growth(ManagerStory):
    """A topic gets more partitions."""

    def act(self, scene: ManagerScene) -> None:
        scene.manager.add_partitions("kept", 4)

    def check_opened(self, scene: ManagerScene, *, is_complete: bool) -> None:
        with contextlib.suppress(UsageError):
            scene.manager.add_partitions("kept", 4)
            assert not is_complete
        assert scene.manager.describe("kept").config == self.settings
        check_whole(scene, "kept", 4)


class Change(ManagerStory):
    """The settings of a topic are changed."""

    def act(self, scene: ManagerScene) -> None:
        scene.manager.alter_topic("kept", {"retention.ms": "77"}, ["file.delete.delay.ms"])

    def check_opened(self, scene: ManagerScene, *, is_complete: bool) -> None:
        changed = {**self.settings, "retention.ms": "77"}
        del changed["file.delete.delay.ms"]
        config = scene.manager.describe("kept").config
        assert config in ([changed] if is_complete else [self.settings, changed])


class Deletion(ManagerStory):
    """A topic with records is deleted, and its files a moment later."""

    def prepare(self, scene: ManagerScene) -> None:
        super().prepare(scene)
        scene.manager.create_topic("gone", 3, self.settings)
        for partition in range(3):
            scene.append("gone", partition)

    def act(self, scene: ManagerScene) -> None:
        scene.manager.delete_topic("gone")
        scene.manager.run_maintenance()

    def check_opened(self, scene: ManagerScene, *, is_complete: bool) -> None:
        known = [metadata.topic for metadata in scene.manager.topics()]
        if "gone" in known:
            assert not is_complete, "a topic that was deleted is back"
            for partition in scene.manager.partitions("gone"):
                log = scene.manager.get_log(TopicPartition("gone", partition))
                assert log.log_end_offset == 1, "a partition has lost its records but not its name"
            scene.manager.delete_topic("gone")
            scene.manager.run_maintenance()
        for path in scene.paths:
            assert not [child for child in path.iterdir() if child.name.startswith("gone")]
        scene.manager.create_topic("gone", 3, self.settings)
        assert scene.manager.get_log(TopicPartition("gone", 0)).log_end_offset == 0


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize("story", [Creation, Growth, Change, Deletion])
def test_a_topic_command_can_be_repeated_after_a_crash_at_any_step(
    tmp_path: Path, story: type[ManagerStory], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 5
