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


class _Append(NamedTuple):
    """One batch and where it goes; or why it goes nowhere."""

    number: int
    partition: Partition | None
    records: bytes
    error: SiltstoneError | None
    membership: Membership | None = None  # in the transaction that the batch belongs to


class _Topic(NamedTuple):
    name: str
    data: Any
    appends: list[_Append]


def handle(broker: Broker, request: Request) -> Payload | Awaitable[Payload | None] | None:
    """Append, and answer once the records are where the producer wants them."""
    topics = [_look_up(broker, request, data) for data in request.body.topic_data]
    if request.body.transactional_id is not None:
        topics = _admit(broker, request, topics)
    leaves_loop = any(
        append.partition is not None and append.partition.leaves_loop(append.records)
        for topic in topics
        for append in topic.appends
    )
    if leaves_loop:
        return _handle_blocking(broker, request, topics)
    return _answer(request, topics, [_append_all(topic) for topic in topics])


def _admit(broker: Broker, request: Request, topics: list[_Topic]) -> list[_Topic]:
    """Let only those batches through that may be written in their transaction."""
    members = [a.membership for t in topics for a in t.appends if a.membership is not None]
    refused = admit(broker, request, members)
    if not refused:
        return topics
    return [
        topic._replace(
            appends=[
                append._replace(partition=None, error=refused[append.membership])
                if append.membership in refused
                else append
                for append in topic.appends
            ]
        )
        for topic in topics
    ]


async def _handle_blocking(
    broker: Broker, request: Request, topics: list[_Topic]
) -> Payload | None:
    done = await broker.blocking(lambda: [_append_all(topic) for topic in topics])
    return _answer(request, topics, done)


def _look_up(broker: Broker, request: Request, data: Any) -> _Topic:
    version = request.version
    name: str | None = (
        broker.partitions.find_name(data.topic_id) if version >= _FIRST_WITH_IDS else data.name
    )
    appends = []
    for part in data.partition_data:
        partition = None
        membership = None
        error: SiltstoneError | None = None
        records = part.records or b""
        try:
            _check_acks(request.body.acks)
            if name is None:
                raise ProtocolError(ErrorCode.unknown_topic_id, f"no topic {data.topic_id}")
            _check_topic(name, request)
            partition = broker.partitions.get(name, part.index)
            # Of `min.insync.replicas` no more than there are replicas count, which is one.
            if _check_batch(str(partition.log.partition), records, request) & TRANSACTIONAL_BIT:
                membership = membership_of(broker, request, partition.log.partition, records)
        except SiltstoneError as refusal:
            partition, error = None, refusal
        appends.append(_Append(part.index, partition, records, error, membership))
    return _Topic(name or "", data, appends)


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


def _append_all(topic: _Topic) -> list[AppendInfo | Exception]:
    """Append what can be; may run on another thread."""
    done: list[AppendInfo | Exception] = []
    for append in topic.appends:
        if append.partition is None:
            assert append.error is not None
            done.append(append.error)
            continue
        try:
            log = append.partition.log
            if append.membership is None:
                done.append(log.append(append.records))
                continue
            with log.exclusively():
                # Here, so that no marker comes between this and the append.
                append.membership.check()
                done.append(log.append(append.records))
        except Exception as error:  # noqa: BLE001 - one partition must not stop the others
            done.append(error)
    return done


def _answer(
    request: Request, topics: list[_Topic], done: list[list[AppendInfo | Exception]]
) -> Payload | None:
    answers = []
    failed = False
    for topic, infos in zip(topics, done, strict=True):
        partitions = []
        for append, info in zip(topic.appends, infos, strict=True):
            if isinstance(info, Exception):
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
