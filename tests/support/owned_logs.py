"""Logs as a coordinator sees them, without a broker around them."""

from collections.abc import Mapping

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog


class Owned:
    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    def appended(self, size_bytes: int) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)


class ManagedLogs:
    def __init__(self, manager: LogManager) -> None:
        self.manager = manager

    def find_partition_count(self, topic: str) -> int | None:
        return next((t.partition_count for t in self.manager.topics() if t.topic == topic), None)

    async def create_topic(self, topic: str, count: int, config: Mapping[str, str]) -> None:
        self.manager.create_topic(topic, count, config)

    def get_partition(self, topic: str, number: int) -> Owned:
        return Owned(self.manager.get_log(TopicPartition(topic, number)))
