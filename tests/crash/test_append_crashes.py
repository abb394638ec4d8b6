"""A crash at any step of an append: what was acknowledged is there, and nothing by halves."""

from pathlib import Path

import pytest

from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from tests.support.crash_runs import Aftermath, LogStory, Scene, crash_everywhere
from tests.support.log_checks import small_config


class Appends(LogStory):
    """Batches of every kind, each acknowledged when it is flushed."""

    config = small_config(segment_bytes=10_000)

    def prepare(self, scene: Scene) -> None:
        scene.writer.append(2)

    def act(self, scene: Scene) -> None:
        writer = scene.writer
        writer.append(3, codec=Codec.GZIP)
        writer.append(1, producer_id=1)
        writer.append(2, producer_id=2, is_transactional=True)
        writer.append(1, value_bytes=200, leader_epoch=1)
        writer.append(1, producer_id=3, is_transactional=True, leader_epoch=1)
        writer.end(2, ControlType.ABORT)
        writer.append(1, producer_id=1, leader_epoch=1)
        writer.end(3, ControlType.COMMIT)


class FirstAppend(LogStory):
    """The first batch of a log that is just being created."""

    def act(self, scene: Scene) -> None:
        scene.writer.append(2, producer_id=1)


class PreallocatedAppends(Appends):
    """The same in a file that is long before it is full."""

    config = small_config(segment_bytes=10_000, preallocate=True)


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize("story", [Appends, FirstAppend, PreallocatedAppends])
def test_an_acknowledged_append_survives_a_crash_at_any_step_of_the_next_ones(
    tmp_path: Path, story: type[LogStory], aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, story(), aftermath) > 10
