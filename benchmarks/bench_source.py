"""Spark: how fast a log comes into DataFrames, and its latest values to Parquet.

Question: how does a full scan of `view=log` compare with `spark.read.parquet` of the same rows
(goal 0.7x), and `view=latest` written to Parquet with Spark's own ways over ready Parquet: a window
with `row_number`, and `max_by` (goal 10x each)?

Workload: 5 M records of 125 B (16 B keys, 500,000 of them, 101 B values) in one partition, in five
segments, uncompressed. The Parquet holds the same columns, written by Spark with its defaults from
the very log. All sides run in one warm session with two cores; files lie in the page cache. A scan
ends in Spark's `noop` sink, with the rows and bytes that went by counted; what a run wrote is
counted afterwards.

Command: python benchmarks/bench_source.py [--quick]
"""

import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyspark
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import (
    Case,
    Report,
    Side,
    Stopwatch,
    Work,
    WrongAnswerError,
    parse_options,
    work_directory,
)
from benchmarks.keyed_log import decimal_digits
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.spark.source.packing import Packer, take_columns
from siltstone.spark.source.register import register

FULL_RECORD_COUNT: Final = 5_000_000
KEY_SHARE: Final = 10
KEY_BYTES: Final = 16
VALUE_BYTES: Final = 101
ROWS_AT_A_TIME: Final = 100_000
TOPIC: Final = "bench"
CORES: Final = 2
SLOW_REPETITIONS: Final = 3  # of what takes Spark a quarter of a minute

SCAN_COSTS: Final = (
    "Ours checks every CRC, takes records apart in Python and sends Arrow through a socket; "
    "Spark reads its Parquet in the JVM, from half as many bytes."
)


def fill(path: Path, record_count: int) -> int:
    """Append the records, and return how many keys there are."""
    rng = np.random.default_rng(20_260_000)
    keys = rng.integers(0, record_count // KEY_SHARE, record_count)
    letters = rng.integers(ord("a"), ord("z"), 1 << 20, dtype=np.uint8)
    values = sliding_window_view(letters, VALUE_BYTES)
    with LogManager([path]) as manager:
        segment_bytes = str(max(1 << 20, record_count * 30))
        settings = {"cleanup.policy": "compact", "segment.bytes": segment_bytes}
        manager.create_topic(TOPIC, 1, settings)
        log = manager.get_log(TopicPartition(TOPIC, 0))
        for first in range(0, record_count, ROWS_AT_A_TIME):
            part = keys[first : first + ROWS_AT_A_TIME]
            rows = pa.record_batch(
                {
                    "key": make_binary(decimal_digits(part, KEY_BYTES)),
                    "value": make_binary(values[(part * 7919 + first) % len(values)]),
                }
            )
            packer = Packer(1_700_000_000_000 + first)
            columns = take_columns(rows, with_headers=False)
            for _, data in packer.iter_batches(columns, np.arange(rows.num_rows)):
                log.append(data)
    return len(np.unique(keys))


def make_binary(rows: NDArray[np.uint8]) -> pa.Array:
    """Make a column of the rows of a matrix."""
    count, width = rows.shape
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def scan(frame: Callable[[], DataFrame]) -> Work:
    """Time a scan of all columns."""
    seen = Observation()
    with Stopwatch() as watch:
        counted = frame().observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.sum(F.length("key") + F.length("value")).alias("bytes"),
        )
        counted.write.format("noop").mode("overwrite").save()
    return Work(watch.seconds, seen.get["bytes"], seen.get["rows"])


def export(frame: Callable[[], DataFrame], target: Path) -> Work:
    """Time writing a DataFrame to Parquet."""
    shutil.rmtree(target, ignore_errors=True)
    with Stopwatch() as watch:
        frame().write.parquet(str(target))
    written = SparkSession.getActiveSession().read.parquet(str(target))  # type: ignore[union-attr]
    count, size, offsets = written.agg(
        F.count(F.lit(1)), F.sum(F.length("key") + F.length("value")), F.sum("offset")
    ).collect()[0]
    EXPECTED_OFFSETS.add(offsets)
    if len(EXPECTED_OFFSETS) != 1:
        raise WrongAnswerError(f"the sides disagree about the latest records: {EXPECTED_OFFSETS}")
    return Work(watch.seconds, size, count)


EXPECTED_OFFSETS: Final[set[int]] = set()


def latest_by_window(frame: DataFrame) -> DataFrame:
    """Let Spark find the latest rows with a window."""
    order = Window.partitionBy("key").orderBy(F.desc("offset"))
    ranked = frame.withColumn("rank", F.row_number().over(order))
    return ranked.where("rank = 1 and value is not null").drop("rank")


def latest_by_max(frame: DataFrame) -> DataFrame:
    """Let Spark find the latest rows with `max_by`."""
    row = F.struct(*[name for name in frame.columns if name != "key"])
    grouped = frame.groupBy("key").agg(F.max_by(row, "offset").alias("row"))
    return grouped.where("row.value is not null").select("key", "row.*")


def main() -> None:
    options = parse_options(__doc__)
    record_count = options.scaled(FULL_RECORD_COUNT, minimum=20_000)
    row_bytes = KEY_BYTES + VALUE_BYTES
    with work_directory(options) as directory:
        logs, parquet, target = directory / "logs", directory / "parquet", directory / "latest"
        started = time.perf_counter()
        key_count = fill(logs, record_count)
        print(f"filled in {time.perf_counter() - started:.0f} s", flush=True)
        spark = (
            SparkSession.builder.master(f"local[{CORES}]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "4g")
            .config("spark.sql.shuffle.partitions", 2 * CORES)
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)

        def ours(view: str) -> DataFrame:
            reader = spark.read.format("siltstone").option("subscribe", TOPIC)
            return reader.option("view", view).load(str(logs))

        def theirs() -> DataFrame:
            return spark.read.parquet(str(parquet))

        def latest_of(find: Callable[[DataFrame], DataFrame]) -> DataFrame:
            return find(theirs())

        ours("log").write.parquet(str(parquet))
        report = Report(
            "source",
            __doc__ or "",
            options,
            directory,
            {"record_count": record_count, "key_count": key_count, "cores": CORES},
            versions={"pyspark": pyspark.__version__, "pyarrow": pa.__version__},
        )
        report.maybe_measure(
            Case(
                name="scan of the log",
                ours=Side("view=log", partial(scan, partial(ours, "log"))),
                reference=Side("spark.read.parquet", partial(scan, theirs)),
                goal_ratio=0.7,
                size_bytes=record_count * row_bytes,
                record_count=record_count,
                costs=SCAN_COSTS,
            )
        )
        report.write()  # After each row: whoever stops the rest keeps what there is.
        rivals = {"window": latest_by_window, "max_by": latest_by_max}
        for name, latest in rivals.items():
            report.maybe_measure(
                Case(
                    name=f"latest to Parquet, against {name}",
                    ours=Side("view=latest", partial(export, partial(ours, "latest"), target)),
                    reference=Side(name, partial(export, partial(latest_of, latest), target)),
                    goal_ratio=10,
                    size_bytes=key_count * row_bytes,
                    record_count=key_count,
                ),
                max_repetitions=SLOW_REPETITIONS,
            )
            report.write()
        spark.stop()


if __name__ == "__main__":
    main()
