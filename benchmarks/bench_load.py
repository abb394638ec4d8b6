"""Load: how long a broker with many partitions takes until it can serve them.

Question: how long does LogManager take over a directory with 1,000 partitions of one small segment
each, after a clean and after an unclean stop, against Kafka's own LogManager on the same files? The
goal is to be no slower.

Workload: 100 topics of 10 partitions, each with one segment of 10 batches of one record. Clean: as
both leave it when they stop. Unclean: as a crash leaves it before the first checkpoint, with
indexes of their full size, no snapshots, no clean-shutdown file and no recovery points; every
segment is walked and indexed anew. Each run opens a fresh copy in a fresh process, so the files are
in the page cache, for both alike. Seconds are those of the log manager alone, without the start of
Python (imports) or of the JVM, but with whatever either loads on first use: classes on their side,
compiled kernels from numba's cache on ours. The details of each run hold the whole process too.
Kafka runs with its default of 2 recovery threads a directory, both compilers and a heap of 1 GiB;
one more row gives it a single thread. We load in one thread. Both call fsync as they see fit.

Command: python benchmarks/bench_load.py [--quick] [--rows TEXT]
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
    parse_options,
    work_directory,
)
from benchmarks.kafka_rival import DEFAULT_THREADS, KafkaRival, find_kafka
from benchmarks.loading import CarelessFileSystem, open_in_fresh_process
from benchmarks.workload import SINGLE_RECORDS, produced_batches
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.log_manager import LogManager

FULL_TOPIC_COUNT: Final = 100
PARTITIONS_PER_TOPIC: Final = 10
BATCHES_PER_PARTITION: Final = 10
ROUNDS: Final = 3  # each copies 1,000 partitions and starts a Python and a JVM


class LoadBench:
    """The directory to load, and copies of it."""

    def __init__(self, path: Path, topic_count: int) -> None:
        self._path = path
        self.partition_count = topic_count * PARTITIONS_PER_TOPIC
        self.record_count = self.partition_count * BATCHES_PER_PARTITION
        self.size_bytes = 0
        self._make(topic_count)

    def _make(self, topic_count: int) -> None:
        first_ms = time.time_ns() // 1_000_000 - BATCHES_PER_PARTITION
        batches = list(produced_batches(SINGLE_RECORDS, BATCHES_PER_PARTITION, first_ms=first_ms))
        with LogManager([self._path / "original"], fs=CarelessFileSystem()) as manager:
            for number in range(topic_count):
                topic = f"topic-{number:03d}"
                manager.create_topic(topic, PARTITIONS_PER_TOPIC)
                for partition in range(PARTITIONS_PER_TOPIC):
                    log = manager.get_log(TopicPartition(topic, partition))
                    for batch in batches:
                        log.append(batch)
                    self.size_bytes += log.size_bytes

    def copy(self, *, is_clean: bool) -> Path:
        """Make a directory for one run."""
        target = self._path / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._path / "original", target)
        if not is_clean:
            _crash(target)
        return target

    def load(self, *, is_clean: bool) -> Work:
        """Load a copy with our LogManager."""
        opened = open_in_fresh_process(self.copy(is_clean=is_clean))
        if opened.log_count != self.partition_count:
            raise WrongAnswerError(f"loaded {opened.log_count} logs of {self.partition_count}")
        return Work(
            opened.load_seconds,
            self.size_bytes,
            opened.record_count,
            opened.log_count,
            {"process_seconds": opened.process_seconds, "cpu_seconds": opened.cpu_seconds},
        )

    def load_kafkas(self, kafka: KafkaRival, is_clean: bool, threads: int) -> Work:
        """Load a copy with Kafka's LogManager."""
        target = self.copy(is_clean=is_clean)
        return kafka.load(target, self.partition_count, self.size_bytes, threads)


def _crash(directory: Path) -> None:
    """Turn a directory after a clean stop into what a crash would have left."""
    index_bytes = LogConfig().segment_index_bytes
    (directory / filenames.CLEAN_SHUTDOWN).unlink()
    (directory / filenames.RECOVERY_POINTS).unlink()
    for path in directory.glob(f"*/*{filenames.SNAPSHOT}"):
        path.unlink()
    for extension, entry_bytes in ((filenames.OFFSET_INDEX, 8), (filenames.TIME_INDEX, 12)):
        for path in directory.glob(f"*/*{extension}"):
            with path.open("r+b") as file:
                file.truncate(index_bytes - index_bytes % entry_bytes)


def main() -> None:
    options = parse_options(__doc__)
    kafka = find_kafka()
    with work_directory(options) as directory:
        bench = LoadBench(directory, options.scaled(FULL_TOPIC_COUNT, minimum=2))
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
            versions={} if kafka is None else kafka.versions,
        )
        for is_clean in (True, False):
            for threads in (DEFAULT_THREADS, 1):
                if threads == 1 and (options.is_quick or kafka is None):
                    continue
                name = f"{'clean' if is_clean else 'unclean'} stop"
                report.maybe_measure(
                    Case(
                        name=name if threads > 1 else f"{name}, Kafka with 1 thread",
                        ours=Side("siltstone", partial(bench.load, is_clean=is_clean)),
                        reference=None
                        if kafka is None
                        else Side("Kafka", partial(bench.load_kafkas, kafka, is_clean, threads)),
                        goal_ratio=1.0 if threads == DEFAULT_THREADS else None,
                        size_bytes=bench.size_bytes,
                        record_count=bench.record_count,
                        operation_name="partition",
                        costs="Python opens and checks each partition's files one by one.",
                    ),
                    max_repetitions=ROUNDS if threads == DEFAULT_THREADS else 1,
                )
        report.write()


if __name__ == "__main__":
    main()
