"""A disk that refuses at any step: the log stops, others go on, nothing acknowledged is lost."""

import contextlib
import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from siltstone.errors import LogDirOfflineError, UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.records.control import ControlType
from tests.support.crash_runs import (
    ROUNDS,
    LogStory,
    ManagerScene,
    ManagerStory,
    Scene,
    count_steps,
    told,
)
from tests.support.crashable_disk import CrashableDisk
from tests.support.crashing_disk import Refusal, Step, every_refusal
from tests.support.log_checks import check_log, fetch_all, small_config, stored_batches


class Everything(LogStory):
    """All that changes a log while it is open."""

    config = small_config(segment_bytes=420, retention_bytes=800, file_delete_delay_ms=0)

    def prepare(self, scene: Scene) -> None:
        scene.writer.append(2, producer_id=1)

    def act(self, scene: Scene) -> None:
        writer, log = scene.writer, scene.log
        writer.append(1, producer_id=2, is_transactional=True)
        writer.append(2, value_bytes=80, leader_epoch=1)
        writer.end(2, ControlType.ABORT)
        writer.append(2, value_bytes=100, leader_epoch=1)
        log.roll()
        writer.append(1, producer_id=1, leader_epoch=2)
        log.delete_records(3)
        log.delete_old_segments()
        log.delete_due_files()
        writer.append(1, leader_epoch=2)


class Truncations(LogStory):
    """A log is cut, and then begun anew."""

    def prepare(self, scene: Scene) -> None:
        for _ in range(3):
            scene.writer.append(2)
            scene.log.roll()
        scene.history.acknowledged_end_offset = 0

    def act(self, scene: Scene) -> None:
        scene.log.truncate_to(3)
        scene.log.truncate_fully_and_start_at(100)


@pytest.mark.parametrize("story", [Everything, Truncations])
@pytest.mark.parametrize(
    ("error_number", "has_power_failed"),
    [(errno.ENOSPC, False), (errno.EIO, True)],
    ids=["ENOSPC", "EIO, and then the power fails"],
)
def test_a_log_whose_disk_refuses_takes_no_more_appends_and_loses_nothing(
    tmp_path: Path, story: type[LogStory], error_number: int, has_power_failed: bool
) -> None:
    steps = count_steps(tmp_path / "steps", story())
    failure_count = 0
    for number, refusal in enumerate(every_refusal(steps, error_number)):
        scene = story().make(tmp_path / f"refusal-{number}")
        scene.disk.arm(refusal)

        try:
            story().act(scene)
            has_failed = False
        except LogDirOfflineError:
            has_failed = True
            failure_count += 1
        scene.disk.arm()  # The disk is sound again; the log does not know, and must not try.

        with told(f"{refusal} at {steps[refusal.step]}"):
            log = scene.log
            if has_failed:
                _check_stopped(scene)
            assert {bytes(batch.data) for batch in fetch_all(log)} <= set(scene.history.batches)
            scene.history.log_start_offset = log.log_start_offset
            checkpoint = scene.leave()
            if has_power_failed:
                scene.disk.lose_unflushed_writes(0)
            scene.recover(checkpoint)
        shutil.rmtree(scene.disk.root)
    assert failure_count >= len(steps)


def _check_stopped(scene: Scene) -> None:
    """Check that a log which has failed refuses everything that would change it."""
    log = scene.log
    for change in (
        lambda: scene.writer.append(1),
        log.roll,
        lambda: log.truncate_to(0),
        lambda: log.delete_records(0),
        log.delete_old_segments,
    ):
        with pytest.raises(LogDirOfflineError):
            change()
    scene.history.batches.pop()
    log.close()
    assert scene.disk.steps == [], "a log that has failed was written to"


class Directories(ManagerStory):
    """Two log directories at work."""

    def prepare(self, scene: ManagerScene) -> None:
        super().prepare(scene)
        scene.manager.create_topic("gone", 2, self.settings)

    def act(self, scene: ManagerScene) -> None:
        manager = scene.manager
        work: list[Callable[[], object]] = [
            lambda: scene.append("kept", 0),
            lambda: scene.append("kept", 1),
            lambda: manager.create_topic("new", 2, self.settings),
            lambda: scene.append("new", 0),
            lambda: scene.append("new", 1),
            lambda: manager.get_log(TopicPartition("kept", 0)).roll(),
            manager.run_maintenance,
            manager.checkpoint,
            lambda: manager.delete_topic("gone"),
            lambda: manager.alter_topic("kept", {"retention.ms": "-1"}),
            manager.run_maintenance,
        ]
        for task in work:
            with contextlib.suppress(LogDirOfflineError):
                task()


@pytest.mark.parametrize("part", range(4))
def test_a_directory_whose_disk_refuses_goes_offline_and_the_other_goes_on(
    tmp_path: Path, part: int
) -> None:
    story = Directories()
    steps = count_steps(tmp_path / "steps", story)
    for number, refusal in enumerate(_some_refusals(steps, part)):
        scene = story.make(tmp_path / f"refusal-{number}")
        scene.disk.arm(refusal)

        story.act(scene)

        with told(f"{refusal} at {steps[refusal.step]}"):
            manager = scene.manager
            assert {path.name for path in manager.offline} <= {scene.disk.refused_in}
            for partition in list(manager.logs):
                scene.append(partition.topic, partition.partition)
            manager.create_topic("more", 1, story.settings)
            scene.append("more", 0)
            manager.close()
            scene.leave()

            scene.disk.restart()
            for partition in list(scene.histories):
                _forget_failed_attempts(scene, partition)
            for topic in ("kept", "new", "more"):
                scene.check_topic(topic)
            scene.leave()
        shutil.rmtree(scene.disk.root)


def _some_refusals(steps: Sequence[Step], part: int) -> list[Refusal]:
    """Return a quarter of all refusals; every other one is for good."""
    once = list(every_refusal(steps, errno.EIO))
    for_good = list(every_refusal(steps, errno.EIO, lasts=True))
    mixed = [pair[number % 2] for number, pair in enumerate(zip(once, for_good, strict=True))]
    return (mixed if ROUNDS == 1 else once + for_good)[part::4]


def _forget_failed_attempts(scene: ManagerScene, partition: TopicPartition) -> None:
    """Drop attempts that left no trace; one that failed half-way may have left its batch."""
    history = scene.histories[partition]
    try:
        log = scene.manager.get_log(partition)
    except UnknownTopicError:
        assert history.acknowledged_end_offset == 0
        del scene.histories[partition]
        return
    stored = stored_batches(log)
    assert log.log_end_offset >= history.acknowledged_end_offset
    assert all(data in history.batches for data in stored)
    history.batches = stored


class Start(ManagerStory):
    """Two log directories are opened after a crash."""

    def prepare(self, scene: ManagerScene) -> None:
        super().prepare(scene)
        scene.leave()

    def act(self, scene: ManagerScene) -> None:
        assert scene.manager.topics()


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "for good"])
def test_log_directories_open_without_the_one_whose_disk_refuses(
    tmp_path: Path, lasts: bool
) -> None:
    steps = count_steps(tmp_path / "steps", Start())
    for number, refusal in enumerate(every_refusal(steps, errno.EIO, lasts=lasts)):
        scene = Start().make(tmp_path / f"refusal-{number}")
        scene.disk.arm(refusal)

        with told(f"{refusal} at {steps[refusal.step]}"):
            offline = {path.name for path in scene.manager.offline}
            assert offline <= {scene.disk.refused_in}
            assert len(scene.manager.logs) == 2 - len(offline)
            for partition, log in scene.manager.logs.items():
                check_log(log, scene.histories[partition])
            scene.leave()
            scene.disk.restart()
            scene.check_topic("kept")
            scene.leave()
        shutil.rmtree(scene.disk.root)


def test_an_error_of_the_system_is_told_with_the_path_and_its_own_words(tmp_path: Path) -> None:
    disk = CrashableDisk(tmp_path)
    disk.arm(Refusal(0, errno.ENOSPC))

    with pytest.raises(LogDirOfflineError) as raised:
        disk.mkdir(tmp_path / "logs")

    assert str(raised.value) == f"{tmp_path / 'logs'}: cannot create: No space left on device"
