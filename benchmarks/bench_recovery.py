"""Recovery: how fast a segment is walked and indexed anew after an unclean stop.

Question: how many bytes a second does recover_segment work through (CRC of every batch, producer
state, both indexes written anew), against `cat` of the same file to /dev/null? And how long does
Kafka take to recover the same directory?

Workload: a segment of 1 GB in 16 kB batches of 1 kB records, and one of 64 MB in batches of one
record of 125 B; each once without producer ids and once from one idempotent producer, whose
sequences must be replayed batch by batch. No index is there before. Everything is in the page
cache. Kernels are compiled and loaded before the clock runs, except in the rows against Kafka:
there both open the whole directory, unclean and without a recovery point, in a fresh process, and
the seconds are those of the log manager alone (Kafka with a heap of 1 GiB and both compilers).

Command: python benchmarks/bench_recovery.py [--quick] [--rows TEXT]
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import (
    Case,
    Report,
    Side,
    Stopwatch,
    Work,
    WrongAnswerError,
    parse_options,
    touch_memory,
    work_directory,
)
from benchmarks.kafka_rival import KafkaRival, find_kafka
from benchmarks.loading import open_in_fresh_process
from benchmarks.workload import KILOBYTE_RECORDS, SINGLE_RECORDS, BatchShape, write_segment
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.leader_epochs import LeaderEpochs
from siltstone.log.producer_state import ProducerState
from siltstone.log.segment import Segment
from siltstone.log.segment_recovery import recover_segment

PARTITION: Final = TopicPartition("bench", 0)
WHOLE_ROUNDS: Final = 3  # each starts a Python and a JVM

COSTS: Final = (
    "A batch without a producer id is handled by the kernels alone. One with a producer id is also "
    "parsed and replayed in Python, to know the producer's last sequences."
)


class RecoveryBench:
    """One segment file, and the ways to read it."""

    def __init__(self, path: Path, shape: BatchShape, batch_count: int) -> None:
        self._path = path
        self._log_dir = path / "log-dir"
        self._original = path / "original.log"
        self.shape = shape
        self.record_count = batch_count * shape.record_count
        # Now, or Kafka would count the producer as expired.
        first_ms = time.time_ns() // 1_000_000 - batch_count
        self.size_bytes = write_segment(self._original, shape, batch_count, first_ms=first_ms)

    def recover(self) -> Work:
        """Recover the segment alone, in this process."""
        directory = self._prepare()
        segment = Segment(
            FileSystem(),
            directory,
            0,
            LogConfig(),
            created_ms=0,
            size_bytes=self.size_bytes,
        )
        state = ProducerState(PARTITION)
        with Stopwatch() as watch:
            found = recover_segment(segment, state, LeaderEpochs())
        has_producer = self.shape.producer_id >= 0
        if found.cut_bytes or len(state.entries) != has_producer:
            raise WrongAnswerError(f"{found}, producers {list(state.entries)}")
        entry_count = len(segment.offset_index.entries())
        segment.close()
        return Work(
            watch.seconds,
            segment.size_bytes,
            found.next_offset,
            details={"index_entries": entry_count},
        )

    def cat(self) -> Work:
        """Read the file and do nothing with it."""
        with Stopwatch() as watch:
            subprocess.run(["cat", self._original], stdout=subprocess.DEVNULL, check=True)
        return Work(watch.seconds, self._original.stat().st_size, None)

    def open_ours(self) -> Work:
        """Open the directory with our LogManager in a fresh process."""
        self._prepare()
        opened = open_in_fresh_process(self._log_dir)
        details = {"process_seconds": opened.process_seconds, "cpu_seconds": opened.cpu_seconds}
        return Work(opened.load_seconds, self.size_bytes, opened.record_count, details=details)

    def open_kafkas(self, kafka: KafkaRival) -> Work:
        """Open the directory with Kafka's LogManager in a fresh process."""
        directory = self._prepare()
        work = replace(kafka.load(self._log_dir, 1, self.size_bytes), operation_count=0)
        # A cut would have changed the file, which is the original by another name.
        if self._original.stat().st_size != self.size_bytes:
            raise WrongAnswerError(f"Kafka cut the segment in {directory}")
        return work

    def _prepare(self) -> Path:
        """Make a directory as a crash leaves it, with nothing but batches."""
        shutil.rmtree(self._log_dir, ignore_errors=True)
        directory = self._log_dir / filenames.partition_dir_name(PARTITION)
        directory.mkdir(parents=True)
        os.link(self._original, filenames.log_path(directory, 0))
        return directory

    def delete(self) -> None:
        """Make room for the next one."""
        shutil.rmtree(self._path)


def main() -> None:
    options = parse_options(__doc__)
    kafka = find_kafka()
    rows: list[tuple[str, BatchShape, int]] = [
        ("16 kB batches", KILOBYTE_RECORDS, 1_000_000_000),
        ("16 kB batches, idempotent", replace(KILOBYTE_RECORDS, producer_id=4711), 1_000_000_000),
        ("single records", SINGLE_RECORDS, 64_000_000),
        ("single records, idempotent", replace(SINGLE_RECORDS, producer_id=4711), 64_000_000),
    ]
    shape_facts: dict[str, Any] = {}
    with work_directory(options) as directory:
        report = Report(
            "recovery",
            __doc__ or "",
            options,
            directory,
            shape_facts,
            versions={} if kafka is None else kafka.versions,
        )
        for name, shape, full_bytes in rows:
            if not options.wants_part(name):
                continue
            facts = shape.describe()
            batch_count = options.scaled(full_bytes // facts["batch_bytes"])
            shape_facts[name] = {"batch_count": batch_count, **facts}
            touch_memory(options.scaled(2 * full_bytes))
            path = directory / "case"
            path.mkdir()
            bench = RecoveryBench(path, shape, batch_count)
            report.maybe_measure(
                Case(
                    name=name,
                    ours=Side("recover_segment", bench.recover),
                    reference=Side("cat", bench.cat),
                    size_bytes=bench.size_bytes,
                    record_count=bench.record_count,
                    costs=COSTS,
                )
            )
            if kafka is not None and not (options.is_quick and shape is not KILOBYTE_RECORDS):
                report.maybe_measure(
                    Case(
                        name=f"{name}, whole directory",
                        ours=Side("siltstone", bench.open_ours),
                        reference=Side("Kafka", partial(bench.open_kafkas, kafka)),
                        size_bytes=bench.size_bytes,
                        record_count=bench.record_count,
                        costs=COSTS,
                    ),
                    max_repetitions=WHOLE_ROUNDS,
                )
            bench.delete()
        report.write()


if __name__ == "__main__":
    main()
