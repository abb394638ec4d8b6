"""A crash at any step of a roll: the segments before it are whole, and so are their indexes."""

from pathlib import Path

import pytest

from siltstone.records.control import ControlType
from tests.support.crash_runs import Aftermath, LogStory, Scene, crash_everywhere
from tests.support.log_checks import check_log, small_config


class RollsBySize(LogStory):
    """Batches that fill segments, with transactions across their borders."""

    config = small_config(segment_bytes=420)

    def prepare(self, scene: Scene) -> None:
        scene.writer.append(2, producer_id=1)

    def act(self, scene: Scene) -> None:
        writer = scene.writer
        writer.append(1, producer_id=2, is_transactional=True)
        writer.append(2, value_bytes=80)
        writer.append(1, producer_id=2, is_transactional=True)
        writer.end(2, ControlType.ABORT)
        writer.append(2, value_bytes=100, leader_epoch=1)
        writer.append(2, value_bytes=100, leader_epoch=1, producer_id=1)


class AbortBeforeRoll(LogStory):
    """A transaction that is aborted by the last batch of a segment."""

    def prepare(self, scene: Scene) -> None:
        writer = scene.writer
        writer.append(1, producer_id=1, is_transactional=True)
        writer.append(1, producer_id=2, is_transactional=True)

    def act(self, scene: Scene) -> None:
        scene.writer.end(1, ControlType.ABORT)
        scene.log.roll()
        scene.writer.append(1)
        scene.log.roll()


class CloseAfterAbort(LogStory):
    """A transaction is aborted, and the log closed: nothing will be recovered after that."""

    def prepare(self, scene: Scene) -> None:
        scene.writer.append(1, producer_id=1, is_transactional=True)

    def act(self, scene: Scene) -> None:
        scene.writer.end(1, ControlType.ABORT)
        scene.log.close()

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        if is_complete:
            scene.reopen(scene.leave(), was_clean=True)
            check_log(scene.log, scene.history)
        super().check(scene, has_power_failed=has_power_failed, is_complete=is_complete)


class RollsByHand(LogStory):
    """A roll of what was just rolled, and of what nobody has appended to."""

    def prepare(self, scene: Scene) -> None:
        for _ in range(5):
            scene.writer.append(1)

    def act(self, scene: Scene) -> None:
        scene.log.roll()
        scene.log.roll()
        scene.writer.append(1)
        scene.log.roll()


class RollsByFullIndex(LogStory):
    """Segments that end because an index has no room."""

    config = small_config(segment_bytes=10_000, segment_index_bytes=36, index_interval_bytes=0)

    def act(self, scene: Scene) -> None:
        for _ in range(7):
            scene.writer.append(1)


class UnflushedRolls(RollsBySize):
    """Appends that nobody asked to be durable: a roll flushes the segment before it."""

    config = small_config(segment_bytes=420, flush_messages=1_000_000)
    flushes_each_append = False

    def prepare(self, scene: Scene) -> None:
        super().prepare(scene)
        scene.log.flush()


class PreallocatedRolls(RollsBySize):
    """Segments that are cut to their content when they roll."""

    config = small_config(segment_bytes=420, preallocate=True)


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize(
    "story",
    [
        RollsBySize,
        AbortBeforeRoll,
        CloseAfterAbort,
        RollsByHand,
        RollsByFullIndex,
        UnflushedRolls,
        PreallocatedRolls,
    ],
)
def test_a_crash_at_any_step_of_a_roll_loses_nothing_and_leaves_sound_indexes(
    tmp_path: Path, story: type[LogStory], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 10
