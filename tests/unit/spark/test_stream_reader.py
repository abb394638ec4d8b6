"""Where the batches of a stream end, without Spark."""

import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from siltstone.spark.source.options import parse_source_options
from siltstone.spark.source.stream_reader import StreamReader


def append(path: Path, counts: dict[int, int]) -> None:
    with LogManager([path]) as manager:
        if not manager.topics():
            manager.create_topic("orders", 2)
        for number, count in counts.items():
            records = [Record(i, 0, b"k", b"v") for i in range(count)]
            manager.get_log(TopicPartition("orders", number)).append(build_batch(records))


def make_reader(path: Path, **options: Any) -> StreamReader:
    given = {"path": str(path), "subscribe": "orders", "startingOffsets": "earliest"}
    given |= {name: str(value) for name, value in options.items()}
    return StreamReader(parse_source_options(given, is_streaming=True))


def test_a_batch_has_all_there_is_or_its_share_of_a_limit(tmp_path: Path) -> None:
    append(tmp_path, {0: 30, 1: 10})
    unlimited = make_reader(tmp_path)
    limited = make_reader(tmp_path, maxOffsetsPerTrigger=20)
    start = limited.initialOffset()

    assert start == {"orders": {"0": 0, "1": 0}}
    assert isinstance(unlimited.getDefaultReadLimit(), ReadAllAvailable)
    assert unlimited.latestOffset(start, ReadAllAvailable()) == {"orders": {"0": 30, "1": 10}}
    limit = limited.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert limited.latestOffset(start, limit) == {"orders": {"0": 15, "1": 5}}


def test_a_batch_waits_for_enough_records_but_not_for_ever(tmp_path: Path) -> None:
    append(tmp_path, {0: 3, 1: 2})
    patient = make_reader(tmp_path, minOffsetsPerTrigger=10)
    hasty = make_reader(tmp_path, minOffsetsPerTrigger=10, maxTriggerDelay="1ms")
    start = patient.initialOffset()
    limit = patient.getDefaultReadLimit()
    assert isinstance(limit, ReadMinRows)

    assert patient.latestOffset(start, limit) == start
    hasty.initialOffset()
    time.sleep(0.01)
    assert hasty.latestOffset(start, limit) == {"orders": {"0": 3, "1": 2}}

    append(tmp_path, {0: 5})
    assert patient.latestOffset(start, limit) == {"orders": {"0": 8, "1": 2}}


def test_a_partition_that_is_added_begins_with_its_first_record(tmp_path: Path) -> None:
    append(tmp_path, {0: 3, 1: 2})
    reader = make_reader(tmp_path)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with LogManager([tmp_path]) as manager:
        manager.add_partitions("orders", 3)
    append(tmp_path, {2: 4})

    end = reader.latestOffset(start, ReadAllAvailable())

    assert end == {"orders": {"0": 3, "1": 2, "2": 4}}
    (part,) = reader.partitions(start, end)
    assert [batch["offset"].to_pylist() for batch in reader.read(part)] == [[0, 1, 2, 3]]
