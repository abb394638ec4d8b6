"""What readers get out of a partition, Kafka's and ours, in one form that can be compared."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import AbortedFilter, Isolation
from siltstone.records.batch import Batch, TimestampType
from siltstone.records.record import Header
from tests.kafka.harness import Harness
from tests.kafka.states import Consumed

_READ_BYTES: Final = 4096  # small, so that a test reads more than once

IsolationLevel = Literal["read_uncommitted", "read_committed"]


class ReadRecord(NamedTuple):
    """A record, with all that a consumer can tell of it."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def read_with_kafka(
    harness: Harness,
    bootstrap: str,
    topic: str,
    partition: int = 0,
    *,
    isolation: IsolationLevel = "read_uncommitted",
) -> list[ReadRecord]:
    """Read a partition from its beginning to its end with Kafka's Java consumer."""
    return records_of(harness.consume(bootstrap, topic, partition, isolation=isolation))


def records_of(consumed: Consumed) -> list[ReadRecord]:
    """Give what Kafka's consumer has got in our form."""
    return [
        ReadRecord(r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers)
        for r in consumed.records
    ]


def read_with_ours(log: PartitionLog, isolation: Isolation = Isolation.LOG_END) -> list[ReadRecord]:
    """Read a log of ours from its start as a consumer does: no markers, nothing aborted."""
    records: list[ReadRecord] = []
    offset = log.log_start_offset
    while True:
        result = log.read(offset, _READ_BYTES, isolation)
        hidden = AbortedFilter(result.aborted)
        batches = list(result.batches())
        if not batches:
            return records
        for batch in batches:
            if not hidden.hides(batch):
                records += (r for r in visible_records(batch) if r.offset >= offset)
        offset = batches[-1].header.next_offset


def visible_records(batch: Batch) -> Iterable[ReadRecord]:
    """Give the records of a batch, none if it is for brokers only."""
    if batch.header.is_control:
        return ()
    is_append_time = batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    timestamp_type = "LogAppendTime" if is_append_time else "CreateTime"
    return [
        ReadRecord(r.offset, r.timestamp_ms, timestamp_type, r.key, r.value, r.headers)
        for r in batch.iter_records()
    ]
