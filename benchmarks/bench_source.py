"""Spark: how fast a log comes into DataFrames, and its latest values to Parquet.

Question: how does a full scan of `view=log` compare with `spark.read.parquet` of the same rows
(goal 0.7x), and `view=latest` written to Parquet with Spark's own ways over ready Parquet: a window
with `row_number`, and `max_by` (goal 10x each)? And with a Kafka client that consumes the topic
into a dict?

Workload: 5 M records of 125 B (16 B keys, 500,000 of them, 101 B values) in one partition, in five
segments, uncompressed. The Parquet holds the same columns, written by Spark with its defaults from
the very log. All of Spark's sides run in one warm session with two cores; files lie in the page
cache. A scan ends in Spark's `noop` sink, with the rows and bytes that went by counted; what a run
wrote is counted afterwards. The client is confluent-kafka, batches of 10,000 records from a `silt
serve` of the same directory that is up already, and pyarrow writes its dict. Before `latest` is
measured, the sides in the JVM, ours and Spark's own, warm up for as many seconds each, for what its
compilers have not done yet a run of one second feels, and one of twelve does not. Rivals warm up
with a fifth of the records, and have two rounds, the client one.

Command: python benchmarks/bench_source.py [--quick] [--rows TEXT]
"""

import importlib.metadata
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyspark
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import (
    Case,
    Options,
    Report,
    Side,
    Stopwatch,
    Work,
    WrongAnswerError,
    parse_options,
    work_directory,
)
from benchmarks.keyed_log import decimal_digits
from benchmarks.source_rivals import export_by_client, latest_by_max, latest_by_window
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.spark.source.packing import Packer, take_columns
from siltstone.spark.source.register import register
from tests.support.serving import ServedBroker

FULL_RECORD_COUNT: Final = 5_000_000
KEY_SHARE: Final = 10
KEY_BYTES: Final = 16
VALUE_BYTES: Final = 101
ROWS_AT_A_TIME: Final = 100_000
TOPIC: Final = "bench"
CORES: Final = 2
SLOW_ROUNDS: Final = 2  # of what takes a rival a quarter of a minute
SMALL_SHARE: Final = 5  # of which one is enough to warm up with
WARM_UP_SECONDS: Final = 8  # of each side that runs in the JVM

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


def scan(load: Callable[[], DataFrame]) -> Work:
    """Time a scan of all columns."""
    seen = Observation()
    with Stopwatch() as watch:
        counted = load().observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.sum(F.length("key") + F.length("value")).alias("bytes"),
        )
        counted.write.format("noop").mode("overwrite").save()
    return Work(watch.seconds, seen.get["bytes"], seen.get["rows"])


def warm_up(run: Callable[[], object]) -> None:
    """Run again and again, as long as each side may that is compiled while it runs."""
    started = time.perf_counter()
    while time.perf_counter() - started < WARM_UP_SECONDS:
        run()


def start_spark() -> SparkSession:
    """Start a session as it comes, with two cores."""
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.python.unix.domain.socket.enabled", "true")  # As docs/spark.md recommends.
        .config("spark.sql.shuffle.partitions", 2 * CORES)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


class SourceBench:
    """A log, the same as Parquet, and the rows that are measured over them."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._record_count = options.scaled(FULL_RECORD_COUNT, minimum=20_000)
        self._logs, self._parquet = directory / "logs", directory / "parquet"
        self._small_parquet, self._target = directory / "small", directory / "latest"
        self._offset_sums: set[int] = set()  # of what the sides have written
        started = time.perf_counter()
        self._key_count = fill(self._logs, self._record_count)
        print(f"filled in {time.perf_counter() - started:.0f} s", flush=True)
        self._spark = start_spark()
        self._ours("log").write.parquet(str(self._parquet))
        small = self._read_parquet().where(f"offset < {self._record_count // SMALL_SHARE}")
        small.write.parquet(str(self._small_parquet))
        self.report = Report(
            "source",
            __doc__ or "",
            options,
            directory,
            {"record_count": self._record_count, "key_count": self._key_count, "cores": CORES},
            versions={
                "pyspark": pyspark.__version__,
                "pyarrow": pa.__version__,
                "confluent-kafka": importlib.metadata.version("confluent-kafka"),
            },
        )

    def run(self) -> None:
        """Measure the rows that are wanted."""
        try:
            self._measure_scan()
            self._measure_latest("window", self._over_parquet("window", latest_by_window))
            self._measure_latest("max_by", self._over_parquet("max_by", latest_by_max))
            with self._client() as client:
                self._measure_latest("a client", client, goal_ratio=None, rounds=1)
        finally:
            self._spark.stop()

    def _measure_scan(self) -> None:
        self.report.maybe_measure(
            Case(
                name="scan of the log",
                ours=Side("view=log", partial(scan, partial(self._ours, "log"))),
                reference=Side("spark.read.parquet", partial(scan, self._read_parquet)),
                goal_ratio=0.7,
                size_bytes=self._record_count * (KEY_BYTES + VALUE_BYTES),
                record_count=self._record_count,
                costs=SCAN_COSTS,
            )
        )

    def _measure_latest(
        self, name: str, rival: Side, *, goal_ratio: float | None = 10, rounds: int = SLOW_ROUNDS
    ) -> None:
        def write_latest() -> None:
            self._ours("latest").write.parquet(str(self._target))

        self.report.maybe_measure(
            Case(
                name=f"latest to Parquet, against {name}",
                ours=Side(
                    "view=latest",
                    partial(self._export, write_latest),
                    partial(warm_up, partial(self._export, write_latest)),
                ),
                reference=rival,
                goal_ratio=goal_ratio,
                size_bytes=self._key_count * (KEY_BYTES + VALUE_BYTES),
                record_count=self._key_count,
            ),
            max_repetitions=rounds,
        )

    def _over_parquet(self, name: str, find_latest: Callable[[DataFrame], DataFrame]) -> Side:
        def write(source: Path) -> None:
            found = find_latest(self._spark.read.parquet(str(source)))
            found.write.mode("overwrite").parquet(str(self._target))

        return Side(
            name,
            partial(self._export, partial(write, self._parquet)),
            partial(warm_up, partial(write, self._small_parquet)),
        )

    @contextmanager
    def _client(self) -> Iterator[Side]:
        """Serve the log while a client reads it."""
        with ServedBroker(self._logs, {"log.cleaner.enable": "false"}) as broker:
            broker.start()

            def write(record_count: int) -> None:
                shutil.rmtree(self._target, ignore_errors=True)
                export_by_client(broker.bootstrap, TOPIC, record_count, self._target)

            yield Side(
                "client",
                partial(self._export, partial(write, self._record_count)),
                partial(write, self._record_count // SMALL_SHARE),
            )

    def _ours(self, view: str) -> DataFrame:
        reader = self._spark.read.format("siltstone").option("subscribe", TOPIC)
        return reader.option("view", view).load(str(self._logs))

    def _read_parquet(self) -> DataFrame:
        return self._spark.read.parquet(str(self._parquet))

    def _export(self, write: Callable[[], None]) -> Work:
        """Time writing the latest records, and count what was written."""
        shutil.rmtree(self._target, ignore_errors=True)
        with Stopwatch() as watch:
            write()
        count, size, offsets = (
            self._spark.read.parquet(str(self._target))
            .agg(F.count(F.lit(1)), F.sum(F.length("key") + F.length("value")), F.sum("offset"))
            .collect()[0]
        )
        self._offset_sums.add(offsets)
        if len(self._offset_sums) != 1:
            raise WrongAnswerError(f"the sides disagree about the records: {self._offset_sums}")
        return Work(watch.seconds, size, count)


def main() -> None:
    options = parse_options(__doc__)
    with work_directory(options) as directory:
        bench = SourceBench(options, directory)
        bench.run()
        bench.report.write()


if __name__ == "__main__":
    main()
