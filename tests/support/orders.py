"""A topic of orders, and an owner that goes on writing and compacting it: for tables to read."""

from pathlib import Path
from typing import Any

import siltstone
from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch
from siltstone.records.partitioner import java_partition
from siltstone.records.record import Record
from siltstone.table.table import Table
from tests.support.clock import ManualClock
from tests.support.make_log import HastyDisk

EXPECTED = {b"key-%d" % n: b'{"n":%d}' % (20 + n) for n in range(10) if n != 3}


class Owner:
    """The process that owns the log directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.fs = HastyDisk()
        self.manager = LogManager([path], fs=self.fs, clock=self.clock)
        self.manager.create_topic("orders", 3, {"cleanup.policy": "compact"})

    def log(self, key: bytes) -> PartitionLog:
        return self.manager.get_log(TopicPartition("orders", java_partition(key, 3)))

    def put(self, key: bytes, value: bytes | None) -> None:
        record = Record(0, self.clock.now_ms(), key, value, (("h", b"x"),))
        log = self.log(key)
        log.append(build_batch([record]))
        log.update_high_watermark(log.log_end_offset)

    def clean(self) -> None:
        for number in range(3):
            log = self.manager.get_log(TopicPartition("orders", number))
            log.roll()
            checkpoints = CleanerCheckpoints(self.fs, self.path)
            now_ms = self.clock.now_ms()
            assessment, _ = assess_log(log, checkpoints.find(log.partition), now_ms)
            runner = PassRunner(self.fs, self.clock, LocalEngine(), checkpoints)
            runner.run(log, plan_pass(log, assessment, now_ms))


def make_orders(path: Path) -> Owner:
    """Make the topic; `EXPECTED` is its table."""
    owner = Owner(path)
    for number in range(30):
        owner.put(b"key-%d" % (number % 10), b'{"n":%d}' % number)
    owner.put(b"key-3", None)
    return owner


def open_table(owner: Owner, **options: Any) -> Table:
    """Open it as another process would."""
    return siltstone.open(owner.path).table("orders", **options)
