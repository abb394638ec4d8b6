"""Append records to a topic of a log directory: what a producer does, without a broker."""

import time
from pathlib import Path
from types import TracebackType

from siltstone.ids import TopicPartition
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

    def __enter__(self) -> "TopicWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._manager.close()
