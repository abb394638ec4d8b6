"""The coordinators of this broker, on its logs, and their timers on the event loop."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from siltstone.broker.owned_logs import BrokerLogs
from siltstone.coordinator.state_topic import (
    TRANSACTION_STATE,
    StateTopic,
    StateTopicConfig,
)
from siltstone.coordinator.transaction.markers import MarkerWriter
from siltstone.coordinator.transaction.service import TransactionCoordinator

if TYPE_CHECKING:
    from siltstone.broker.broker import Broker

logger = logging.getLogger(__name__)


class Coordinators:
    """What keeps its state in internal topics."""

    def __init__(self, broker: "Broker") -> None:
        self._broker: Final = broker
        self._tasks: list[asyncio.Task[None]] = []
        logs = BrokerLogs(broker)
        config = broker.server_config.broker
        self.markers: Final = MarkerWriter(logs, broker.clock, broker.offsets.on_transaction_end)
        topic = StateTopicConfig(
            TRANSACTION_STATE,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_segment_bytes,
            "uncompressed",
            config.transaction_state_log_load_buffer_size,
        )
        self.transactions: Final = TransactionCoordinator(
            StateTopic(logs, broker.clock, topic),
            self.markers,
            broker.clock,
            broker.producer_ids.take,
            lambda: broker.server_config.broker,
        )

    def start(self) -> None:
        """Take up what was left, before anybody connects, and begin to look after it."""
        for topic in (self.transactions.topic, self._broker.groups.registry.topic):
            self._complete_config(topic)
        self.transactions.load()
        self._broker.producer_ids.skip_to(self.transactions.highest_producer_id + 1)
        config = self._broker.server_config.broker
        self._every(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._end_overdue
        )
        self._every(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transactions.remove_expired,
        )

    def _complete_config(self, topic: StateTopic) -> None:
        """See to it that state is compacted, also that of a Kafka, which keeps settings elsewhere.

        By default it would be deleted when it is old.
        """
        if topic.exists:
            manager = self._broker.manager
            known = manager.describe(topic.topic).config
            missing = {k: v for k, v in topic.config.topic_config().items() if k not in known}
            if missing:
                manager.alter_topic(topic.topic, missing)

    async def stop(self) -> None:
        """End the timers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end_overdue(self) -> None:
        self.transactions.abort_timed_out()
        self.transactions.finish_prepared()

    def _every(self, interval_ms: int, work: Callable[[], object]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(_repeat(interval_ms, work)))


async def _repeat(interval_ms: int, work: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            work()
        except Exception:
            logger.exception("a coordinator's timer failed, and is tried again")
