"""What our passes are held against: Kafka's own cleaner, `cp`, and Spark's window function."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.harness import Stopwatch, Work, WrongAnswerError
from benchmarks.keyed_log import SETTINGS, KeyedLogs, decimal_digits, partition_path
from benchmarks.spark_window import OFFSET_DIGITS
from siltstone.records.scan import scan, walk
from tests.kafka.clean_ops import clean
from tests.kafka.harness import Harness
from tests.kafka.log_ops import LogOps

_HEAP: Final = "3g"
_BYTES_PER_KEY: Final = 24
_LOAD_FACTOR: Final = 0.9
_DEFAULT_MAP_BYTES: Final = 128 << 20  # log.cleaner.dedupe.buffer.size
_IO_BYTES: Final = 256 << 10  # log.cleaner.io.buffer.size for one thread, half for reading
_LINES_AT_ONCE: Final = 1 << 16
_LIMIT_BYTES: Final = 1 << 30
_TIMEOUT_SECONDS: Final = 300


class KafkaCleaner:
    """Kafka's cleaner in a JVM that stays, with both compilers, and a map that holds all keys."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._ops: LogOps | None = None

    def run(self, logs: KeyedLogs) -> Work:
        """Clean all partitions one after the other; the seconds are those of its own log line."""
        directory = logs.copy()
        workload = logs.workload
        map_bytes = int(workload.key_count * _BYTES_PER_KEY / _LOAD_FACTOR) + _BYTES_PER_KEY
        seconds = 0.0
        kept = 0
        for number in range(workload.partition_count):
            log = self._start().open(
                partition_path(directory, number),
                config=SETTINGS,
                recovery_point=logs.record_count,
                wants_state=False,
            )
            done = clean(
                log,
                0,
                logs.record_count,
                io_bytes=_IO_BYTES,
                map_bytes=max(map_bytes, _DEFAULT_MAP_BYTES),
                wants_state=False,
            )
            if done.next_dirty_offset != logs.record_count:
                raise WrongAnswerError(f"Kafka cleaned up to {done.next_dirty_offset}")
            seconds += done.seconds
            kept += done.messages_written
            log.crash()
            log.forget()
        logs.check_kept(kept)
        return Work(seconds, logs.total_bytes, logs.total_records)

    def close(self) -> None:
        """End the JVM."""
        if self._ops is not None:
            self._ops.close()
            self._ops = None

    def _start(self) -> LogOps:
        if self._ops is None:
            self._ops = self._harness.start_log_ops(heap=_HEAP, full_speed=True)
        return self._ops


def copy_files(logs: KeyedLogs, target: Path, *, durably: bool) -> Work:
    """Copy the segments with `cp`; durably means that they are on the disk when it is over."""
    target.mkdir()
    paths = logs.log_paths
    with Stopwatch() as watch:
        subprocess.run(["cp", "--reflink=never", *paths, target], check=True)
        if durably:
            subprocess.run(["sync", *(target / path.name for path in paths)], check=True)
    size_bytes = sum((target / path.name).stat().st_size for path in paths)
    shutil.rmtree(target)
    return Work(watch.seconds, size_bytes, None)


def write_lines(logs: KeyedLogs, path: Path) -> None:
    """Write every record as a line of offset, key and value, as `spark_window` reads them."""
    shape = logs.workload.shape
    with path.open("wb") as file:
        for log_path in logs.log_paths:
            data = np.fromfile(log_path, np.uint8)
            records = scan(data.data, walk(data.data).batches, limit_bytes=_LIMIT_BYTES).records
            for first in range(0, len(records), _LINES_AT_ONCE):
                rows = records[first : first + _LINES_AT_ONCE]
                keys = rows["key_position"][:, None] + np.arange(shape.key_bytes)
                # One byte, the number of headers, stands after the value.
                ends = rows["position"] + rows["size_bytes"] - 1
                values = ends[:, None] + np.arange(-shape.value_bytes, 0)
                newlines = np.full((len(rows), 1), ord("\n"), np.uint8)
                offsets = decimal_digits(rows["offset"], OFFSET_DIGITS)
                file.write(np.hstack([offsets, data[keys], data[values], newlines]).tobytes())


class WindowFunction:
    """`row_number() over (partition by key order by offset desc)`, in a Spark as it comes."""

    def __init__(self, lines: Path, logs: KeyedLogs) -> None:
        self._logs = logs
        script = Path(__file__).with_name("spark_window.py")
        self._process = subprocess.Popen(
            [sys.executable, script, lines, str(logs.workload.shape.key_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self) -> Work:
        """Let it find the latest value of every key, and write them to Parquet."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("again\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise WrongAnswerError("Spark's window function came to no end")
        answer = json.loads(line)
        self._logs.check_kept(answer["rows"])
        return Work(answer["seconds"], self._logs.total_bytes, self._logs.total_records)

    def close(self) -> None:
        """End that Spark."""
        self._process.communicate(timeout=_TIMEOUT_SECONDS)
