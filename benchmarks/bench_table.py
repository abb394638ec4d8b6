"""Table: point lookups by key, a cold `silt get`, and restoring a dict.

Question: how long does a lookup take in 1 M and in 10 M keys (goal: median < 1 ms, 99th percentile
< 5 ms), a `silt get` from the shell (goal: < 300 ms), and how many keys a second does
`restore_into` put into a dict (goal: 1 M)?

Workload: one record of 100 bytes per key in batches of 16 kB, in one partition, uncompressed, in
segments of 256 MiB; keys of 16 bytes. The log was closed well and its key indexes are there: the
time to build them by the first lookup is in the result, and the time to build them after a pass.
Lookups are of random keys that exist, by one thread, the files in the page cache. What a lookup is
held against is reading the log from its start up to the key, record by record, as one does who has
no index; `restore_into` against a dict filled that way.

Command: python benchmarks/bench_table.py [--quick]
"""

import os
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

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
from siltstone.cleaner.key_indexing.cleaned import index_cleaned
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.reading import Isolation
from siltstone.records.builder import build_batch
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import ATTRIBUTES_POSITION, CRC_POSITION
from siltstone.records.record import Record
from siltstone.table.table import Table

KEY_COUNTS: Final = (1_000_000, 10_000_000)
BATCH_RECORDS: Final = 125
VALUE_BYTES: Final = 100
LOOKUPS: Final = 20_000
COLD_RUNS: Final = 7
PARTITION: Final = TopicPartition("bench", 0)


def key_of(number: int) -> bytes:
    return b"key-%012d" % number


def fill(directory: Path, key_count: int) -> int:
    """Write the log; return its bytes. A template gets other keys and its CRC for each batch."""
    records = [
        Record(at, 1_700_000_000_000, key_of(0), bytes(VALUE_BYTES)) for at in range(BATCH_RECORDS)
    ]
    template = bytearray(build_batch(records))
    image = np.frombuffer(template, np.uint8)
    starts = [at for at in range(len(template)) if template.startswith(b"key-", at)]
    places = (np.array(starts) + 4)[:, None] + np.arange(12)
    powers = 10 ** np.arange(11, -1, -1)
    manager = LogManager([directory])
    manager.create_topic("bench", 1, {"cleanup.policy": "compact", "segment.bytes": str(256 << 20)})
    log = manager.get_log(PARTITION)
    for first in range(0, key_count, BATCH_RECORDS):
        numbers = np.arange(first, first + BATCH_RECORDS)[:, None]
        image[places] = numbers // powers % 10 + ord("0")
        crc = crc32c(memoryview(template)[ATTRIBUTES_POSITION:])
        template[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4, "big")
        log.append(bytes(template))
    log.roll()
    size_bytes = log.size_bytes
    manager.close()
    return size_bytes


def time_indexing(reader: LogReader) -> float:
    """Time what the owner of a log does after a pass: every key is there once already."""
    with Stopwatch() as watch:
        for segment in reader.get_log(PARTITION).segments:
            if segment.size_bytes:
                index_cleaned(segment.file, segment.base_offset, segment.size_bytes, bytes(16))
    return watch.seconds


def look_up(table: Table, key_count: int, count: int) -> Work:
    """Time lookups one by one."""
    chance = random.Random(5)
    table.get(key_of(0))
    times = []
    with Stopwatch() as watch:
        for _ in range(count):
            key = key_of(chance.randrange(key_count))
            started = time.perf_counter()
            value = table.get(key)
            times.append(time.perf_counter() - started)
            if value is None or len(value) != VALUE_BYTES:
                raise WrongAnswerError(f"{key!r} has value {value!r}")
    percentiles = statistics.quantiles(times, n=100)
    details = {"median_ms": percentiles[49] * 1e3, "p99_ms": percentiles[98] * 1e3}
    return Work(watch.seconds / count, 0, 1, 1, details)


def scan_for_key(reader: LogReader, key_count: int) -> Work:
    """Time reading up to a random key without an index."""
    wanted = key_of(random.Random(5).randrange(key_count))
    log = reader.get_log(PARTITION)
    offset = 0
    is_found = False
    with Stopwatch() as watch:
        while not is_found and offset < log.log_end_offset:
            for batch in log.read(offset, 1 << 20, Isolation.COMMITTED).batches():
                offset = batch.header.next_offset
                is_found |= any(record.key == wanted for record in batch.iter_records())
    if not is_found:
        raise WrongAnswerError(f"{wanted!r} is not there")
    return Work(watch.seconds, 0, 1, 1)


def restore(table: Table, key_count: int) -> Work:
    """Time filling a dict in bulk."""
    state: dict[bytes, bytes] = {}
    with Stopwatch() as watch:
        table.restore_into(state)
    return Work(watch.seconds, 0, len(state), len(state))


def restore_by_record(reader: LogReader, key_count: int) -> Work:
    """Time filling a dict record by record, as far as a tenth of the log, times ten."""
    log = reader.get_log(PARTITION)
    state: dict[bytes | None, bytes | None] = {}
    offset = 0
    with Stopwatch() as watch:
        while offset < key_count // 10:
            for batch in log.read(offset, 1 << 20, Isolation.COMMITTED).batches():
                offset = batch.header.next_offset
                state.update((record.key, record.value) for record in batch.iter_records())
    return Work(watch.seconds * key_count / len(state), 0, key_count, key_count)


def run_cold(directory: Path, key_count: int) -> Work:
    """Time `silt get` from the shell."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    silt = Path(sys.executable).parent / "silt"
    key = key_of(key_count // 3).decode()
    with Stopwatch() as watch:
        subprocess.run(
            [silt, "get", "bench", key, "--log-dir", directory],
            check=True,
            capture_output=True,
            env=environment,
        )
    return Work(watch.seconds, 0, 1, 1)


def start_python() -> Work:
    """Time what a process costs that only starts Python and numpy."""
    with Stopwatch() as watch:
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    return Work(watch.seconds, 0, 1, 1)


def main() -> None:
    options = parse_options(__doc__)
    with work_directory(options) as root:
        report = Report(
            "table",
            __doc__ or "",
            options,
            root,
            {"key_counts": list(KEY_COUNTS), "value_bytes": VALUE_BYTES, "key_bytes": 16},
        )
        for full_count in KEY_COUNTS:
            key_count = options.scaled(full_count) // BATCH_RECORDS * BATCH_RECORDS
            directory = root / f"keys-{key_count}"
            fill(directory, key_count)
            reader = LogReader([directory])
            table = Table(reader, "bench")
            with Stopwatch() as watch:
                table.get(key_of(0))
            name = f"{full_count // 1_000_000} M keys"
            report.notes[f"first lookup, {name}: seconds"] = watch.seconds
            print(f"{key_count} keys: indexes built in {watch.seconds:.2f} s")
            after_pass = time_indexing(reader)
            report.notes[f"indexes after a pass, {name}: seconds"] = after_pass
            print(f"{key_count} keys: the same after a pass in {after_pass:.2f} s")
            lookups = options.scaled(LOOKUPS, 1000)
            is_small = full_count == KEY_COUNTS[0]
            scan = Side("scan", partial(scan_for_key, reader, key_count))
            result = report.maybe_measure(
                Case(
                    name=f"lookup, {name}",
                    ours=Side("key index", partial(look_up, table, key_count, lookups)),
                    reference=scan if is_small else None,  # it would take minutes
                    size_bytes=0,
                    record_count=1,
                    operation_name="lookup",
                )
            )
            runs = () if result is None else result.runs
            details = [run.details for run in runs if run.round and run.details]
            for what in ("median_ms", "p99_ms"):
                if not details:
                    continue
                worst = max(run[what] for run in details)
                report.notes[f"lookup {what}, {name}, worst round"] = worst
                print(f"lookup {what}, {name}, worst round: {worst:.3f}")
            report.maybe_measure(
                Case(
                    name=f"silt get, {name}",
                    ours=Side("silt get", partial(run_cold, directory, key_count)),
                    reference=Side("python -c 'import numpy'", start_python),
                    size_bytes=0,
                    record_count=1,
                    operation_name="process",
                    costs="It parses its options, opens the log and looks the key up.",
                )
            )
            if is_small:
                report.maybe_measure(
                    Case(
                        name=f"restore_into a dict, {name}",
                        ours=Side("restore_into", partial(restore, table, key_count)),
                        reference=Side("by record", partial(restore_by_record, reader, key_count)),
                        size_bytes=0,
                        record_count=key_count,
                        operation_name="key",
                    )
                )
        report.write()


if __name__ == "__main__":
    main()
