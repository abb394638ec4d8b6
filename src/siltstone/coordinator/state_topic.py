"""The state of a coordinator, in an internal compacted topic: written first, then acted upon.

Each group, or transactional id, belongs to one partition of its topic, by Java's hash of its name:
any Kafka that reads the topic finds it there. What the coordinator knows is what a replay of that
partition gives, so that it starts again where it ended, whatever ended it.

Everything here runs on the event loop of the broker, which is the only one that appends. An append
goes to the page cache; it waits for the disk only where a partition is new or its segment full.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from siltstone.clock import Clock
from siltstone.errors import TopicExistsError
from siltstone.log.append_info import AppendInfo
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.records.batch import Batch
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from siltstone.records.record import Record

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

# A coordinator gives the producer's batches no numbers of their own; Kafka writes this, too.
_FIRST_SEQUENCE: Final = 0
_MIN_INT: Final = -(2**31)
_CACHED_NAMES: Final = 4096


class OwnedPartition(Protocol):
    """A partition whose log may be appended to."""

    log: PartitionLog

    def appended(self, size_bytes: int) -> None:
        """Let what was appended be read."""
        ...


class OwnedLogs(Protocol):
    """What a coordinator needs of the broker that it is a part of."""

    def find_partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, or None if there is no such topic."""
        ...

    async def create_topic(self, topic: str, count: int, config: Mapping[str, str]) -> None:
        """Create a topic; raise TopicExistsError if there is one of that name."""
        ...

    def get_partition(self, topic: str, number: int) -> OwnedPartition:
        """Return a partition; raise UnknownTopicError, or StorageError if it is not served."""
        ...


@dataclass(frozen=True, slots=True)
class StateTopicConfig:
    """How an internal topic is made when it is first needed."""

    topic: str
    partition_count: int
    segment_bytes: int
    compression_type: str  # as Kafka's coordinators set it for their topic
    load_buffer_bytes: int = 5 << 20  # how much is read at a time after a start
    codec: Codec = Codec.NONE  # of the batches that are written

    def topic_config(self) -> dict[str, str]:
        """Return the settings of the topic."""
        return {
            "cleanup.policy": "compact",
            "compression.type": self.compression_type,
            "segment.bytes": str(self.segment_bytes),
        }


class KeyedValue(NamedTuple):
    """One record to be written; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction records are written: they count once it commits."""

    producer_id: int
    epoch: int


class StateTopic:
    """One internal topic."""

    def __init__(self, logs: OwnedLogs, clock: Clock, config: StateTopicConfig) -> None:
        self._logs: Final = logs
        self._clock: Final = clock
        self.config: Final = config

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.config.topic

    @property
    def exists(self) -> bool:
        """Whether the topic has been made: before that there is no state."""
        return self._logs.find_partition_count(self.topic) is not None

    @property
    def partition_count(self) -> int:
        """How many partitions there are, or will be once the topic is made."""
        return self._logs.find_partition_count(self.topic) or self.config.partition_count

    async def ensure(self) -> None:
        """Make the topic unless it is there."""
        if self.exists:
            return
        # Another request may have been faster, which is as good.
        with contextlib.suppress(TopicExistsError):
            await self._logs.create_topic(
                self.topic, self.config.partition_count, self.config.topic_config()
            )

    def partition_for(self, name: str) -> int:
        """Return the partition that a group or a transactional id belongs to."""
        return _absolute(java_hash(name)) % self.partition_count

    def coordinator_epoch(self, partition: int) -> int:
        """Return the epoch of this coordinator: that of the leader of its partition."""
        return self._logs.get_partition(self.topic, partition).log.latest_epoch

    def log(self, partition: int) -> PartitionLog:
        """Return the log of a partition; raise StorageError if it is not served."""
        return self._logs.get_partition(self.topic, partition).log

    def append(
        self,
        partition: int,
        records: Sequence[KeyedValue],
        producer: TransactionalProducer | None = None,
    ) -> AppendInfo:
        """Append records as one batch; they are in the log, and may be read, when this returns."""
        now_ms = self._clock.now_ms()
        owned = self._logs.get_partition(self.topic, partition)
        batch = build_batch(
            [Record(i, now_ms, one.key, one.value) for i, one in enumerate(records)],
            codec=self.config.codec,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.epoch,
            base_sequence=NO_SEQUENCE if producer is None else _FIRST_SEQUENCE,
            is_transactional=producer is not None,
        )
        info = owned.log.append(batch, origin=AppendOrigin.COORDINATOR)
        owned.appended(info.size_bytes)
        return info

    def replay(self, partition: int) -> Iterator[Batch]:
        """Yield every batch of a partition, oldest first, markers of transactions among them.

        Nothing may be appended to the partition meanwhile that is to be seen or not to be seen.
        """
        log = self._logs.get_partition(self.topic, partition).log
        next_offset = log.log_start_offset
        while next_offset < log.log_end_offset:
            found = log.read(next_offset, self.config.load_buffer_bytes, Isolation.LOG_END)
            before = next_offset
            for batch in found.batches():
                next_offset = batch.header.next_offset
                yield batch
            if next_offset == before:
                return  # The rest was compacted away.


@lru_cache(_CACHED_NAMES)
def java_hash(text: str) -> int:
    """Return what `String.hashCode` returns: over UTF-16, in 32 bits with a sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _absolute(value: int) -> int:
    """Return Kafka's absolute value, which knows none for the lowest number."""
    return 0 if value == _MIN_INT else abs(value)
