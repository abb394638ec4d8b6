"""Append: what checks, offsets and indexes cost on top of the write itself.

Question: how fast is PartitionLog.append of a producer's batch, against a plain os.write of the
same bytes to a file in the same directory? The goal is half of its speed.

Workload: 16 kB batches of 16 records of 1 kB, uncompressed, 256 MB a run; once without a producer
id, once from an idempotent producer. Our side does all that a leader does: CRC, a look at every
record, offsets and leader epoch, producer state, offset and time index. Each run fills a new log
(a new file); the first few batches go before the clock, and with them the leader epoch's file.
Nobody calls fsync on either side. Afterwards the log is read back and every record counted.

Command: python benchmarks/bench_append.py [--quick]
"""

import cProfile
import os
import pstats
import shutil
import sys
import time
from collections.abc import Sequence
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
    work_directory,
)
from benchmarks.workload import KILOBYTE_RECORDS, BatchShape, produced_batches
from siltstone.clock import SystemClock
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog
from siltstone.log.recovery import LoadRequest
from siltstone.records.scan import walk

FULL_BATCH_COUNT: Final = 16_384
UNTIMED_BATCH_COUNT: Final = 16
_PROFILED_FUNCTIONS: Final = 25
_CHUNK_BYTES: Final = 8 << 20

COSTS: Final = (
    "On top of the write: CRC-32C over the batch, a kernel over every record, stamping offset and "
    "epoch, roll checks, producer state, and two index entries a batch, for a batch of 16 kB is "
    "longer than index.interval.bytes."
)


def open_log(directory: Path) -> PartitionLog:
    """Open an empty log that never calls fsync by itself: flushes and rolls are far away."""
    clock = SystemClock()
    request = LoadRequest(
        partition=TopicPartition("bench", 0),
        directory=directory,
        config=LogConfig(),
        now_ms=clock.now_ms(),
        was_clean=True,
    )
    return PartitionLog(FileSystem(), clock, request)


def append_all(directory: Path, batches: Sequence[bytes], record_count: int) -> Work:
    """Time the appends, then read back what they left."""
    log = open_log(directory)
    append = log.append
    for batch in batches[:UNTIMED_BATCH_COUNT]:
        append(batch)
    timed = batches[UNTIMED_BATCH_COUNT:]
    with Stopwatch() as watch:
        for batch in timed:
            append(batch)
    if log.log_end_offset != record_count:
        raise WrongAnswerError(f"log ends at {log.log_end_offset}, expected {record_count}")
    found = count_records(log.segments.active.path)
    log.mark_deleted(directory)
    shutil.rmtree(directory)
    return Work(watch.seconds, sum(map(len, timed)), found, len(timed))


def write_all(path: Path, batches: Sequence[bytes], total_bytes: int) -> Work:
    """Time plain writes of the same bytes."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    write = os.write
    for batch in batches[:UNTIMED_BATCH_COUNT]:
        write(fd, batch)
    timed = batches[UNTIMED_BATCH_COUNT:]
    with Stopwatch() as watch:
        for batch in timed:
            write(fd, batch)
    if os.fstat(fd).st_size != total_bytes:
        raise WrongAnswerError(f"{os.fstat(fd).st_size} bytes written, expected {total_bytes}")
    os.close(fd)
    path.unlink()
    return Work(watch.seconds, sum(map(len, timed)), None, len(timed))


def count_records(path: Path) -> int:
    """Count the records of a `.log` file, with every CRC checked."""
    data = path.read_bytes()
    view = memoryview(data)
    position = record_count = next_offset = 0
    while position < len(data):
        found = walk(view[position : position + _CHUNK_BYTES], next_offset=next_offset)
        if found.refusal is not None or not len(found.batches):
            raise WrongAnswerError(f"{path} at {position}: {found.refusal or 'a torn batch'}")
        record_count += int(found.batches["record_count"].sum())
        next_offset = int(found.batches["last_offset"][-1]) + 1
        position += found.stop_position
    return record_count


def profile(directory: Path, batches: Sequence[bytes]) -> dict[str, Any]:
    """Say where the time of an append goes; cProfile makes small functions look larger."""
    log = open_log(directory)
    append = log.append
    for batch in batches[:UNTIMED_BATCH_COUNT]:
        append(batch)
    timed = batches[UNTIMED_BATCH_COUNT:]
    profiler = cProfile.Profile()
    profiler.enable()
    for batch in timed:
        append(batch)
    profiler.disable()
    log.mark_deleted(directory)
    shutil.rmtree(directory)

    stats: Any = pstats.Stats(profiler)  # typeshed hides `stats`, the table that all printing uses
    total_seconds = stats.total_tt
    rows = []
    for (file, _, name), (_, calls, own, cumulative, _) in stats.stats.items():
        rows.append(
            {
                "function": f"{Path(file).stem}.{name}" if file != "~" else name,
                "calls_per_append": round(calls / len(timed), 2),
                "own_us": round(own / len(timed) * 1e6, 3),
                "cumulative_us": round(cumulative / len(timed) * 1e6, 3),
                "own_share": round(own / total_seconds, 4),
            }
        )
    rows.sort(key=lambda row: -row["own_us"])
    return {
        "append_count": len(timed),
        "us_per_append_under_profile": round(total_seconds / len(timed) * 1e6, 2),
        "functions": rows[:_PROFILED_FUNCTIONS],
    }


def main() -> None:
    options = parse_options(__doc__)
    batch_count = options.scaled(FULL_BATCH_COUNT) + UNTIMED_BATCH_COUNT
    shapes: dict[str, BatchShape] = {
        "no producer id": KILOBYTE_RECORDS,
        "idempotent producer": replace(KILOBYTE_RECORDS, producer_id=4711),
    }
    with work_directory(options) as directory:
        report = Report(
            "append",
            __doc__ or "",
            options,
            directory,
            {"batch_count": batch_count}
            | {name: shape.describe() for name, shape in shapes.items()},
        )
        for name, shape in shapes.items():
            # Not in the future: a leader refuses such timestamps.
            first_ms = time.time_ns() // 1_000_000 - batch_count
            batches = list(produced_batches(shape, batch_count, first_ms=first_ms))
            total_bytes = sum(map(len, batches))
            timed_bytes = total_bytes - sum(map(len, batches[:UNTIMED_BATCH_COUNT]))
            record_count = batch_count * shape.record_count
            report.maybe_measure(
                Case(
                    name=f"append, {name}",
                    ours=Side(
                        "append", partial(append_all, directory / "t-0", batches, record_count)
                    ),
                    reference=Side(
                        "os.write", partial(write_all, directory / "plain", batches, total_bytes)
                    ),
                    goal_ratio=0.5,
                    size_bytes=timed_bytes,
                    record_count=record_count,
                    touch_bytes=total_bytes,
                    operation_name="batch",
                    costs=COSTS,
                )
            )
            report.notes[f"profile, {name}"] = profile(directory / "t-0", batches[:4096])
        report.write()


if __name__ == "__main__":
    main()
