"""Records on their way into a topic: given a partition, gathered into batches, appended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from siltstone.cli.record_input import KeyValue
from siltstone.clock import Clock
from siltstone.errors import RequestError
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.partitioner import DEFAULT_PARTITIONER, PARTITIONERS
from siltstone.records.record import Header, Record

MAX_BATCH_RECORDS: Final = 1000
MAX_BATCH_BYTES: Final = 1 << 20
_MAX_RECORD_OVERHEAD: Final = 36  # all varints of a record at their longest
_MAX_HEADER_OVERHEAD: Final = 10


class PartitionChooser(Protocol):
    """Decides where records go."""

    def choose(self, key: bytes | None) -> int:
        """Return the partition of a record."""
        ...

    def on_append(self, partition: int) -> None:
        """Learn that a batch was appended to a partition."""
        ...


class Placed(Protocol):
    """Where a batch has come to lie."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class AppendedLog(Protocol):
    """A log to append to: one of this process, or one behind a broker."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def config(self) -> LogConfig: ...
    def append(self, batch: bytes, /) -> Placed: ...
    def flush(self) -> None: ...


@dataclass(slots=True)
class PartitionResult:
    """What one partition was given."""

    partition: int
    first_offset: int
    last_offset: int
    record_count: int
    size_bytes: int


@dataclass(slots=True)
class _Pending:
    """The records that wait to become a batch of one partition."""

    records: list[Record] = field(default_factory=list)
    size_bytes: int = HEADER_SIZE


class TopicWriter:
    """Appends records to the partitions of one topic, in batches.

    What was sent is in the log after `flush`, and survives a loss of power.
    """

    def __init__(
        self,
        logs: Mapping[int, AppendedLog],
        chooser: PartitionChooser,
        codec: Codec,
        headers: tuple[Header, ...],
        clock: Clock,
    ) -> None:
        self.results: dict[int, PartitionResult] = {}
        self.record_count = 0
        self._logs = logs
        self._chooser = chooser
        self._codec = codec
        self._headers = headers
        self._clock = clock
        self._pending: dict[int, _Pending] = {}

    def send(self, pair: KeyValue) -> None:
        """Take a record; it is appended when its batch is full, or with `flush`."""
        self.record_count += 1
        partition = self._chooser.choose(pair.key)
        log = self._logs[partition]
        if pair.key is None and log.config.is_compacted:
            raise RequestError(
                f"record {self.record_count} has no key: topic {log.partition.topic} is "
                "compacted, use -K or -k"
            )
        limit_bytes = min(MAX_BATCH_BYTES, log.config.max_message_bytes, log.config.segment_bytes)
        size_bytes = self._size(pair)
        pending = self._pending.setdefault(partition, _Pending())
        if pending.records and pending.size_bytes + size_bytes > limit_bytes:
            self._append(partition)
            pending = self._pending[partition] = _Pending()
        pending.records.append(
            Record(
                len(pending.records),
                self._clock.now_ms(),
                pair.key,
                pair.value,
                self._headers,
            )
        )
        pending.size_bytes += size_bytes
        if len(pending.records) >= MAX_BATCH_RECORDS or pending.size_bytes >= limit_bytes:
            self._append(partition)

    def flush(self) -> None:
        """Append what waits, and make all of it durable."""
        for partition in list(self._pending):
            self._append(partition)
        for partition in self.results:
            self._logs[partition].flush()

    def _append(self, partition: int) -> None:
        records = self._pending.pop(partition).records
        if not records:
            return
        info = self._logs[partition].append(build_batch(records, codec=self._codec))
        self._chooser.on_append(partition)
        result = self.results.setdefault(
            partition, PartitionResult(partition, info.first_offset, 0, 0, 0)
        )
        result.last_offset = info.last_offset
        result.record_count += len(records)
        result.size_bytes += info.size_bytes

    def _size(self, pair: KeyValue) -> int:
        """Return the most that a record can take in a batch."""
        headers = sum(
            len(name.encode("utf-8", "replace")) + len(value or b"") + _MAX_HEADER_OVERHEAD
            for name, value in self._headers
        )
        return len(pair.key or b"") + len(pair.value or b"") + headers + _MAX_RECORD_OVERHEAD


class ByKey:
    """Chooses as a client would: by key, or one partition after the other where there is none."""

    def __init__(self, partition_count: int, partitioner: str, chance: Random) -> None:
        self._partition_count = partition_count
        self._partitioner = PARTITIONERS[partitioner]
        self._chance = chance
        # Java's client fills a batch before it goes on to another partition; to draw for each
        # record would give as many batches as records.
        self._is_sticky = partitioner == DEFAULT_PARTITIONER
        self._sticky = chance.randrange(partition_count)

    def choose(self, key: bytes | None) -> int:
        """Return the partition of a record."""
        if key is None and self._is_sticky:
            return self._sticky
        return self._partitioner(key, self._partition_count, self._chance)

    def on_append(self, partition: int) -> None:
        """Go on to the next partition once a batch is full."""
        if partition == self._sticky:
            self._sticky = (partition + 1) % self._partition_count


class Fixed:
    """Always the partition that the user has chosen."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def choose(self, key: bytes | None) -> int:
        """Return the partition."""
        return self._partition

    def on_append(self, partition: int) -> None:
        """Stay."""
