"""The timers: retention, flushing and checkpoints off the event loop; offsets of groups on it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from siltstone.broker.broker import Broker
from siltstone.broker.config import BrokerConfig
from siltstone.broker.room import make_room_for_states

logger = logging.getLogger(__name__)

_LONGEST_SLEEP_MS: Final = 3_600_000
_DELETION_MS: Final = (
    1_000  # Deletions have delays of their own; this is how exactly they are kept.
)
_ROOM_MS: Final = 1_000


class Maintenance:
    """Does again and again what time demands; one failure does not end it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        manager = self._broker.manager
        on_thread = self._every_on_thread
        on_thread(lambda: self._config.log_retention_check_interval_ms, manager.run_maintenance)
        on_thread(lambda: _DELETION_MS, manager.delete_due_files)
        on_thread(lambda: _ROOM_MS, lambda: make_room_for_states(manager))
        on_thread(lambda: self._config.log_flush_offset_checkpoint_interval_ms, manager.checkpoint)
        on_thread(lambda: self._config.log_flush_scheduler_interval_ms, self._flush)
        self._every(
            lambda: self._config.offsets_retention_check_interval_ms, self._broker.offsets.expire
        )

    async def stop(self) -> None:
        """End all timers; what runs is let finish."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _config(self) -> BrokerConfig:
        return self._broker.server_config.broker

    def _every_on_thread(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        self._every(interval_ms, lambda: self._broker.blocking(work))

    def _every(self, interval_ms: Callable[[], int], work: Callable[[], Awaitable[None]]) -> None:
        repeated = self._repeat(interval_ms, work)
        self._tasks.append(asyncio.get_running_loop().create_task(repeated))

    async def _repeat(
        self, interval_ms: Callable[[], int], work: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(min(self._config.log_initial_task_delay_ms, interval_ms()) / 1000)
        while True:
            try:
                await work()
            except Exception:
                logger.exception("a bug: maintenance failed, and is tried again")
            await asyncio.sleep(min(interval_ms(), _LONGEST_SLEEP_MS) / 1000)

    def _flush(self) -> None:
        for log in self._broker.manager.logs.values():
            log.maybe_flush()
