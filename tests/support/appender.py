"""A process that appends to a log until it is killed, and says what was acknowledged.

It reads rounds from its standard input, one to a line: a seed, a log directory and settings. Each
round runs in a process of its own, made by fork so that nobody waits for imports. What comes back:

    pid PID          of the process to kill
    open             it has opened the log, and recovered it if need be
    ack OFFSET HASH  a record was appended and flushed
    end STATUS       the process is gone
"""

import hashlib
import json
import os
import random
import sys
from pathlib import Path

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.records.batch import read_batch
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from siltstone.records.scan import check_records, scan, walk

PARTITION = TopicPartition("killed", 0)
_MAINTENANCE_INTERVAL = 7  # appends


def digest(value: bytes) -> bytes:
    """Return what the key of a record must be, so that it can be told from one that is made up."""
    return hashlib.sha256(value).hexdigest()[:16].encode()


def append_for_ever(seed: int, path: Path, settings: dict[str, str]) -> None:
    """Append, roll, remove and checkpoint until somebody ends the process."""
    chance = random.Random(seed)
    manager = LogManager([path])
    if not manager.topics():
        manager.create_topic(PARTITION.topic, 1, settings)
    log = manager.get_log(PARTITION)
    _say("open")
    number = 0
    while True:
        number += 1
        values = [
            f"{seed}.{number}.{n} ".encode() * chance.randint(1, 40)
            for n in range(chance.randint(1, 3))
        ]
        records = [
            Record(n, 1_700_000_000_000 + number, digest(value), value)
            for n, value in enumerate(values)
        ]
        info = log.append(build_batch(records, codec=chance.choice(list(Codec))))
        log.update_high_watermark(log.log_end_offset)
        for n, value in enumerate(values):
            _say(f"ack {info.first_offset + n} {digest(value).decode()}")
        if number % _MAINTENANCE_INTERVAL == 0:
            manager.run_maintenance()
            manager.checkpoint()


def _say(line: str) -> None:
    # One write: a process that is killed says a line or does not.
    os.write(1, f"{line}\n".encode())


def main() -> None:
    # Kernels are loaded once, for all rounds.
    warm_up = read_batch(build_batch([Record(0, 0, b"k", b"v")]))
    check_records(warm_up, needs_keys=False, oldest_ms=0, newest_ms=0, limit_bytes=100)
    scan(warm_up.data, walk(warm_up.data).batches, limit_bytes=100)
    for line in sys.stdin:
        seed, path, settings = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _say(f"pid {os.getpid()}")
            append_for_ever(seed, Path(path), settings)
        _, status = os.waitpid(pid, 0)
        _say(f"end {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
