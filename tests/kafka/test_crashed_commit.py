"""A commit that ended at any of its steps, opened by a real Kafka: the old log or the new one."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassCommitter, PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.storage import DirectoryStorage
from siltstone.log.config import LogConfig
from siltstone.log.partition_log import PartitionLog
from siltstone.records.batch import iter_batches
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.kafka.log_ops import LogOps
from tests.support.clock import ManualClock
from tests.support.crash_runs import Aftermath, Story, crash_everywhere
from tests.support.crashable_disk import CrashableDisk
from tests.support.log_checks import PARTITION, open_log, stored_batches

NOW_MS: Final = 1_577_836_800_000
SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": "150"}  # two batches of one record

KEYS: Final = {
    # By segments, of which two make a group; the last one is active.
    "two groups": ("a", "b", "a", "c", "d"),
    "groups of which nothing is left": ("a", "a", "a", "a", "a", "c", "d"),
}


@dataclass
class PassScene:
    """A log with a pass that was run and is not committed yet."""

    disk: CrashableDisk
    directory: Path
    clock: ManualClock
    log: PartitionLog
    plan: CleaningPlan
    result: PassResult
    old: list[bytes]

    @property
    def checkpoints(self) -> CleanerCheckpoints:
        return CleanerCheckpoints(self.disk, self.disk.root)

    def knowledge(self) -> Hashable:
        return None


class Commit(Story[PassScene]):
    """A pass becomes part of its log; Kafka opens what the crash has left."""

    def __init__(self, keys: Sequence[str], ops: LogOps) -> None:
        self._keys = keys
        self._ops = ops
        self.new: list[bytes] = []  # once it is known

    def make(self, root: Path) -> PassScene:
        directory = root / str(PARTITION)
        directory.mkdir(parents=True)
        disk, clock = CrashableDisk(root), ManualClock(NOW_MS)
        log = open_log(disk, directory, LogConfig.parse(SETTINGS), clock)
        for number, key in enumerate(self._keys):
            log.append(build_batch([Record(0, NOW_MS, key.encode(), b"%d" % number)]))
            if number < len(self._keys) - 1:
                log.roll()
        log.update_high_watermark(log.log_end_offset)
        log.flush()
        assessment, _ = assess_log(log, None, NOW_MS)
        # The same files each time, so that the same crash comes.
        plan = replace(plan_pass(log, assessment, NOW_MS), pass_id="pass", hash_key=bytes(16))
        result = LocalEngine("1", lambda path: DirectoryStorage(path, disk)).run(plan)
        return PassScene(disk, directory, clock, log, plan, result, stored_batches(log))

    def act(self, scene: PassScene) -> None:
        committer = PassCommitter(scene.disk, scene.clock, scene.checkpoints)
        committer.commit(scene.log, scene.plan, scene.result)
        self.new = stored_batches(scene.log)

    def check(self, scene: PassScene, *, has_power_failed: bool, is_complete: bool) -> None:
        found = self._opened_by_kafka(scene.directory)

        outcomes = [self.new] if is_complete else self._outcomes(scene)
        assert found in outcomes
        self._clean_again(scene)

    def _outcomes(self, scene: PassScene) -> list[list[bytes]]:
        """Return the old log and the new one, and those with only the first groups new."""
        old = scene.old
        if len(self.new) < len(old) - 1:
            # Nothing is left of the first groups, whose segments go one after the other.
            return [old[count:] for count in range(len(old) - len(self.new) + 1)]
        return [old, self.new]

    def _opened_by_kafka(self, directory: Path) -> list[bytes]:
        log = self._ops.open(directory, config=SETTINGS, now_ms=NOW_MS, clean=False)
        log.close()
        log.forget()
        return [
            bytes(batch.data)
            for path in sorted(directory.glob("*.log"))
            for _, batch in iter_batches(path.read_bytes())
        ]

    def _clean_again(self, scene: PassScene) -> None:
        """Run the next pass over what Kafka has left."""
        disk = scene.disk
        disk.flush_everything()
        log = open_log(disk, scene.directory, LogConfig.parse(SETTINGS), scene.clock)
        checkpoint = scene.checkpoints.find(PARTITION)
        assessment, _ = assess_log(log, checkpoint, NOW_MS, ignores_ratio=True)
        if checkpoint is None:
            engine = LocalEngine("2", lambda path: DirectoryStorage(path, disk))
            runner = PassRunner(disk, scene.clock, engine, scene.checkpoints)
            runner.run(log, plan_pass(log, assessment, NOW_MS))
        assert stored_batches(log) == self.new
        assert scene.checkpoints.find(PARTITION) == scene.plan.end_offset


@pytest.mark.parametrize("aftermath", [Aftermath.KILLED, Aftermath.AT_RANDOM])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_kafka_finds_the_old_log_or_the_new_one_after_a_crash_at_any_step_of_a_commit(
    tmp_path: Path, log_ops: LogOps, keys: Sequence[str], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, Commit(keys, log_ops), aftermath) > 20
