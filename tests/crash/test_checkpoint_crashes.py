"""A crash while small files are written: the old content or the new, no clean stop too early."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from siltstone.ids import TopicId, TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import parse_offsets
from siltstone.log.topic_store import FileTopicStore, TopicMetadata
from siltstone.records.batch import read_header
from tests.support.crash_runs import (
    Aftermath,
    LogStory,
    ManagerScene,
    ManagerStory,
    Scene,
    Story,
    crash_everywhere,
)
from tests.support.crashable_disk import CrashableDisk
from tests.support.log_checks import check_log, small_config

OLD, NEW = b"0\n1\norders 0 17\n", b"0\n2\norders 0 170\norders 1 1\n"


@dataclass
class FileScene:
    """A disk with small files on it."""

    disk: CrashableDisk
    topics: dict[str, TopicMetadata] = field(default_factory=dict)

    def knowledge(self) -> Hashable:
        return tuple(sorted(self.topics))


class SmallFile(Story[FileScene]):
    """A file is replaced."""

    def make(self, root: Path) -> FileScene:
        root.mkdir(parents=True)
        disk = CrashableDisk(root)
        disk.write_atomically(root / "checkpoint", OLD)
        return FileScene(disk)

    def act(self, scene: FileScene) -> None:
        scene.disk.write_atomically(scene.disk.root / "checkpoint", NEW)

    def check(self, scene: FileScene, *, has_power_failed: bool, is_complete: bool) -> None:
        path = scene.disk.root / "checkpoint"
        assert path.read_bytes() in ([NEW] if is_complete else [OLD, NEW])
        self.act(scene)
        assert path.read_bytes() == NEW
        assert [child.name for child in scene.disk.root.iterdir()] == ["checkpoint"]


class NewFile(SmallFile):
    """A file is written for the first time."""

    def make(self, root: Path) -> FileScene:
        root.mkdir(parents=True)
        return FileScene(CrashableDisk(root))

    def check(self, scene: FileScene, *, has_power_failed: bool, is_complete: bool) -> None:
        path = scene.disk.root / "checkpoint"
        assert path.exists() or not is_complete
        if path.exists():
            assert path.read_bytes() == NEW


def _topic(name: str, partition_count: int = 1, **config: str) -> TopicMetadata:
    return TopicMetadata(name, TopicId.random(), partition_count, config)


class Topics(Story[FileScene]):
    """Topics are added, changed and forgotten, with a copy in each of two directories."""

    first: ClassVar = {"a": _topic("a"), "b": _topic("b")}
    added: ClassVar = _topic("c", 3, x="1")
    changed: ClassVar = _topic("a", 2)

    def make(self, root: Path) -> FileScene:
        for name in ("one", "two"):
            (root / name).mkdir(parents=True)
        scene = FileScene(CrashableDisk(root), dict(self.first))
        store = self.open(scene)
        for metadata in self.first.values():
            store.put(metadata)
        return scene

    def open(self, scene: FileScene) -> FileTopicStore:
        return FileTopicStore(scene.disk, [scene.disk.root / name for name in ("one", "two")])

    def act(self, scene: FileScene) -> None:
        store = self.open(scene)
        store.put(self.added)
        scene.topics["c"] = self.added
        store.put(self.changed)
        scene.topics["a"] = self.changed
        store.delete("b")
        del scene.topics["b"]

    def check(self, scene: FileScene, *, has_power_failed: bool, is_complete: bool) -> None:
        # What was acknowledged, and perhaps the one change after it.
        known = scene.topics
        expected = [
            known,
            {**known, "c": self.added},
            {**known, "a": self.changed},
            {name: metadata for name, metadata in known.items() if name != "b"},
        ]
        if is_complete:
            expected = [{"a": self.changed, "c": self.added}]
        found = {metadata.topic: metadata for metadata in self.open(scene).list()}
        assert found in expected

        # The next change heals what is different in the two directories.
        self.open(scene).put(_topic("d"))
        for name in ("one", "two"):
            one = FileTopicStore(scene.disk, [scene.disk.root / name])
            assert [metadata.topic for metadata in one.list()] == sorted([*found, "d"])


class Epochs(LogStory):
    """Leaders follow on each other, each with a batch or two."""

    config = small_config(segment_bytes=10_000)

    def prepare(self, scene: Scene) -> None:
        scene.writer.append(1)

    def act(self, scene: Scene) -> None:
        for leader_epoch in (1, 1, 4, 9):
            scene.writer.append(2, leader_epoch=leader_epoch)


class Checkpoints(ManagerStory):
    """The owner writes down how far its logs are."""

    def prepare(self, scene: ManagerScene) -> None:
        super().prepare(scene)
        scene.manager.checkpoint()
        scene.append("kept", 0, 3)
        scene.manager.get_log(TopicPartition("kept", 0)).delete_records(2)

    def act(self, scene: ManagerScene) -> None:
        scene.manager.checkpoint()

    def check_opened(self, scene: ManagerScene, *, is_complete: bool) -> None:
        for path in scene.paths:
            for name in (filenames.RECOVERY_POINTS, filenames.HIGH_WATERMARKS):
                file = path / name
                for partition, offset in parse_offsets(file, file.read_bytes()).items():
                    assert 3 <= offset <= scene.histories[partition].acknowledged_end_offset
        log_start = scene.manager.get_log(TopicPartition("kept", 0)).log_start_offset
        assert log_start in ([2] if is_complete else [0, 2])
        for history in scene.histories.values():
            history.log_start_offset = 2


class FirstStart(ManagerStory):
    """Log directories are opened that do not exist yet."""

    def prepare(self, scene: ManagerScene) -> None:
        pass

    def act(self, scene: ManagerScene) -> None:
        assert scene.manager.topics() == []

    def check_opened(self, scene: ManagerScene, *, is_complete: bool) -> None:
        super().prepare(scene)


class CleanStop(ManagerStory):
    """Everything is closed, although nobody has asked for a flush before."""

    settings: ClassVar = {**ManagerStory.settings, "flush.messages": "1000000"}

    def act(self, scene: ManagerScene) -> None:
        scene.manager.close()

    def check(self, scene: ManagerScene, *, has_power_failed: bool, is_complete: bool) -> None:
        scene.leave()
        for name, history in scene.histories.items():
            if has_power_failed and not is_complete:
                history.acknowledged_end_offset = 0
            log = scene.manager.get_log(name)
            check_log(log, history)
            assert log.log_end_offset in (0, *(read_header(d).next_offset for d in history.batches))
        scene.leave()


class StartAfterACleanStop(ManagerStory):
    """What was closed is opened again; the next stop may be any."""

    def prepare(self, scene: ManagerScene) -> None:
        super().prepare(scene)
        scene.manager.close()
        scene.leave()

    def act(self, scene: ManagerScene) -> None:
        scene.append("kept", 0, 2)
        scene.append("kept", 1)

    def check(self, scene: ManagerScene, *, has_power_failed: bool, is_complete: bool) -> None:
        appended = any(len(history.batches) > 2 for history in scene.histories.values())
        if appended:
            for path in scene.paths:
                assert not (path / filenames.CLEAN_SHUTDOWN).exists(), "this was no clean stop"
        super().check(scene, has_power_failed=has_power_failed, is_complete=is_complete)


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize("story", [SmallFile, NewFile, Topics])
def test_a_small_file_is_the_old_or_the_new_one_after_a_crash_at_any_step(
    tmp_path: Path, story: type[Story[FileScene]], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 5


@pytest.mark.parametrize("aftermath", Aftermath)
def test_every_batch_has_its_epoch_after_a_crash_at_any_step(
    tmp_path: Path, aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, Epochs(), aftermath) > 5


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize("story", [Checkpoints, FirstStart, CleanStop, StartAfterACleanStop])
def test_log_directories_open_after_a_crash_at_any_step_of_checkpoint_stop_and_start(
    tmp_path: Path, story: type[ManagerStory], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 5
