"""Produce: append one batch to each of some partitions.

The batches stay the bytes that the producer sent; what is checked, and how they are stamped, is
`PartitionLog.append`'s. An append goes to the page cache on the event loop, unless it may have to
wait for the disk.
"""

import struct
from collections.abc import Awaitable
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.broker.answers import Produced, ProducedTopic, encode_produced
from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import ProtocolError, code_of, describe
from siltstone.broker.handlers.produce_transactions import Membership, admit, membership_of
from siltstone.broker.internal_topics import is_internal
from siltstone.broker.partitions import Partition
from siltstone.broker.wire import BadFrameError, Payload, Request
from siltstone.errors import InvalidRecordError, SiltstoneError
from siltstone.log.append_info import AppendInfo
from siltstone.records.layout import TRANSACTIONAL_BIT

ALL_REPLICAS: Final = -1
_ADMIN_CLIENT: Final = "__admin_client"  # as tools call themselves that know what they do
_LEGAL_ACKS: Final = (ALL_REPLICAS, 0, 1)
_FIRST_WITH_IDS: Final = 13
_FIRST_WITH_ZSTD: Final = 7
_ZSTD: Final = 4
_CODEC_MASK: Final = 7
_HEAD: Final = struct.Struct(">qiibIh")  # up to the attributes
_MIN_LENGTH: Final = 14


class _Append:
    """One batch, where it goes, and what came of it."""

    __slots__ = ("membership", "number", "outcome", "partition", "records")

    def __init__(self, number: int, records: bytes) -> None:
        self.number = number
        self.records = records
        self.partition: Partition | None = None
        self.membership: Membership | None = None  # in the transaction that the batch belongs to
        self.outcome: AppendInfo | Exception | None = None  # not known yet


class _Topic(NamedTuple):
    name: str
    data: Any
    appends: list[_Append]


def handle(broker: Broker, request: Request) -> Payload | Awaitable[Payload | None] | None:
    """Append, and answer once the records are where the producer wants them."""
    topics = [_append_usual(broker, request, data) for data in request.body.topic_data]
    others = [append for topic in topics for append in topic.appends if append.outcome is None]
    if not others:
        return _answer(request, topics)
    _examine(broker, request, others)
    if any(
        append.partition is not None and append.partition.leaves_loop(append.records)
        for append in others
        if append.outcome is None
    ):
        return _handle_blocking(broker, request, topics, others)
    _append_all(others)
    return _answer(request, topics)


async def _handle_blocking(
    broker: Broker, request: Request, topics: list[_Topic], others: list[_Append]
) -> Payload | None:
    await broker.blocking(lambda: _append_all(others))
    return _answer(request, topics)


def _append_usual(broker: Broker, request: Request, data: Any) -> _Topic:
    """Look up the partitions of a topic, and append the batches that nothing speaks against."""
    partitions = broker.partitions
    name: str | None = (
        partitions.find_name(data.topic_id) if request.version >= _FIRST_WITH_IDS else data.name
    )
    appends = []
    for part in data.partition_data:
        append = _Append(part.number, part.records or b"")
        appends.append(append)
        try:
            _check_acks(request.body.acks)
            if name is None:
                raise ProtocolError(ErrorCode.unknown_topic_id, f"no topic {data.topic_id}")
            _check_topic(name, request)
            append.partition = partition = partitions.get(name, part.number)
            # Of `min.insync.replicas` no more than there are replicas count, which is one.
            if request.version >= _FIRST_WITH_ZSTD:
                append.outcome = partition.log.try_append(append.records)
        except Exception as error:  # noqa: BLE001 - one partition must not stop the others
            append.outcome = error
    return _Topic(name or "", data, appends)


def _examine(broker: Broker, request: Request, appends: list[_Append]) -> None:
    """Look at batches that are none of the usual: which are in transactions, which are refused."""
    for append in appends:
        assert append.partition is not None
        log = append.partition.log
        try:
            if _check_batch(str(log.partition), append.records, request) & TRANSACTIONAL_BIT:
                append.membership = membership_of(broker, request, log.partition, append.records)
        except SiltstoneError as refusal:
            append.outcome = refusal
    if request.body.transactional_id is not None:
        members = [append.membership for append in appends if append.membership is not None]
        refused = admit(broker, request, members)
        for append in appends:
            if append.membership in refused:
                append.outcome = refused[append.membership]


def _check_acks(acks: int) -> None:
    if acks not in _LEGAL_ACKS:
        raise ProtocolError(ErrorCode.invalid_required_acks, f"acks must be -1, 0 or 1, got {acks}")


def _check_topic(name: str, request: Request) -> None:
    if is_internal(name) and request.client_id != _ADMIN_CLIENT:
        raise ProtocolError(
            ErrorCode.invalid_topic_exception, f"topic {name} is written by brokers only"
        )


def _check_batch(partition: str, records: bytes, request: Request) -> int:
    """Refuse what the log would take for damage, with the code that clients know for it.

    Return the attributes of the batch.
    """
    if len(records) < _HEAD.size:
        raise InvalidRecordError(partition, "a request must hold one batch for each partition")
    _, length, _, magic, _, attributes = _HEAD.unpack_from(records)
    if length < _MIN_LENGTH or magic not in (0, 1, 2):
        raise ProtocolError(
            ErrorCode.corrupt_message, f"{partition}: a batch of length {length}, magic {magic}"
        )
    if magic != 2:
        raise InvalidRecordError(partition, f"magic {magic} is not taken any more, only 2")
    if attributes & _CODEC_MASK == _ZSTD and request.version < _FIRST_WITH_ZSTD:
        raise ProtocolError(
            ErrorCode.unsupported_compression_type, f"{partition}: zstd needs Produce version 7"
        )
    return int(attributes)


def _append_all(appends: list[_Append]) -> None:
    """Append what was not refused; may run on another thread."""
    for append in appends:
        if append.outcome is not None:
            continue
        assert append.partition is not None
        log = append.partition.log
        try:
            if append.membership is None:
                append.outcome = log.append(append.records)
                continue
            with log.exclusively():
                # Here, so that no marker comes between this and the append.
                append.membership.check()
                append.outcome = log.append(append.records)
        except Exception as error:  # noqa: BLE001 - one partition must not stop the others
            append.outcome = error


def _answer(request: Request, topics: list[_Topic]) -> Payload | None:
    answers = []
    failed = False
    for topic in topics:
        partitions = []
        for append in topic.appends:
            info = append.outcome
            if not isinstance(info, AppendInfo):
                assert info is not None
                failed = True
                partitions.append(_refused(append, info, request))
                continue
            assert append.partition is not None
            append.partition.appended(0 if info.is_duplicate else info.size_bytes)
            partitions.append(
                Produced(
                    append.number,
                    0,
                    info.first_offset,
                    info.log_append_time_ms,
                    info.log_start_offset,
                )
            )
        topic_id = topic.data.topic_id if request.version >= _FIRST_WITH_IDS else None
        answers.append(ProducedTopic(topic.name, topic_id, partitions))
    if request.body.acks == 0:
        if failed:
            # A producer that asks for no answer learns of a failure by losing its connection.
            raise BadFrameError(f"{request} without acks failed")
        return None
    return encode_produced(answers, request.version)


def _refused(append: _Append, error: Exception, request: Request) -> Produced:
    code = code_of(error, f"{request} to partition {append.number}")
    record_errors: list[tuple[int, str | None]] = []
    if isinstance(error, InvalidRecordError) and error.record_index is not None:
        record_errors = [(error.record_index, error.reason)]
    return Produced(
        append.number, int(code), error_message=describe(error), record_errors=record_errors
    )
