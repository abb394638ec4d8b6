"""The records of `__transaction_state`, in Kafka's schema: TransactionLogKey and -Value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from siltstone.coordinator.fields import FieldReader, FieldWriter
from siltstone.coordinator.transaction.state import Status, Transaction
from siltstone.errors import MalformedDataError
from siltstone.ids import TopicPartition
from siltstone.records.layout import NO_PRODUCER_ID

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1  # flexible; version 0 is read, as older Kafkas wrote it
_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2


def encode_key(transactional_id: str) -> bytes:
    """Write the key of a transactional id."""
    writer = FieldWriter()
    writer.int16(_KEY_VERSION)
    writer.string(transactional_id)
    return writer.done()


def decode_key(key: bytes) -> str | None:
    """Return the transactional id of a key; None if it is a key of a later Kafka."""
    reader = FieldReader(key)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def encode_value(txn: Transaction) -> bytes:
    """Write the state of a transactional id."""
    writer = FieldWriter()
    writer.int16(_VALUE_VERSION)
    writer.int64(txn.producer_id)
    writer.int16(txn.epoch)
    writer.int32(txn.timeout_ms)
    writer.int8(txn.status)
    if txn.status is Status.EMPTY:
        writer.uvarint(0)  # null: an id without a transaction has no partitions, not even none
    else:
        _write_partitions(writer, txn.numbers_by_topic())
    writer.int64(txn.updated_ms)
    writer.int64(txn.started_ms)
    tags = {}
    if txn.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID] = txn.previous_producer_id.to_bytes(8, "big")
    if txn.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID] = txn.next_producer_id.to_bytes(8, "big")
    if txn.client_version:
        tags[_CLIENT_VERSION] = txn.client_version.to_bytes(2, "big")
    writer.tags(tags)
    return writer.done()


def _write_partitions(writer: FieldWriter, numbers: Mapping[str, Sequence[int]]) -> None:
    def write_topic(topic: str) -> None:
        writer.compact_string(topic)
        writer.compact_array(numbers[topic], writer.int32)
        writer.tags()

    writer.compact_array(list(numbers), write_topic)


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Read the state of a transactional id, as we or any Kafka wrote it."""
    reader = FieldReader(value)
    version = reader.int16()
    if version not in (0, _VALUE_VERSION):
        raise MalformedDataError(0, f"unknown version {version} of a transaction's state")
    is_flexible = version == _VALUE_VERSION
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    status = Status(reader.int8())
    partitions = frozenset(_read_partitions(reader, is_flexible))
    updated_ms, started_ms = reader.int64(), reader.int64()
    tags = reader.tags() if is_flexible else {}
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        status=status,
        partitions=partitions,
        updated_ms=updated_ms,
        started_ms=started_ms,
        previous_producer_id=_tag(tags, _PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        next_producer_id=_tag(tags, _NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        client_version=_tag(tags, _CLIENT_VERSION, 0),
    )


def _read_partitions(reader: FieldReader, is_flexible: bool) -> Iterable[TopicPartition]:
    count = reader.uvarint() - 1 if is_flexible else reader.int32()
    for _ in range(count):
        if is_flexible:
            topic, numbers = reader.compact_string(), reader.compact_array(reader.int32)
            reader.tags()
        else:
            topic, numbers = reader.string(), reader.array(reader.int32)
        for number in numbers:
            yield TopicPartition(topic, number)


def _tag(tags: dict[int, bytes], number: int, default: int) -> int:
    return int.from_bytes(tags[number], "big", signed=True) if number in tags else default
