"""Load: how long a broker with many partitions takes until it can serve them.

Question: how long does LogManager take over a directory with 1,000 partitions of one small segment
each, after a clean and after an unclean stop, against Kafka's own LogManager on the same files? The
goal is to be no slower.

Workload: 100 topics of 10 partitions, each with one segment of 10 batches of one record. Clean: as
both leave it when they stop. Unclean: no clean-shutdown file and no recovery points, so that every
segment is walked and its indexes are built anew. Each run opens a fresh copy in a fresh process, so
the files are in the page cache, for both alike. Seconds are those of the log manager alone, without
the start of Python (imports) or of the JVM, but with whatever either loads on first use: classes on
their side, compiled kernels from numba's cache on ours. The details of each run hold the whole
process as well. Kafka runs with its default of 2 recovery threads a directory, both compilers and
a heap of 1 GiB; one more row gives it a single thread. We load in one thread. Each side's fsyncs
are its own: neither may leave them out.

Command: python benchmarks/bench_load.py [--quick]
"""

import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import (
    Case,
    Report,
    Side,
    Work,
    WrongAnswerError,
    java_version,
    parse_options,
    work_directory,
)
from benchmarks.loading import CarelessFileSystem, Opened, open_in_fresh_process
from benchmarks.workload import SINGLE_RECORDS, produced_batches
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.log_manager import LogManager
from tests.kafka.harness import Harness, ensure_harness
from tests.kafka.jars import KAFKA_VERSION

FULL_TOPIC_COUNT: Final = 100
PARTITIONS_PER_TOPIC: Final = 10
BATCHES_PER_PARTITION: Final = 10
KAFKA_THREADS: Final = 2  # num.recovery.threads.per.data.dir, from Kafka 4.0 on


class LoadBench:
    """The directory to load, and the ways to load it."""

    def __init__(self, path: Path, topic_count: int, kafka: Harness) -> None:
        self._path = path
        self._kafka = kafka
        self.partition_count = topic_count * PARTITIONS_PER_TOPIC
        self.record_count = self.partition_count * BATCHES_PER_PARTITION
        self.size_bytes = 0
        self._make(topic_count)

    def _make(self, topic_count: int) -> None:
        first_ms = time.time_ns() // 1_000_000 - BATCHES_PER_PARTITION
        batches = list(produced_batches(SINGLE_RECORDS, BATCHES_PER_PARTITION, first_ms=first_ms))
        with LogManager([self._clean_path], fs=CarelessFileSystem()) as manager:
            for number in range(topic_count):
                topic = f"topic-{number:03d}"
                manager.create_topic(topic, PARTITIONS_PER_TOPIC)
                for partition in range(PARTITIONS_PER_TOPIC):
                    log = manager.get_log(TopicPartition(topic, partition))
                    for batch in batches:
                        log.append(batch)
                    self.size_bytes += log.size_bytes

    @property
    def _clean_path(self) -> Path:
        return self._path / "original"

    def _copy(self, *, is_clean: bool) -> Path:
        target = self._path / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._clean_path, target)
        if not is_clean:
            (target / filenames.CLEAN_SHUTDOWN).unlink()
            (target / filenames.RECOVERY_POINTS).unlink()
        return target

    def load_ours(self, *, is_clean: bool) -> Work:
        """Load a copy with our LogManager."""
        opened = open_in_fresh_process(self._copy(is_clean=is_clean))
        self._check(opened)
        details = {"process_seconds": opened.process_seconds, "cpu_seconds": opened.cpu_seconds}
        return Work(
            opened.load_seconds, self.size_bytes, opened.record_count, opened.log_count, details
        )

    def load_kafkas(self, *, is_clean: bool, threads: int) -> Work:
        """Load a copy with Kafka's LogManager."""
        directory = self._copy(is_clean=is_clean)
        started = time.perf_counter()
        loaded = self._kafka.load_time(directory, recovery_threads=threads)
        details = {"process_seconds": time.perf_counter() - started}
        if loaded.logs != self.partition_count:
            raise WrongAnswerError(f"Kafka loaded {loaded.logs} logs of {self.partition_count}")
        return Work(loaded.milliseconds / 1e3, self.size_bytes, None, loaded.logs, details)

    def _check(self, opened: Opened) -> None:
        if opened.log_count != self.partition_count:
            raise WrongAnswerError(f"loaded {opened.log_count} logs of {self.partition_count}")


def main() -> None:
    options = parse_options(__doc__)
    topic_count = options.scaled(FULL_TOPIC_COUNT, minimum=2)
    kafka = ensure_harness()
    with work_directory(options) as directory:
        bench = LoadBench(directory, topic_count, kafka)
        report = Report(
            "load",
            __doc__ or "",
            options,
            directory,
            {
                "partition_count": bench.partition_count,
                "batches_per_partition": BATCHES_PER_PARTITION,
                **SINGLE_RECORDS.describe(),
            },
            versions={"kafka": KAFKA_VERSION, "java": java_version()},
        )
        for is_clean in (True, False):
            for threads in (KAFKA_THREADS, 1):
                how = "clean" if is_clean else "unclean"
                plural = "threads" if threads > 1 else "thread"
                report.measure(
                    Case(
                        name=f"{how} stop, Kafka with {threads} {plural}",
                        ours=Side("siltstone", partial(bench.load_ours, is_clean=is_clean)),
                        reference=Side(
                            "Kafka",
                            partial(bench.load_kafkas, is_clean=is_clean, threads=threads),
                        ),
                        goal_ratio=1.0 if threads == KAFKA_THREADS else None,
                        size_bytes=bench.size_bytes,
                        record_count=bench.record_count,
                    )
                )
        report.write()


if __name__ == "__main__":
    main()
