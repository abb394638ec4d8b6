"""Index: how fast the kernels check and take apart what lies in a segment, on one core.

Question: how many bytes a second go through the CRC check and the record index? The goal is 2 GB/s
with records of 1 kB and 400 MB/s with records of 125 B.

Workload: 256 MB of 16 kB batches in memory, in chunks of 8 MiB as a pass reads them. "kernels"
calls walk_batches and index_batches with output arrays that are used again; "scan" calls scan.walk
and scan.scan, which make new arrays for each chunk. "file" reads each chunk from a file in the page
cache into one buffer first, as a pass does. With lz4 and zstd every batch is decompressed before;
MB/s then counts unpacked bytes. One thread; the kernels are compiled before the clock runs. Every
record is counted, and the key lengths of all are added up.

Command: python benchmarks/bench_index.py [--quick]
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

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
from benchmarks.workload import (
    KILOBYTE_RECORDS,
    SMALL_RECORDS,
    BatchShape,
    stored_batches,
    write_segment,
)
from siltstone.log.filesystem import File, FileSystem
from siltstone.records import kernel_types, kernels
from siltstone.records.compression import Codec
from siltstone.records.scan import Bytes, as_bytes, scan, walk

FULL_BYTES: Final = 256 << 20
CHUNK_BYTES: Final = 8 << 20
# The smallest record takes 7 bytes, but nobody writes 8 MiB of those.
RECORD_ROOM: Final = CHUNK_BYTES // 64
BATCH_ROOM: Final = CHUNK_BYTES // 1024
UNPACKED_LIMIT_BYTES: Final = 1 << 20

SHAPES: Final = {
    "1 kB records": (KILOBYTE_RECORDS, 2_000.0),
    "125 B records": (SMALL_RECORDS, 400.0),
}


class Arrays:
    """Output arrays of the kernels, made once."""

    def __init__(self) -> None:
        self.batches: Any = np.zeros(BATCH_ROOM, kernel_types.BATCH_DTYPE)
        self.records: Any = np.zeros(RECORD_ROOM, kernel_types.RECORD_DTYPE)


def index_chunk(data: Bytes, start: int, end: int, arrays: Arrays) -> tuple[int, int, int]:
    """Check and index a chunk; return (where it stopped, records, bytes in keys)."""
    count, stop, why = kernels.walk_batches(data, start, end, 0, True, arrays.batches)
    batches = arrays.batches[:count]
    records, refused = kernels.index_batches(data, batches, arrays.records)
    if why in (kernel_types.REFUSED, kernel_types.FULL) or refused >= 0:
        raise WrongAnswerError(f"the kernels stopped at {stop} because of {why}")
    return stop, records, int(arrays.records["key_length"][:records].sum())


def run_kernels(data: Bytes, arrays: Arrays, key_bytes: int) -> Work:
    """Go through the data with the bare kernels."""
    position = record_count = found_key_bytes = 0
    with Stopwatch() as watch:
        while position < data.size:
            end = min(position + CHUNK_BYTES, data.size)
            position, records, keys = index_chunk(data, position, end, arrays)
            record_count += records
            found_key_bytes += keys
    _check_keys(found_key_bytes, key_bytes)
    return Work(watch.seconds, position, record_count)


def run_scan(data: bytes, unpacked_bytes: int, key_bytes: int) -> Work:
    """Go through the data with `walk` and `scan`."""
    view = memoryview(data)
    position = record_count = found_key_bytes = 0
    with Stopwatch() as watch:
        while position < len(data):
            chunk = view[position : position + CHUNK_BYTES]
            found = walk(chunk)
            if found.refusal is not None:
                raise found.refusal
            records = scan(chunk, found.batches, limit_bytes=UNPACKED_LIMIT_BYTES).records
            record_count += len(records)
            found_key_bytes += int(records["key_length"].sum())
            position += found.stop_position
    _check_keys(found_key_bytes, key_bytes)
    return Work(watch.seconds, unpacked_bytes, record_count)


def run_file(file: File, size_bytes: int, arrays: Arrays, key_bytes: int) -> Work:
    """Go through a file with the bare kernels and one buffer."""
    buffer = bytearray(CHUNK_BYTES)
    data = as_bytes(buffer)
    position = record_count = found_key_bytes = 0
    with Stopwatch() as watch:
        while position < size_bytes:
            count = file.read_into(position, memoryview(buffer))
            stop, records, keys = index_chunk(data, 0, count, arrays)
            position += stop
            record_count += records
            found_key_bytes += keys
    _check_keys(found_key_bytes, key_bytes)
    return Work(watch.seconds, position, record_count)


def _check_keys(found: int, expected: int) -> None:
    if found != expected:
        raise WrongAnswerError(f"keys have {found} bytes, expected {expected}")


def main() -> None:
    options = parse_options(__doc__)
    total_bytes = options.scaled(FULL_BYTES)
    with work_directory(options) as directory:
        shape_facts: dict[str, Any] = {"chunk_bytes": CHUNK_BYTES}
        report = Report("index", __doc__ or "", options, directory, shape_facts)
        arrays = Arrays()

        def add(
            name: str,
            shape: BatchShape,
            count: int,
            size: int,
            run: Callable[[], Work],
            goal: float | None = None,
        ) -> None:
            report.maybe_measure(
                Case(
                    name=name,
                    ours=Side("index", run),
                    goal_mb_per_second=goal,
                    size_bytes=size,
                    record_count=count * shape.record_count,
                )
            )

        for name, (shape, goal) in SHAPES.items():
            facts = shape.describe()
            count = max(1, total_bytes // facts["batch_bytes"])
            unpacked_bytes = count * facts["batch_bytes"]
            key_bytes = count * shape.record_count * shape.key_bytes
            shape_facts[name] = {"batch_count": count, **facts}

            data = b"".join(stored_batches(shape, count, first_ms=0))
            run = partial(run_kernels, as_bytes(data), arrays, key_bytes)
            add(f"{name}, kernels", shape, count, unpacked_bytes, run, goal)
            run = partial(run_scan, data, unpacked_bytes, key_bytes)
            add(f"{name}, scan", shape, count, unpacked_bytes, run, goal)

            path = directory / "00000000000000000000.log"
            write_segment(path, shape, count, first_ms=0)
            file = FileSystem().open(path, writable=False)
            run = partial(run_file, file, unpacked_bytes, arrays, key_bytes)
            add(f"{name}, file", shape, count, unpacked_bytes, run)

            for codec in (Codec.LZ4, Codec.ZSTD):
                packed_shape = replace(shape, codec=codec)
                data = b"".join(stored_batches(packed_shape, count, first_ms=0))
                row = f"{name}, {codec.name.lower()}"
                shape_facts[row] = {"packed_bytes": len(data), **packed_shape.describe()}
                run = partial(run_scan, data, unpacked_bytes, key_bytes)
                add(row, shape, count, unpacked_bytes, run)
        report.write()


if __name__ == "__main__":
    main()
