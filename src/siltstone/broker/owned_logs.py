"""The logs of this broker, as its coordinators see them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from siltstone.broker.partitions import Partition
from siltstone.errors import UnknownTopicError

if TYPE_CHECKING:
    from siltstone.broker.broker import Broker


class BrokerLogs:
    """An `OwnedLogs` on the broker's partitions."""

    def __init__(self, broker: "Broker") -> None:
        self._broker: Final = broker

    def find_partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, or None if there is no such topic."""
        try:
            return self._broker.manager.describe(topic).partition_count
        except UnknownTopicError:
            return None

    async def create_topic(self, topic: str, count: int, config: Mapping[str, str]) -> None:
        """Create a topic; raise TopicExistsError if there is one of that name."""
        await self._broker.change(lambda: self._broker.manager.create_topic(topic, count, config))

    def get_partition(self, topic: str, number: int) -> Partition:
        """Return a partition; raise UnknownTopicError, or StorageError if it is not served."""
        return self._broker.partitions.get(topic, number)
