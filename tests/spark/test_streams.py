"""Streaming source and sink: partitions that come later, and queries that are killed.

Those run in a process of their own, JVM and all, which is killed at random moments, and started
again: nothing is lost, nothing doubled. Several queries run in it, so that each kill meets them in
different steps of their batches.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from tests.spark.source_logs import fill_topic, plain_log, read_records
from tests.support.processes import iter_children, wait_for_ends

_RUN = Path(__file__).with_name("copy_stream.py")
_QUERY_COUNT = 2
_KILL_COUNT = 2


def start(directories: Sequence[Path], errors_path: Path) -> subprocess.Popen[bytes]:
    """Start the queries in a process group of its own."""
    with errors_path.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, str(_RUN), *map(str, directories)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it has started; workers see that only after a moment."""
    children = list(iter_children(process.pid))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for_ends(children)


def count_batches(directory: Path) -> int:
    """Count the batches that a query has noted in its checkpoint."""
    batches = directory / "checkpoint" / "offsets"
    return sum(p.name.isdigit() for p in batches.iterdir()) if batches.is_dir() else 0


@pytest.mark.slow
def test_killed_queries_go_on_where_they_were(tmp_path: Path) -> None:
    rng = random.Random(20_260_000)
    directories = [tmp_path / str(number) for number in range(_QUERY_COUNT)]
    for number, directory in enumerate(directories):
        fill_topic(directory / "logs", "orders", seed=number, batch_count=60)
        with LogManager([directory / "logs"]) as manager:
            manager.create_topic("copy", 3)
    for attempt in range(_KILL_COUNT + 1):
        before = sum(map(count_batches, directories))
        errors_path = tmp_path / f"errors-{attempt}"
        process = start(directories, errors_path)
        try:
            if attempt == _KILL_COUNT:
                process.wait(timeout=600)
            else:
                while process.poll() is None and sum(map(count_batches, directories)) < before + 4:
                    time.sleep(0.02)
                # Anywhere in a batch: tasks, commit, checkpoint.
                time.sleep(rng.random() * 0.5)
        finally:
            kill(process)
        expected = 0 if attempt == _KILL_COUNT else -signal.SIGKILL
        assert process.returncode == expected, errors_path.read_text()[-3000:]
        for directory in directories:
            seed, count = 10 + attempt, 0 if attempt == _KILL_COUNT else 10
            fill_topic(directory / "logs", "orders", seed=seed, batch_count=count)

    for directory in directories:
        check_copy(directory)


def check_copy(directory: Path) -> None:
    """Check that each record was copied once, and that the query knows that it has all."""
    path = directory / "logs"
    copied = Counter((key, value) for key, value, _, _ in plain_log(path, "copy"))
    assert copied == Counter((key, value) for key, value, _, _ in plain_log(path, "orders"))
    last = max(
        (p for p in (directory / "checkpoint" / "offsets").iterdir() if p.name.isdigit()),
        key=lambda p: int(p.name),
    )
    ends = {
        str(number): LogReader([path]).get_log(TopicPartition("orders", number)).log_end_offset
        for number in range(2)
    }
    assert json.loads(last.read_text().splitlines()[-1]) == {"orders": ends}


def run_to_the_end(frame: DataFrame, directory: Path, name: str) -> None:
    """Copy what there is of a stream to Parquet, by a query with a checkpoint of that name."""
    writer = frame.writeStream.format("parquet").option("path", str(directory / name))
    writer = writer.option("checkpointLocation", str(directory / f"{name}-checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_partition_that_is_added_is_read_from_its_first_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "logs"
    fill_topic(path, "orders", seed=1, partition_count=1)
    fill_topic(path, "orders-late", seed=2, partition_count=1, batch_count=0)
    reader = spark.readStream.format("siltstone").option("subscribePattern", "orders.*")
    frame = reader.option("startingOffsets", "earliest").load(str(path))
    columns = frame.select("topic", "partition", "offset")
    run_to_the_end(columns, tmp_path, "copy")

    with LogManager([path]) as manager:
        manager.add_partitions("orders", 3)
        manager.create_topic("orders-new", 2)
    fill_topic(path, "orders", seed=3, partition_count=3)
    fill_topic(path, "orders-late", seed=4, partition_count=1)
    fill_topic(path, "orders-new", seed=5)
    run_to_the_end(columns, tmp_path, "copy")

    found = sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "copy")).collect())
    assert found == sorted(
        (topic, partition, offset)
        for topic in ("orders", "orders-late", "orders-new")
        for _, _, partition, offset in plain_log(path, topic)
    )
    assert {(topic, partition) for topic, partition, _ in found} >= {("orders", 2)}


def test_changes_in_a_stream_are_the_last_records_of_each_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "logs"
    expected = []
    ends = {0: 0, 1: 0}
    for seed in (1, 2):
        fill_topic(path, "orders", seed=seed, with_transactions=True)
        for number, records in read_records(path, "orders", is_committed_only=True).items():
            latest = {r.key: r for r in records if r.offset >= ends[number]}
            expected += [(number, r.offset) for r in latest.values()]
            ends[number] = records[-1].offset + 1
        reader = spark.readStream.format("siltstone").options(subscribe="orders", view="changes")
        frame = reader.option("startingOffsets", "earliest").load(str(path))
        run_to_the_end(frame.select("partition", "offset"), tmp_path, "copy")

    found = spark.read.parquet(str(tmp_path / "copy")).collect()
    assert sorted(tuple(row) for row in found) == sorted(expected)
