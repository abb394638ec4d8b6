"""A crash during recovery: whoever comes next finds the same log as if there had been none."""

from pathlib import Path

import pytest

from siltstone.log import filenames
from siltstone.records.control import ControlType
from tests.support.crash_runs import Aftermath, LogStory, Scene, crash_everywhere
from tests.support.log_checks import Checkpoint, History, small_config


class Recovery(LogStory):
    """A log is opened that has a torn tail, useless indexes and leftovers of all kinds."""

    config = small_config(segment_bytes=420)

    def prepare(self, scene: Scene) -> None:
        writer = scene.writer
        writer.append(2, producer_id=1)
        writer.append(1, producer_id=2, is_transactional=True)
        writer.append(2, value_bytes=80)
        writer.end(2, ControlType.ABORT)
        writer.append(2, value_bytes=90, leader_epoch=1)
        writer.append(1, producer_id=1, leader_epoch=1)
        self.damage(scene)
        scene.leave()
        scene.disk.flush_everything()

    def damage(self, scene: Scene) -> None:
        active = scene.log.segments.active
        with active.path.open("ab") as file:
            file.write(scene.history.batches[0][:70])
        first = scene.log.segments.first
        first.offset_index.file.path.unlink()
        first.time_index.file.path.write_bytes(b"\xff" * 24)
        filenames.log_path(scene.directory, 100, filenames.DELETED).write_bytes(b"gone")
        filenames.log_path(scene.directory, 0, filenames.CLEANED).write_bytes(b"half")
        filenames.offset_index_path(scene.directory, 77).write_bytes(bytes(8))
        filenames.snapshot_path(scene.directory, 1).write_bytes(b"\0\1stray")

    def act(self, scene: Scene) -> None:
        scene.reopen()

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        scene.leave()
        scene.recover(Checkpoint())


class RecoveryOfABrokenMiddle(Recovery):
    """A batch in an early segment is damaged: it goes, and all that comes after it."""

    def damage(self, scene: Scene) -> None:
        broken = scene.log.segments.first
        position, batch = list(broken.iter_batches())[1]
        content = bytearray(broken.path.read_bytes())
        content[position + 70] ^= 1
        broken.path.write_bytes(content)
        scene.history = History(scene.history.between(0, batch.header.base_offset))
        scene.history.acknowledged_end_offset = batch.header.base_offset
        assert len(scene.log.segments) > 2


class RecoveryBehindTheLogStart(LogStory):
    """The log ends before the offset that was written down as its start: it begins anew there."""

    log_start_offset = 50

    def prepare(self, scene: Scene) -> None:
        for _ in range(3):
            scene.writer.append(1)
            scene.log.roll()
        scene.leave()
        scene.disk.flush_everything()

    def act(self, scene: Scene) -> None:
        scene.reopen(Checkpoint(0, self.log_start_offset))

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        scene.leave()
        scene.reopen(Checkpoint(0, self.log_start_offset))
        assert scene.log.log_start_offset == scene.log.log_end_offset == self.log_start_offset
        assert scene.log.segments.base_offsets == (self.log_start_offset,)
        scene.reopen(Checkpoint(0, self.log_start_offset))
        info = scene.writer.append(1)
        assert info.first_offset == self.log_start_offset


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize("story", [Recovery, RecoveryOfABrokenMiddle, RecoveryBehindTheLogStart])
def test_a_crash_at_any_step_of_recovery_does_not_change_what_is_recovered(
    tmp_path: Path, story: type[LogStory], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 5
