"""Many partitions at a time: all of them, and the first error."""

from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.side_by_side import for_each
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.make_log import HastyDisk

PARTITION_COUNT = 30


@pytest.mark.parametrize("count", [3, 30])
def test_one_error_is_raised_after_work_that_came_before_it(count: int) -> None:
    done = []

    def work(number: int) -> None:
        if number == 2:
            raise ValueError("two")
        done.append(number)

    with pytest.raises(ValueError, match="two"):
        for_each(range(count), work)

    assert set(done) >= {0, 1}


def test_a_topic_of_many_partitions_is_spread_and_stopped_cleanly(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with LogManager(paths, fs=HastyDisk()) as manager:
        topic_id = manager.create_topic("many", PARTITION_COUNT).topic_id
        for number in range(PARTITION_COUNT):
            log = manager.get_log(TopicPartition("many", number))
            log.append(build_batch([Record(0, 1, b"k", b"%d" % number)]))

    counts = [len(list(path.glob("many-*"))) for path in paths]
    assert counts == [PARTITION_COUNT / 2] * 2
    assert all((path / ".kafka_cleanshutdown").exists() for path in paths)
    with LogManager(paths, fs=HastyDisk()) as manager:
        assert manager.describe("many").topic_id == topic_id
        assert {log.log_end_offset for log in manager.logs.values()} == {1}
