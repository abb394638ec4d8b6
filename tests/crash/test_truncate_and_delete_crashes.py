"""A crash while records are lost on purpose: what is left has no hole, and holds nothing else."""

from pathlib import Path

import pytest

from tests.support.crash_runs import Aftermath, LogStory, Scene, crash_everywhere
from tests.support.log_checks import Checkpoint, check_log, small_config
from tests.support.shrinking import Shrinking


class Truncation(Shrinking):
    """Everything from an offset in an early segment on goes."""

    offset = 7

    def act(self, scene: Scene) -> None:
        scene.log.truncate_to(self.offset)

    def check_completed(self, scene: Scene, checkpoint: Checkpoint) -> None:
        scene.reopen(checkpoint)
        check_log(scene.log, scene.history)


class TruncationToASegment(Truncation):
    """Everything from the beginning of a segment on goes."""

    offset = 9


class TruncationAndMore(Truncation):
    """A truncated log goes on with other records at the same offsets."""

    def act(self, scene: Scene) -> None:
        super().act(scene)
        scene.history.forget_from(self.offset)
        scene.history.sequences = {
            producer_id: entry.last_sequence + 1
            for producer_id, entry in scene.log.producer_state.entries.items()
        }
        writer = scene.writer
        writer.append(3, value_bytes=50, leader_epoch=9)
        scene.log.roll()
        writer.append(1, producer_id=1, leader_epoch=9)

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        if scene.history.acknowledged_end_offset > self.offset:
            scene.recover(scene.leave())


class FullTruncation(Shrinking):
    """Everything goes; the log goes on at an offset."""

    offset = 100

    def act(self, scene: Scene) -> None:
        scene.log.truncate_fully_and_start_at(self.offset)

    def check_completed(self, scene: Scene, checkpoint: Checkpoint) -> None:
        scene.reopen(checkpoint)
        assert scene.log.log_start_offset == scene.log.log_end_offset == self.offset


class Retention(Shrinking):
    """The oldest segments go, and their files a moment later."""

    config = small_config(
        segment_bytes=10_000, file_delete_delay_ms=0, retention_ms=1_000, retention_bytes=900
    )

    def act(self, scene: Scene) -> None:
        assert scene.log.delete_old_segments() > 1
        scene.log.delete_due_files()


class RetentionOfAll(Shrinking):
    """All segments go, and a new one begins where they ended."""

    config = small_config(segment_bytes=10_000, file_delete_delay_ms=0, retention_ms=1_000)

    def prepare(self, scene: Scene) -> None:
        super().prepare(scene)
        scene.clock.advance_ms(1_000_000)

    def act(self, scene: Scene) -> None:
        assert scene.log.delete_old_segments() == 5
        scene.log.delete_due_files()

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        # Offsets must never be given out twice.
        scene.history.acknowledged_end_offset = scene.history.next_offset
        super().check(scene, has_power_failed=has_power_failed, is_complete=is_complete)


class RetentionOfTheOnlyOne(RetentionOfAll):
    """The only segment goes; the name of the new one is all that tells where the log goes on."""

    def prepare(self, scene: Scene) -> None:
        scene.writer.append(3)
        scene.clock.advance_ms(1_000_000)

    def act(self, scene: Scene) -> None:
        assert scene.log.delete_old_segments() == 1
        scene.log.delete_due_files()


class DeletedRecords(Shrinking):
    """The log start is raised, and then the segments below it go."""

    def act(self, scene: Scene) -> None:
        scene.log.delete_records(12)
        scene.log.delete_old_segments()
        scene.log.delete_due_files()
        scene.writer.append(1, leader_epoch=4)


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize(
    "story",
    [
        Truncation,
        TruncationToASegment,
        TruncationAndMore,
        FullTruncation,
        Retention,
        RetentionOfAll,
        RetentionOfTheOnlyOne,
        DeletedRecords,
    ],
)
def test_a_log_that_shrinks_has_no_hole_after_a_crash_at_any_step(
    tmp_path: Path, story: type[LogStory], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 5
