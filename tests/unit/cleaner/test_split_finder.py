"""Where a segment may be cut: at a batch, and nowhere else."""

from pathlib import Path

import pytest

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.slices import Split
from siltstone.cleaner.split_finder import SplitFinder
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.records.batch import iter_batches
from tests.spark.passes import plan_random_logs


@pytest.fixture
def plan(tmp_path: Path) -> CleaningPlan:
    """A plan over segments with an index entry for almost every batch."""
    return plan_random_logs(tmp_path, seed=3)[0]


def starts(plan: CleaningPlan, base_offset: int) -> dict[int, int]:
    """Return base offset by position, for all batches of a segment."""
    data = filenames.log_path(plan.directory, base_offset).read_bytes()
    return {position: batch.header.base_offset for position, batch in iter_batches(data)}


def find(plan: CleaningPlan, base_offset: int, position: int) -> Split | None:
    return SplitFinder(FileSystem(), plan).find(base_offset, position)


def test_a_split_is_at_a_batch_at_or_before_the_position(plan: CleaningPlan) -> None:
    for source in plan.sources:
        batches = starts(plan, source.base_offset)
        for position in range(0, source.size_bytes, 100):
            split = find(plan, source.base_offset, position)
            if split is not None:
                assert split.position <= position
                assert batches[split.position] == split.offset


def test_an_index_that_points_elsewhere_is_not_believed(plan: CleaningPlan) -> None:
    source = plan.sources[-1]
    assert find(plan, source.base_offset, source.size_bytes) is not None
    path = filenames.offset_index_path(plan.directory, source.base_offset)
    entries = bytearray(path.read_bytes())
    for end in range(8, len(entries) + 1, 8):
        entries[end - 1] ^= 1
    path.write_bytes(entries)

    assert find(plan, source.base_offset, source.size_bytes) is None


def test_an_index_that_gives_another_offset_is_not_believed(plan: CleaningPlan) -> None:
    source = plan.sources[-1]
    path = filenames.offset_index_path(plan.directory, source.base_offset)
    entries = bytearray(path.read_bytes())
    entries[-5] ^= 1
    path.write_bytes(entries)

    assert find(plan, source.base_offset, source.size_bytes) is None


@pytest.mark.parametrize("extension", [filenames.OFFSET_INDEX, filenames.LOG])
def test_without_its_files_a_segment_has_no_splits(plan: CleaningPlan, extension: str) -> None:
    source = plan.sources[-1]
    Path(plan.directory, f"{source.base_offset:020d}{extension}").unlink()

    assert find(plan, source.base_offset, source.size_bytes) is None
