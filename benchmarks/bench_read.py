"""Read: how close a sequential read comes to reading the raw files.

Question: how fast are PartitionLog.read(offset, 1 MiB) and the bytes of its slice, from the first
offset to the last, against reading the segment files in chunks of 1 MiB? The goal is 0.8 of it.

Workload: 1 GB of 16 kB batches of 1 kB records in four segments, uncompressed. Everything lies in
the page cache on both sides; data comes as new `bytes` objects on both. A reader must know the next
offset: here it follows from the size of what was read, for all batches are alike (a real one takes
it from the batches, which it decodes anyway). Two more rows do that decoding: every CRC checked,
and every record taken apart by the kernels and counted; there the raw read is only a yardstick.

Command: python benchmarks/bench_read.py [--quick]
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

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
from benchmarks.workload import KILOBYTE_RECORDS, produced_batches
from siltstone.clock import SystemClock
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog
from siltstone.log.recovery import LoadRequest
from siltstone.records.scan import scan, walk

FULL_BATCH_COUNT: Final = 65_536
SEGMENT_COUNT: Final = 4
READ_BYTES: Final = 1 << 20

LOOKUPS: Final = (
    "Each read looks the offset up in the offset index, holds the entry against the batch it "
    "points to, and looks for the last batch that ends within 1 MiB: a few small reads and header "
    "parses for each large one."
)


def fill_log(directory: Path, batch_count: int) -> PartitionLog:
    """Make the log by appending to it; what it would flush in the background is left out."""
    clock = SystemClock()
    (sample,) = produced_batches(KILOBYTE_RECORDS, 1, first_ms=0)
    request = LoadRequest(
        partition=TopicPartition("bench", 0),
        directory=directory,
        config=LogConfig(segment_bytes=-(-batch_count // SEGMENT_COUNT) * len(sample)),
        now_ms=clock.now_ms(),
        was_clean=True,
    )
    log = PartitionLog(FileSystem(), clock, request, background=lambda task: None)
    first_ms = time.time_ns() // 1_000_000 - batch_count
    for batch in produced_batches(KILOBYTE_RECORDS, batch_count, first_ms=first_ms):
        log.append(batch)
    log.update_high_watermark(log.log_end_offset)
    return log


def skip_records(data: bytes) -> int:
    """Know without a look how many records there are."""
    return len(data) // BATCH_BYTES * KILOBYTE_RECORDS.record_count


def check_batches(data: bytes) -> int:
    """Check every CRC, and return the number of records that the headers speak of."""
    found = walk(data)
    if found.refusal is not None or found.stop_position != len(data):
        raise WrongAnswerError(f"{found.refusal} at {found.stop_position} of {len(data)}")
    return int(found.batches["record_count"].sum())


def index_records(data: bytes) -> int:
    """Check every CRC, take every record apart, and return how many there were."""
    found = walk(data)
    if found.refusal is not None or found.stop_position != len(data):
        raise WrongAnswerError(f"{found.refusal} at {found.stop_position} of {len(data)}")
    return len(scan(data, found.batches, limit_bytes=0).records)


def read_log(log: PartitionLog, look: Callable[[bytes], int]) -> Work:
    """Time a consumer's way through the log."""
    offset = log.log_start_offset
    end_offset = log.log_end_offset
    size_bytes = read_count = 0
    with Stopwatch() as watch:
        while offset < end_offset:
            found = log.read(offset, READ_BYTES).slice
            assert found is not None
            data = found.read()
            offset += look(data)
            size_bytes += len(data)
            read_count += 1
    return Work(watch.seconds, size_bytes, offset - log.log_start_offset, read_count)


def read_files(paths: Sequence[Path]) -> Work:
    """Time reading the same files without knowing what is in them."""
    size_bytes = read_count = 0
    with Stopwatch() as watch:
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while data := file.read(READ_BYTES):
                    size_bytes += len(data)
                    read_count += 1
    return Work(watch.seconds, size_bytes, None, read_count)


BATCH_BYTES: Final = len(next(produced_batches(KILOBYTE_RECORDS, 1, first_ms=0)))


def main() -> None:
    options = parse_options(__doc__)
    batch_count = options.scaled(FULL_BATCH_COUNT)
    with work_directory(options) as directory:
        touch_memory(2 * batch_count * BATCH_BYTES)
        log = fill_log(directory / "bench-0", batch_count)
        report = Report(
            "read",
            __doc__ or "",
            options,
            directory,
            {
                "batch_count": batch_count,
                "segment_count": len(log.segments),
                "read_bytes": READ_BYTES,
                **KILOBYTE_RECORDS.describe(),
            },
        )
        paths = [segment.path for segment in log.segments]
        raw = Side("raw files", partial(read_files, paths))
        rows: list[tuple[str, Callable[[bytes], int], float | None, str]] = [
            ("read", skip_records, 0.8, LOOKUPS),
            ("read, CRC of every batch", check_batches, None, ""),
            ("read, CRC, every record indexed", index_records, None, ""),
        ]
        for name, look, goal_ratio, costs in rows:
            report.maybe_measure(
                Case(
                    name=name,
                    ours=Side("log", partial(read_log, log, look)),
                    reference=raw,
                    goal_ratio=goal_ratio,
                    size_bytes=log.size_bytes,
                    record_count=batch_count * KILOBYTE_RECORDS.record_count,
                    operation_name="read",
                    costs=costs,
                )
            )
        log.mark_deleted(log.directory)
        report.write()


if __name__ == "__main__":
    main()
