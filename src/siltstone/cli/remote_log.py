"""One partition behind a broker, for `silt produce` and `silt consume`."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.broker.kafka_client import KafkaClient
from siltstone.broker.wire import FETCH, LIST_OFFSETS, PRODUCE
from siltstone.errors import (
    BrokerError,
    OffsetOutOfRangeError,
    RequestError,
    UnknownTopicError,
)
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.reading import Isolation
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import read_header

_TIMEOUT_MS: Final = 60_000
_CLIENT: Final = -1  # no replica
_ALL: Final = -1
_LATEST: Final = -1
_EARLIEST: Final = -2
_NONE: Final = -1
_READ_COMMITTED: Final = 1


class Appended(NamedTuple):
    """Where a batch has come to lie."""

    first_offset: int
    last_offset: int
    size_bytes: int


class Fetched(NamedTuple):
    """Whole batches, the last one perhaps cut off, and who of their producers gave up."""

    records: bytes
    aborted: Sequence[AbortedTxn]
    log_start_offset: int


class RemoteLog:
    """A log that a broker owns."""

    def __init__(self, client: KafkaClient, partition: TopicPartition, config: LogConfig) -> None:
        self.partition: Final = partition
        self.config: Final = config
        self._client = client

    def append(self, batch: bytes) -> Appended:
        """Append a batch; all replicas have it when this returns."""
        data = {"index": self.partition.partition, "records": batch}
        answer = self._client.ask(
            PRODUCE,
            9,
            transactional_id=None,
            acks=_ALL,
            timeout=_TIMEOUT_MS,
            topic_data=[{"name": self.partition.topic, "partition_data": [data]}],
        )
        result = answer.responses[0].partition_responses[0]
        self._check(result)
        count = read_header(batch).record_count
        return Appended(result.base_offset, result.base_offset + count - 1, len(batch))

    def flush(self) -> None:
        """Do nothing: what the broker has acknowledged is as durable as its settings say."""

    def fetch(self, offset: int, max_bytes: int, isolation: Isolation) -> Fetched:
        """Read what there is from an offset on, without waiting for more."""
        wanted = {
            "partition": self.partition.partition,
            "fetch_offset": offset,
            "partition_max_bytes": max_bytes,
        }
        answer = self._client.ask(
            FETCH,
            12,
            replica_id=_CLIENT,
            max_wait=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=_level(isolation),
            topics=[{"topic": self.partition.topic, "partitions": [wanted]}],
            forgotten_topics_data=(),
        )
        if answer.error_code is not ErrorCode.none:
            raise BrokerError(f"{self.partition}: {answer.error_code.name}")
        result = answer.responses[0].partitions[0]
        if result.error_code is ErrorCode.offset_out_of_range:
            raise OffsetOutOfRangeError(str(self.partition), offset, self.log_start_offset, _NONE)
        self._check(result)
        aborted = [
            AbortedTxn(txn.producer_id, txn.first_offset, txn.first_offset, _NONE)
            for txn in result.aborted_transactions or ()
        ]
        return Fetched(bytes(result.records or b""), aborted, result.log_start_offset)

    @property
    def log_start_offset(self) -> int:
        """The lowest offset that may be asked for."""
        return self._list_offsets(_EARLIEST, Isolation.HIGH_WATERMARK)

    def end_offset(self, isolation: Isolation) -> int:
        """Return the offset up to which a consumer may read."""
        return self._list_offsets(_LATEST, isolation)

    def find_offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record at or after a time; None if there is none."""
        found = self._list_offsets(timestamp_ms, Isolation.HIGH_WATERMARK)
        return None if found == _NONE else TimestampOffset(timestamp_ms, found)

    def _list_offsets(self, timestamp: int, isolation: Isolation) -> int:
        part = {"partition_index": self.partition.partition, "timestamp": timestamp}
        answer = self._client.ask(
            LIST_OFFSETS,
            7,
            replica_id=_CLIENT,
            isolation_level=_level(isolation),
            topics=[{"name": self.partition.topic, "partitions": [part]}],
        )
        result = answer.topics[0].partitions[0]
        self._check(result)
        offset: int = result.offset
        return offset

    def _check(self, result: Any) -> None:
        code: ErrorCode = result.error_code
        if code is ErrorCode.none:
            return
        if code is ErrorCode.unknown_topic_or_partition:
            raise UnknownTopicError(self.partition.topic, self.partition.partition)
        message = getattr(result, "error_message", None) or f"{self.partition}: {code.name}"
        raise (BrokerError if code.retriable else RequestError)(message)


def _level(isolation: Isolation) -> int:
    return _READ_COMMITTED if isolation is Isolation.COMMITTED else 0
