"""What the request handlers share: the logs, who waits, and threads for what can block."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from siltstone.broker.command_frames import encode_answer
from siltstone.broker.config import ServerConfig
from siltstone.broker.coordinators import Coordinators
from siltstone.broker.dynamic_config import DynamicConfig
from siltstone.broker.fetch_sessions import FetchSessions
from siltstone.broker.group_topics import BrokerTopics
from siltstone.broker.owned_logs import BrokerLogs
from siltstone.broker.partitions import PartitionTable
from siltstone.broker.producer_ids import ProducerIds
from siltstone.broker.purgatory import Purgatory
from siltstone.clock import Clock
from siltstone.coordinator.group.config import GroupConfig
from siltstone.coordinator.group.offset_service import OffsetCoordinator
from siltstone.coordinator.group.registry import GroupRegistry
from siltstone.coordinator.group.service import GroupCoordinator
from siltstone.coordinator.state_topic import CONSUMER_OFFSETS, StateTopic, StateTopicConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.records.compression import Codec

T = TypeVar("T")

_DISK_THREADS: Final = 4


class Endpoint(NamedTuple):
    """Where clients are told to connect."""

    host: str  # empty: the address that they have reached
    port: int


class Broker:
    """One node and its logs. Handlers run on the event loop; `blocking` takes work off it."""

    def __init__(
        self, server_config: ServerConfig, manager: LogManager, fs: FileSystem, clock: Clock
    ) -> None:
        self.manager: Final = manager
        self.fs: Final = fs
        self.clock: Final = clock
        self.partitions: Final = PartitionTable(manager)
        self.purgatory: Final = Purgatory()
        self.sessions: Final = FetchSessions(
            clock, server_config.broker.max_incremental_fetch_session_cache_slots
        )
        live = [d for d in manager.directories if not d.is_offline]
        self.producer_ids: Final = ProducerIds(
            fs, [d.path for d in live], _first_free_producer_id(manager)
        )
        properties = live[0].properties
        self.cluster_id: Final = properties.cluster_id or ""
        self.node_id: Final = (
            server_config.broker.node_id
            if "node.id" in server_config.given or "broker.id" in server_config.given
            else properties.node_id or 0
        )
        self.dynamic: Final = DynamicConfig(
            fs, [d.path for d in live], server_config.given, self.node_id
        )
        self.server_config = self.dynamic.merged()
        manager.set_defaults(self.server_config.topic_defaults)
        self.endpoint = Endpoint("", 0)
        self.answer_command: Callable[[bytes], Awaitable[bytes]] = _refuse_command
        groups = self._open_groups()
        self.groups: Final = GroupCoordinator(groups)
        self.offsets: Final = OffsetCoordinator(groups)
        self.coordinators: Final = Coordinators(self)
        self.blocked_count = 0  # requests that wait for a thread
        # One thread for whatever changes topics, so that two changes never meet.
        self._admin = ThreadPoolExecutor(1, "admin")
        self._disk = ThreadPoolExecutor(_DISK_THREADS, "disk")

    def apply_config(self, level: str, values: Mapping[str, str]) -> None:
        """Replace the dynamic settings of one level, and act on them."""
        self.server_config = self.dynamic.put(level, values)
        self.manager.set_defaults(self.server_config.topic_defaults)

    async def change(self, work: Callable[[], T]) -> T:
        """Run what changes topics or their settings: one at a time, off the event loop."""
        return await self._run(self._admin, work)

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run what may wait for the disk, off the event loop."""
        return await self._run(self._disk, work)

    async def _run(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        self.blocked_count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work)
        finally:
            self.blocked_count -= 1

    def _open_groups(self) -> GroupRegistry:
        config: GroupConfig = self.server_config.broker
        topic = StateTopic(
            BrokerLogs(self),
            self.clock,
            StateTopicConfig(
                CONSUMER_OFFSETS,
                config.offsets_topic_num_partitions,
                config.offsets_topic_segment_bytes,
                "producer",
                config.offsets_load_buffer_size,
                Codec(config.offsets_topic_compression_codec),
            ),
        )
        topics = BrokerTopics(self.manager, self.partitions)
        registry = GroupRegistry(topic, self.clock, topics, lambda: self.server_config.broker)
        registry.load()
        return registry

    def close(self) -> None:
        """End the threads, once their work is done."""
        self._admin.shutdown()
        self._disk.shutdown()


async def _refuse_command(question: bytes) -> bytes:
    return encode_answer({"error": "the broker is not ready for commands"}, b"")


def _first_free_producer_id(manager: LogManager) -> int:
    """Return a number above all that the logs know: another broker may have given them."""
    return 1 + max(
        (i for log in manager.logs.values() for i in log.producer_state.entries), default=-1
    )
