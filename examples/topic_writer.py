"""Append records to a topic of a log directory: what a producer does, without a broker."""

import time
from pathlib import Path

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.clock import SystemClock
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.partitioner import java_partition
from siltstone.records.record import Record


class TopicWriter:
    """Owns a log directory and writes to one topic of it, which it creates if it is not there."""

    def __init__(self, path: Path, topic: str, partitions: int = 2, **config: str) -> None:
        self._manager = LogManager([path])
        self._topic = topic
        self._partitions = partitions
        if topic not in {known.topic for known in self._manager.topics()}:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            self._manager.create_topic(topic, partitions, settings)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Append a record; None deletes the key."""
        number = java_partition(key, self._partitions)
        log = self._manager.get_log(TopicPartition(self._topic, number))
        now_ms = time.time_ns() // 1_000_000
        log.append(build_batch([Record(0, now_ms, key, value)]))
        log.update_high_watermark(log.log_end_offset)

    def compact(self) -> None:
        """Let every partition settle, in this process; `silt compact` does it on Spark."""
        clock, fs = SystemClock(), FileSystem()
        for number in range(self._partitions):
            log = self._manager.get_log(TopicPartition(self._topic, number))
            log.roll()
            checkpoints = CleanerCheckpoints(fs, log.directory.parent)
            now_ms = clock.now_ms()
            found, _ = assess_log(log, checkpoints.find(log.partition), now_ms, ignores_ratio=True)
            if found.is_eligible:
                runner = PassRunner(fs, clock, LocalEngine(), checkpoints)
                runner.run(log, plan_pass(log, found, now_ms))

    def __enter__(self) -> "TopicWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()
