"""Stories of logs that lose records on purpose, and crash over it."""

from siltstone.records.control import ControlType
from tests.support.crash_runs import LogStory, Scene
from tests.support.log_checks import Checkpoint, small_config


class Shrinking(LogStory):
    """A log of several segments, each with records of producers and transactions."""

    config = small_config(segment_bytes=10_000, file_delete_delay_ms=0)

    segment_count = 5

    def prepare(self, scene: Scene) -> None:
        for number in range(self.segment_count):
            if number:
                scene.log.roll()
            writer = scene.writer
            writer.append(2, leader_epoch=number)
            writer.append(1, producer_id=1, leader_epoch=number)
            writer.append(1, producer_id=2, is_transactional=True, leader_epoch=number)
            if number % 2 == 0:
                writer.end(2, ControlType.ABORT)
        scene.history.acknowledged_end_offset = 0

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        # What is written down about the log may be from just now, or from before it shrank.
        now = Checkpoint.of(scene.log)
        scene.history.log_start_offset = scene.log.log_start_offset
        scene.leave()
        if is_complete:
            self.check_completed(scene, now)
        scene.recover(Checkpoint(now.recovery_point, 0))
        scene.recover(now)

    def check_completed(self, scene: Scene, checkpoint: Checkpoint) -> None:
        """Look at a log that has answered before the crash."""
