"""What the owner of logs does to what says up to where they are clean (facts 8.B15 to 8.B18)."""

from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.cleaner_offsets import read_cleaner_offsets
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.make_log import HastyDisk

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("other", 0)


def open_manager(path: Path) -> LogManager:
    return LogManager([path], fs=HastyDisk(), clock=ManualClock(1_000))


def append(manager: LogManager, partition: TopicPartition, count: int) -> None:
    """Append one batch of so many records, and begin a new segment."""
    records = [Record(n, 1_000, b"k", b"v") for n in range(count)]
    log = manager.get_log(partition)
    log.append(build_batch(records))
    log.roll()
    log.update_high_watermark(log.log_end_offset)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory with two topics of 30 records in three segments each, clean up to 20."""
    path = tmp_path / "logs"
    with open_manager(path) as manager:
        for partition in (ORDERS, OTHER):
            manager.create_topic(partition.topic, 1, {"cleanup.policy": "compact"})
            for _ in range(3):
                append(manager, partition, 10)
    write(path, {ORDERS: 20, OTHER: 20})
    return path


def write(path: Path, offsets: dict[TopicPartition, int]) -> None:
    lines = [f"{p.topic} {p.partition} {offset}\n" for p, offset in offsets.items()]
    text = f"0\n{len(lines)}\n{''.join(lines)}"
    (path / filenames.CLEANER_OFFSETS).write_text(text)


def read(path: Path) -> dict[TopicPartition, int]:
    return read_cleaner_offsets(HastyDisk(), path)


def test_a_topic_that_is_deleted_takes_its_entry_along(path: Path) -> None:
    with open_manager(path) as manager:
        manager.delete_topic("orders")

        assert read(path) == {OTHER: 20}

        manager.create_topic("orders", 1)
        append(manager, ORDERS, 30)
    assert read(path) == {OTHER: 20}


def test_an_entry_of_a_partition_that_is_gone_is_dropped_at_the_next_open(path: Path) -> None:
    write(path, {ORDERS: 20, OTHER: 20, TopicPartition("orders", 7): 5, TopicPartition("x", 0): 5})

    open_manager(path).close()

    assert read(path) == {ORDERS: 20, OTHER: 20}


@pytest.mark.parametrize(("offset", "expected"), [(30, 30), (31, 0), (-1, 0)])
def test_an_entry_outside_of_its_log_is_set_to_the_log_start_at_the_next_open(
    path: Path, offset: int, expected: int
) -> None:
    write(path, {ORDERS: offset, OTHER: 20})

    open_manager(path).close()

    assert read(path) == {ORDERS: expected, OTHER: 20}


@pytest.mark.parametrize(("offset", "expected"), [(25, 20), (20, 20), (15, 10), (0, 0), (30, 20)])
def test_a_truncation_lowers_the_entry_to_the_segment_that_is_cut(
    path: Path, offset: int, expected: int
) -> None:
    with open_manager(path) as manager:
        log = manager.get_log(ORDERS)
        assert log.truncate_to(offset) == (offset < 30)
        assert log.log_end_offset == offset
        append(manager, ORDERS, 40)

    assert read(path) == {ORDERS: expected, OTHER: 20}


def test_a_truncation_makes_no_entry_where_there_was_none(path: Path) -> None:
    write(path, {OTHER: 20})

    with open_manager(path) as manager:
        manager.get_log(ORDERS).truncate_to(5)

    assert read(path) == {OTHER: 20}


@pytest.mark.parametrize(("offset", "expected"), [(50, 20), (15, 10), (0, 0)])
def test_a_log_that_starts_anew_is_clean_no_further_than_before_and_than_it_reaches(
    path: Path, offset: int, expected: int
) -> None:
    with open_manager(path) as manager:
        manager.get_log(ORDERS).truncate_fully_and_start_at(offset)

        assert read(path) == {ORDERS: expected, OTHER: 20}


def test_a_file_that_makes_no_sense_is_left_as_it_is_and_said_to_stop_cleaning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path / filenames.CLEANER_OFFSETS).write_text("0\n5\n")

    with open_manager(path) as manager:
        manager.delete_topic("orders")
        assert manager.get_log(OTHER).truncate_to(15)
        assert [metadata.topic for metadata in manager.topics()] == ["other"]

    assert (path / filenames.CLEANER_OFFSETS).read_text() == "0\n5\n"
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert caplog.records[0].getMessage() == (
        f"{path / filenames.CLEANER_OFFSETS}: says 5 entries, found 0; without the file each log "
        f"is cleaned anew from its start; no log in {path} can be cleaned"
    )
