"""The topics of this broker, as its groups see them."""

import uuid
from collections.abc import Iterable
from typing import Final

from siltstone.broker.partitions import PartitionTable
from siltstone.coordinator.group.topics import TopicInfo
from siltstone.errors import UnknownTopicError
from siltstone.log.log_manager import LogManager
from siltstone.log.topic_store import TopicMetadata


class BrokerTopics:
    """A `Topics` on the broker's logs."""

    def __init__(self, manager: LogManager, partitions: PartitionTable) -> None:
        self._manager: Final = manager
        self._partitions: Final = partitions

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic by its name, or None."""
        try:
            return _info(self._manager.describe(name))
        except UnknownTopicError:
            return None

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        """Return a topic by its id, or None."""
        name = self._partitions.find_name(topic_id)
        return None if name is None else self.find(name)

    def all(self) -> Iterable[TopicInfo]:
        """Return every topic."""
        return [_info(topic) for topic in self._manager.topics()]


def _info(topic: TopicMetadata) -> TopicInfo:
    return TopicInfo(topic.topic, topic.topic_id.value, topic.partition_count)
