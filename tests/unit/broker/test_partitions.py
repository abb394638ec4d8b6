"""Which appends may run on the event loop."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltstone.broker.partitions import Partition, PartitionTable
from siltstone.log.log_manager import LogManager
from siltstone.log.topic_store import TopicMetadata
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import ManualClock

HOUR_MS = 3_600_000


def batch_of(timestamp_ms: int) -> bytes:
    return build_batch([Record(0, timestamp_ms, b"k", b"v")])


@pytest.fixture
def partition(tmp_path: Path, clock: ManualClock) -> Iterator[Partition]:
    with LogManager([tmp_path / "logs"], clock=clock) as manager:
        manager.create_topic("t", 1, {"segment.ms": str(HOUR_MS)})
        made = PartitionTable(manager).get("t", 0)
        made.log.append(batch_of(clock.now_ms()), leader_epoch=0)
        yield made


def test_an_append_that_rolls_by_age_leaves_the_event_loop(
    partition: Partition, clock: ManualClock
) -> None:
    first_ms = clock.now_ms()

    assert not partition.leaves_loop(batch_of(first_ms + HOUR_MS))
    assert partition.leaves_loop(batch_of(first_ms + HOUR_MS + 1))


def test_old_records_stay_on_the_event_loop_whatever_the_clock_says(
    partition: Partition, clock: ManualClock
) -> None:
    first_ms = clock.now_ms()
    clock.advance_ms(10 * HOUR_MS)

    assert not partition.leaves_loop(batch_of(first_ms + 1))


def test_an_append_to_a_log_that_another_thread_holds_leaves_the_event_loop(
    partition: Partition, clock: ManualClock
) -> None:
    batch = batch_of(clock.now_ms())
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with partition.log.exclusively():
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    assert partition.log.is_busy
    assert partition.leaves_loop(batch)

    over.set()
    thread.join()
    partition.log.wait_until_free()
    assert not partition.leaves_loop(batch)


class CountingManager(LogManager):
    """Counts how often all topics are listed."""

    listed_count = 0

    def topics(self) -> list[TopicMetadata]:
        self.listed_count += 1
        return super().topics()


def test_an_id_that_nobody_has_is_looked_for_once_until_topics_change(tmp_path: Path) -> None:
    with CountingManager([tmp_path / "logs"]) as manager:
        gone = manager.create_topic("gone", 1).topic_id.value
        table = PartitionTable(manager)
        assert table.find_name(gone) == "gone"
        manager.delete_topic("gone")
        table.forget("gone")
        before = manager.listed_count

        assert [table.find_name(gone) for _ in range(3)] == [None] * 3
        assert manager.listed_count == before
        new = manager.create_topic("new", 1).topic_id.value
        assert (table.find_name(new), table.find_name(gone)) == ("new", None)
