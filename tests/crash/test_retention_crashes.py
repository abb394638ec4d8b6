"""A crash at any step of a planned retention: no hole, and a manifest only of what is gone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.manifest import read_manifests
from siltstone.cleaner.retention import RetentionPlan, plan_retention
from siltstone.cleaner.retention_commit import commit_retention
from siltstone.cleaner.verify import VerifyRequest, verify_partition
from tests.support.crash_runs import Aftermath, Scene, crash_everywhere
from tests.support.log_checks import PARTITION, small_config
from tests.support.shrinking import Shrinking

CLEAN_OFFSET = 0  # noted, but below the log start once anything is gone


class RetentionBySize(Shrinking):
    """The oldest segments go, and the checkpoint of the cleaner follows."""

    config = small_config(segment_bytes=10_000, file_delete_delay_ms=0, retention_bytes=900)
    ends_expected: Sequence[int] = (5, 9)  # where the segments end that go

    def prepare(self, scene: Scene) -> None:
        super().prepare(scene)
        self.bases = scene.log.segments.base_offsets
        CleanerCheckpoints(scene.disk, scene.disk.root).put(PARTITION, CLEAN_OFFSET)

    def act(self, scene: Scene) -> None:
        plan = _plan(scene)
        assert plan is not None
        assert [removal.end_offset for removal in plan.removals] == list(self.ends_expected)
        # The same in every telling.
        plan = replace(plan, pass_id="0000000000001aaaaaaaa")
        commit_retention(scene.disk, scene.clock, scene.log, plan)
        scene.log.delete_due_files()

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        super().check(scene, has_power_failed=has_power_failed, is_complete=is_complete)
        new_start = self.ends_expected[-1]
        scene.reopen()
        first = scene.log.segments.first.base_offset
        clean_offset = CleanerCheckpoints(scene.disk, scene.disk.root).find(PARTITION)
        manifests = read_manifests(scene.disk, scene.directory)

        assert first in (*self.bases[: len(self.ends_expected)], new_start)
        assert clean_offset == CLEAN_OFFSET or (clean_offset, first) == (new_start, new_start)
        assert len(manifests) == 1 or not is_complete
        if manifests:
            assert (first, clean_offset) == (new_start, new_start)
            inputs = manifests[0].fields["inputs"]
            assert [item["base_offset"] for item in inputs] == list(self.bases[: len(inputs)])
        self._check_verified(scene)
        self._finish(scene, len(manifests))

    def _check_verified(self, scene: Scene) -> None:
        report = verify_partition(
            VerifyRequest(
                partition=PARTITION,
                log_dir=scene.disk.root,
                config=self.config,
                now_ms=scene.clock.now_ms(),
                deep=True,
            ),
            scene.disk,
        )
        assert report.violations == ()

    def _finish(self, scene: Scene, manifest_count: int) -> None:
        """Retention goes on where the crash cut it short."""
        plan = _plan(scene)
        if plan is not None:
            commit_retention(scene.disk, scene.clock, scene.log, plan)
            manifest_count += 1
        assert scene.log.segments.first.base_offset == self.ends_expected[-1]
        assert len(read_manifests(scene.disk, scene.directory)) == manifest_count
        scene.leave()


class RetentionOfAll(RetentionBySize):
    """All segments are over age; the log goes on, empty, where it ended."""

    config = small_config(segment_bytes=10_000, file_delete_delay_ms=0, retention_ms=1_000)
    segment_count = 2
    ends_expected = (5, 9)

    def prepare(self, scene: Scene) -> None:
        super().prepare(scene)
        scene.clock.advance_ms(1_000_000)
        scene.history.acknowledged_end_offset = scene.history.next_offset


def _plan(scene: Scene) -> RetentionPlan | None:
    return plan_retention(scene.log, scene.clock.now_ms())


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize("story", [RetentionBySize, RetentionOfAll])
def test_after_a_crash_at_any_step_of_retention_the_log_starts_with_a_segment_and_the_rest_goes(
    tmp_path: Path, story: type[RetentionBySize], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 10
