"""Cleaning: a pass over a log, by us on Spark and by Kafka's own cleaner.

Question: how much faster is a pass than Kafka's, on the same bytes? What is left of that against
`cp`, and against Spark's window function? How does it grow with size and with cores, how much
memory does a worker take, and what does the smallest pass cost?

Workload: 5 M records of 125 B over 500 k keys (90 % are superseded), in 16 kB batches, plain and
compressed; 1 M of 1 kB over 100 k keys; 5 M of which 10 % are superseded; 22 M over 20 M keys;
eight partitions. Segments are of 512 MB, all in the page cache. On both sides a pass is everything
from the plan to files that are in place and durable. Kafka: its `Cleaner`, one thread as by
default, in a JVM that stays (both compilers, 3 GiB), a map that holds all keys, and the seconds of
its own log line. Ours: `local[2]` and `local[1]`, warm, with the commit; or the kernels alone, in
one process. Before a row against Kafka both sides warm up with passes over a smaller log of the
same shape, Kafka with three the first time. Spark's window function reads ready-made Parquet and
writes Parquet, in a Spark of its own (both compilers, 4 GiB, two cores). Long rows have fewer
rounds: one for 20 M keys, eight partitions and the window function.

Command: python benchmarks/bench_clean.py [--quick] [--rows TEXT]
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.clean_passes import Engines, Passes, compact_from_the_shell
from benchmarks.clean_rivals import KafkaCleaner, WindowFunction, copy_files, write_lines
from benchmarks.harness import (
    Case,
    Options,
    Report,
    Side,
    Work,
    parse_options,
    touch_memory,
    work_directory,
)
from benchmarks.kafka_rival import find_kafka
from benchmarks.keyed_log import KeyedLogs, Workload
from benchmarks.workload import KILOBYTE_RECORDS, SMALL_RECORDS, BatchShape
from siltstone.records.compression import Codec

MILLION: Final = 1_000_000
PARTITION_COUNT: Final = 8
SMALL_RECORD_COUNT: Final = 2000
GROWTH: Final = (4, 16)
WARM_UP_RECORDS: Final = 500_000
KAFKA_WARM_UP_PASSES: Final = 3  # until its JVM has compiled what is hot

COSTS: Final = "Every CRC is checked, and every key is hashed with SipHash-128."
FLOOR_COSTS: Final = "A job, two walks, and the fsync of each new file and of the directory."


class CleanBench:
    """The parts of the benchmark; each makes its logs, and deletes them."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._engines = Engines()
        self._warm_up_logs: dict[BatchShape, KeyedLogs] = {}
        self._known_to_kafka: set[BatchShape] = set()  # what its JVM has compiled for
        rival = find_kafka()
        self._kafka = None if rival is None else KafkaCleaner(rival.harness)
        self.report = Report(
            "clean",
            __doc__ or "",
            options,
            directory,
            {},
            versions={} if rival is None else rival.versions,
        )

    def run(self) -> None:
        """Run the parts that are wanted."""
        parts: list[tuple[str, Callable[[str], None]]] = [
            ("125 B records", self.small_records),
            ("1 kB records", self.large_records),
            ("lz4", partial(self.compressed, codec=Codec.LZ4)),
            ("zstd", partial(self.compressed, codec=Codec.ZSTD)),
            ("10 % superseded", partial(self.many_keys, record_count=5 * MILLION, rounds=2)),
            ("20 M keys", partial(self.many_keys, record_count=22 * MILLION, rounds=1)),
            ("8 partitions", self.many_partitions),
            ("growth", self.growth),
            ("10 M keys", self.memory),
            ("small log", self.small_log),
        ]
        try:
            for name, part in parts:
                if self._options.wants_part(name):
                    part(name)
        finally:
            self._engines.close()
            if self._kafka is not None:
                self._kafka.close()

    def small_records(self, name: str) -> None:
        """5 M x 125 B: the table's first line, and every engine on it."""
        with self._logs(name, SMALL_RECORDS, 5 * MILLION, 500_000) as logs:
            self._against_kafka(name, logs, goal=15, rounds=5)
            local = Side("kernels alone", partial(Passes(logs).in_process, commits=False))
            self.report.maybe_measure(
                self._case(
                    f"{name}, kernels alone", logs, local, goal_mb_per_second=625 / 0.4, costs=COSTS
                )
            )
            self._against_window(f"{name}, latest value of each key", logs)

    def large_records(self, name: str) -> None:
        """1 M x 1 kB: where `cp` is the limit."""
        with self._logs(name, KILOBYTE_RECORDS, MILLION, 100_000) as logs:
            self._against_kafka(name, logs, goal=5)
            target = self._directory / "cp"
            unsynced = partial(Passes(logs).on_spark, self._engines, commits=False)
            self.report.maybe_measure(
                self._case(
                    f"{name}, neither durable",
                    logs,
                    Side("Spark, 2 cores", unsynced),
                    reference=Side("cp", partial(copy_files, logs, target, durably=False)),
                    goal_ratio=1,
                    costs=COSTS,
                ),
                max_repetitions=3,
            )
            self.report.maybe_measure(
                self._case(
                    f"{name}, both durable",
                    logs,
                    self._on_spark(logs),
                    reference=Side("cp, sync", partial(copy_files, logs, target, durably=True)),
                    goal_ratio=1,
                    costs=COSTS,
                ),
                max_repetitions=2,
            )

    def compressed(self, name: str, codec: Codec) -> None:
        """5 M x 125 B in compressed batches."""
        shape = replace(SMALL_RECORDS, codec=codec)
        with self._logs(name, shape, 5 * MILLION, 500_000) as logs:
            self._against_kafka(name, logs, goal=5, rounds=2)

    def many_keys(self, name: str, record_count: int, rounds: int) -> None:
        """Nine of ten records stay."""
        key_count = record_count * 10 // 11
        with self._logs(name, SMALL_RECORDS, record_count, key_count) as logs:
            self._against_kafka(name, logs, goal=10, rounds=rounds)

    def many_partitions(self, name: str) -> None:
        """Eight partitions in one job, on one core and on two."""
        shape, count, keys = SMALL_RECORDS, 5 * MILLION // 2, 250_000
        with self._logs(name, shape, count, keys, PARTITION_COUNT) as logs:
            self._against_kafka(name, logs, goal=15, rounds=1)
            two, one = self._on_spark(logs), self._on_spark(logs, 1)
            self.report.maybe_measure(
                self._case(f"{name}, cores", logs, two, reference=one, goal_ratio=1.8, costs=COSTS),
                max_repetitions=2,  # there is one context at a time: each turn starts another
            )

    def growth(self, name: str) -> None:
        """Hold a log of many times the size, and keys, against the small one, so many times."""
        base = 5 * MILLION // 8
        with self._logs(f"{name}, 1x", SMALL_RECORDS, base, base // 10) as small:
            for factor in GROWTH:
                row = f"{name}, {factor}x"
                if not self._options.wants_row(row):
                    continue
                with self._logs(row, SMALL_RECORDS, factor * base, factor * base // 10) as large:
                    self._measure_growth(row, factor, small, large)

    def _measure_growth(self, name: str, factor: int, small: KeyedLogs, large: KeyedLogs) -> None:
        def run_small() -> Work:
            work = Passes(small).in_process()
            # Not by the factor itself: a log ends with a whole batch.
            seconds = work.seconds * large.total_bytes / small.total_bytes
            return Work(seconds, large.total_bytes, large.total_records)

        self.report.measure(
            self._case(
                name,
                large,
                Side("kernels alone", Passes(large).in_process),
                reference=Side(f"{factor} times the small one", run_small),
                goal_ratio=1 / 1.05,
                costs="A larger table of keys fits less of the caches.",
            ),
            max_repetitions=2,
        )

    def memory(self, name: str) -> None:
        """Find out what a worker needs for 10 M keys in 1.25 GB."""
        count = 10 * MILLION
        with self._logs(name, SMALL_RECORDS, count + count // 20, count) as logs:
            self.report.maybe_measure(
                self._case(
                    f"{name}, memory", logs, self._on_spark(logs), limits={"worker MiB": 1024}
                ),
                max_repetitions=1,
            )

    def small_log(self, name: str) -> None:
        """Measure the fixed cost of a pass, warm and from the shell."""
        count = max(SMALL_RECORD_COUNT, SMALL_RECORDS.record_count)
        keys = count // 10
        path = self._directory / "small"
        logs = KeyedLogs(path, Workload(shape=SMALL_RECORDS, record_count=count, key_count=keys))
        self.report.shape[name] = logs.workload.describe()
        self._against_kafka(f"{name}, warm", logs, costs=FLOOR_COSTS, rounds=5)
        local = Side("kernels alone", Passes(logs).in_process)
        self.report.maybe_measure(
            self._case(f"{name}, kernels alone", logs, local, costs=FLOOR_COSTS)
        )
        self._engines.close()
        self.report.maybe_measure(
            self._case(
                f"{name}, silt compact",
                logs,
                Side("silt compact", partial(compact_from_the_shell, logs, {})),
                limits={"seconds": 6},
                costs="Python, a JVM, Spark and a worker all start for it.",
            ),
            max_repetitions=2,
        )
        logs.delete()

    def _on_spark(self, logs: KeyedLogs, core_count: int = 2) -> Side:
        """Give our side, which warms up with a pass over a smaller log."""

        def run(logs: KeyedLogs) -> Work:
            return Passes(logs).on_spark(self._engines, core_count)

        return Side(
            f"Spark, {core_count} core{'s' if core_count > 1 else ''}",
            partial(run, logs),
            lambda: run(self._smaller(logs)),
        )

    def _on_kafka(self, kafka: KafkaCleaner, logs: KeyedLogs) -> Side:
        def warm_up() -> None:
            shape = logs.workload.shape
            for _ in range(0 if shape in self._known_to_kafka else KAFKA_WARM_UP_PASSES):
                kafka.run(self._smaller(logs))
            self._known_to_kafka.add(shape)

        return Side("Kafka", partial(kafka.run, logs), warm_up)

    def _smaller(self, logs: KeyedLogs) -> KeyedLogs:
        """Return a log of the same shape to warm up with, made once."""
        shape = logs.workload.shape
        if shape not in self._warm_up_logs:
            count = min(WARM_UP_RECORDS, logs.record_count)
            workload = Workload(shape=shape, record_count=count, key_count=max(1, count // 10))
            path = self._directory / f"warm-up-{len(self._warm_up_logs)}"
            self._warm_up_logs[shape] = KeyedLogs(path, workload)
        return self._warm_up_logs[shape]

    def _against_kafka(
        self,
        name: str,
        logs: KeyedLogs,
        *,
        goal: float | None = None,
        rounds: int = 3,
        costs: str = COSTS,
    ) -> None:
        reference = None if self._kafka is None else self._on_kafka(self._kafka, logs)
        self.report.maybe_measure(
            self._case(
                name, logs, self._on_spark(logs), reference=reference, goal_ratio=goal, costs=costs
            ),
            max_repetitions=rounds,
        )

    def _against_window(self, name: str, logs: KeyedLogs) -> None:
        if not self._options.wants_row(name):
            return
        lines = self._directory / "records"
        write_lines(logs, lines)
        window = WindowFunction(lines, logs)
        try:
            self.report.measure(
                self._case(
                    name,
                    logs,
                    self._on_spark(logs),
                    reference=Side("window function", window.run),
                    goal_ratio=10,
                    costs=COSTS,
                ),
                max_repetitions=1,
            )
        finally:
            window.close()
        lines.unlink()

    def _case(
        self,
        name: str,
        logs: KeyedLogs,
        ours: Side,
        *,
        reference: Side | None = None,
        goal_ratio: float | None = None,
        goal_mb_per_second: float | None = None,
        limits: dict[str, float] | None = None,
        costs: str = "",
    ) -> Case:
        return Case(
            name=name,
            ours=ours,
            reference=reference,
            goal_ratio=goal_ratio,
            goal_mb_per_second=goal_mb_per_second,
            size_bytes=logs.total_bytes,
            record_count=logs.total_records,
            touch_bytes=logs.total_bytes // 4,
            operation_name="pass",
            costs=costs,
            limits=limits or {},
        )

    @contextmanager
    def _logs(
        self,
        name: str,
        shape: BatchShape,
        record_count: int,
        key_count: int,
        partition_count: int = 1,
    ) -> Iterator[KeyedLogs]:
        """Make logs as large as this run shall have them; they are gone afterwards."""
        workload = Workload(
            shape=shape,
            record_count=self._options.scaled(record_count, minimum=shape.record_count),
            key_count=self._options.scaled(key_count),
            partition_count=partition_count,
        )
        self.report.shape[name] = workload.describe()
        touch_memory(3 * workload.record_count * (shape.key_bytes + shape.value_bytes))
        logs = KeyedLogs(self._directory / name.replace(" ", "-").replace("%", ""), workload)
        try:
            yield logs
        finally:
            logs.delete()


def main() -> None:
    options = parse_options(__doc__)
    with work_directory(options) as directory:
        bench = CleanBench(options, directory)
        bench.run()
        bench.report.write()


if __name__ == "__main__":
    main()
