"""Fetch: records from some partitions, or a wait until there are enough of them.

What is found are ranges of files; they are read when they are sent, by the kernel. A fetch that
finds too little waits in the purgatory and looks again when something was appended.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.broker.answers import Fetched, FetchedTopic, encode_fetched
from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import ProtocolError, code_of
from siltstone.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, Wanted
from siltstone.broker.leadership import check_leader_epoch, find_divergence
from siltstone.broker.messages import milliseconds
from siltstone.broker.partitions import Partition
from siltstone.broker.wire import Payload, Request
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.records.compression import Codec

_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_IDS: Final = 13
_FIRST_WITH_ZSTD: Final = 10
_READ_COMMITTED: Final = 1


class _Found(NamedTuple):
    """What one look at all partitions has brought."""

    answers: list[tuple[Wanted, Fetched]]
    size_bytes: int
    has_error: bool
    partitions: list[Partition]


class _Fetch(NamedTuple):
    """What a request asks for, whatever its version."""

    wanted: Sequence[Wanted]
    max_bytes: int
    min_bytes: int
    isolation: Isolation
    version: int
    session: FetchSession | None
    is_incremental: bool


def handle(broker: Broker, request: Request) -> Payload | Awaitable[Payload]:
    """Answer at once if there is enough, something is wrong, or the client does not wait."""
    body = request.body
    try:
        fetch = _parse(broker, request)
    except ProtocolError as error:
        return encode_fetched([], request.version, error_code=int(error.code))
    found = _look(broker, fetch)
    wait_ms = milliseconds(body.max_wait)
    if not isinstance(found, PartitionLog) and (_is_enough(fetch, found) or wait_ms <= 0):
        return _answer(fetch, found)
    return _wait(broker, fetch, found, wait_ms / 1000)


def _is_enough(fetch: _Fetch, found: _Found) -> bool:
    return found.size_bytes >= fetch.min_bytes or found.has_error or not fetch.wanted


async def _wait(
    broker: Broker, fetch: _Fetch, found: _Found | PartitionLog, wait_seconds: float
) -> Payload:
    deadline = asyncio.get_running_loop().time() + wait_seconds
    if isinstance(found, PartitionLog):
        found = await _look_when_free(broker, fetch, found)
    while wait_seconds > 0 and not _is_enough(fetch, found):
        needs_bytes = fetch.min_bytes - found.size_bytes
        if fetch.isolation is Isolation.COMMITTED:
            needs_bytes = 0  # A marker of a few bytes may set many free.
        in_time = await broker.purgatory.wait(found.partitions, needs_bytes, deadline)
        seen = _look(broker, fetch)
        found = (
            await _look_when_free(broker, fetch, seen) if isinstance(seen, PartitionLog) else seen
        )
        if not in_time:
            break
    return _answer(fetch, found)


def _parse(broker: Broker, request: Request) -> _Fetch:
    body = request.body
    version = request.version
    uses_ids = version >= _FIRST_WITH_IDS
    wanted = list(_iter_wanted(broker, body.topics, uses_ids))
    session = None
    is_incremental = False
    if version >= _FIRST_WITH_SESSIONS:
        session_id, epoch = body.session_id, body.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            broker.sessions.remove(session_id)
            if epoch == INITIAL_EPOCH:
                session = broker.sessions.maybe_create(wanted, uses_ids=uses_ids)
        else:
            session = broker.sessions.get(session_id, epoch, uses_ids=uses_ids)
            session.update(wanted, _iter_forgotten(body.forgotten_topics_data, uses_ids))
            wanted = list(session.wanted.values())
            is_incremental = True
    return _Fetch(
        wanted,
        min(body.max_bytes, broker.server_config.broker.fetch_max_bytes),
        body.min_bytes,
        Isolation.COMMITTED
        if body.isolation_level == _READ_COMMITTED
        else Isolation.HIGH_WATERMARK,
        version,
        session,
        is_incremental,
    )


def _iter_wanted(broker: Broker, topics: Iterable[Any], uses_ids: bool) -> Iterable[Wanted]:
    for topic in topics:
        topic_id: uuid.UUID | None = topic.topic_id if uses_ids else None
        name = broker.partitions.find_name(topic_id) if uses_ids else topic.topic
        for part in topic.partitions:
            yield Wanted(
                name or "",
                topic_id,
                part.partition,
                part.fetch_offset,
                part.partition_max_bytes,
                getattr(part, "current_leader_epoch", -1),
                getattr(part, "last_fetched_epoch", -1),
            )


def _iter_forgotten(topics: Iterable[Any], uses_ids: bool) -> Iterable[tuple[object, int]]:
    for topic in topics:
        for number in topic.partitions:
            yield (topic.topic_id if uses_ids else topic.topic, number)


async def _look_when_free(broker: Broker, fetch: _Fetch, busy: PartitionLog) -> _Found:
    """Let others be served until those who hold a log still have done with the disk."""
    while True:
        await broker.blocking(busy.wait_until_free)
        found = _look(broker, fetch)
        if not isinstance(found, PartitionLog):
            return found
        busy = found


def _look(broker: Broker, fetch: _Fetch) -> _Found | PartitionLog:
    """Read from all partitions, in order, as much as the limits allow; or return a busy log."""
    answers: list[tuple[Wanted, Fetched]] = []
    partitions = []
    left_bytes = fetch.max_bytes
    size_bytes = 0
    has_error = False
    for wanted in fetch.wanted:
        try:
            partition = _get_partition(broker, wanted)
            if partition.log.is_busy:
                return partition.log
            # The very first batch comes whole, or a large one would never get through.
            fetched = _read(partition, wanted, fetch, left_bytes, min_one_batch=not size_bytes)
        except Exception as error:  # noqa: BLE001 - one partition must not stop the others
            code = code_of(error, f"fetch from {wanted.topic}-{wanted.partition}")
            answers.append((wanted, Fetched(wanted.partition, int(code), aborted=())))
            has_error = True
            continue
        partitions.append(partition)
        answers.append((wanted, fetched))
        has_error |= fetched.diverging is not None
        if fetched.records is not None:
            size_bytes += fetched.records.size_bytes
            left_bytes = max(0, left_bytes - fetched.records.size_bytes)
    return _Found(answers, size_bytes, has_error, partitions)


def _get_partition(broker: Broker, wanted: Wanted) -> Partition:
    if not wanted.topic:
        # It may have come about since the session began.
        wanted.topic = broker.partitions.find_name(wanted.topic_id) or ""
    if not wanted.topic:
        raise ProtocolError(ErrorCode.unknown_topic_id, f"no topic {wanted.topic_id}")
    partition = broker.partitions.get(wanted.topic, wanted.partition)
    if wanted.topic_id is not None and partition.topic_id != wanted.topic_id:
        raise ProtocolError(
            ErrorCode.unknown_topic_id, f"topic {wanted.topic} was deleted and made anew"
        )
    return partition


def _read(
    partition: Partition, wanted: Wanted, fetch: _Fetch, left_bytes: int, *, min_one_batch: bool
) -> Fetched:
    log = partition.log
    check_leader_epoch(log, wanted.leader_epoch)
    if fetch.version < _FIRST_WITH_ZSTD and log.config.compression_type is Codec.ZSTD:
        raise ProtocolError(
            ErrorCode.unsupported_compression_type, "zstd needs Fetch version 10 or newer"
        )
    diverging = find_divergence(log, wanted.last_fetched_epoch, wanted.offset)
    if diverging is not None:
        return Fetched(
            wanted.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            diverging=diverging,
        )
    result = log.read(
        wanted.offset,
        min(wanted.max_bytes, left_bytes),
        fetch.isolation,
        min_one_batch=min_one_batch,
    )
    return Fetched(
        wanted.partition,
        0,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.aborted if fetch.isolation is Isolation.COMMITTED else None,
        result.slice,
    )


def _answer(fetch: _Fetch, found: _Found) -> Payload:
    session = fetch.session
    answers = found.answers
    if session is not None:
        told = [
            (wanted, fetched)
            for wanted, fetched in answers
            if wanted.is_news(fetched.high_watermark, fetched.log_start_offset)
            or fetched.records is not None
            or fetched.error_code
            or fetched.diverging is not None
        ]
        if fetch.is_incremental:
            answers = told
        session.serve_last(wanted for wanted, fetched in answers if fetched.records is not None)
    topics: dict[object, FetchedTopic] = {}
    for wanted, fetched in answers:
        key = wanted.topic_id or wanted.topic
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchedTopic(wanted.topic, wanted.topic_id, [])
        topic.partitions.append(fetched)
    return encode_fetched(
        list(topics.values()),
        fetch.version,
        session_id=0 if session is None else session.session_id,
    )
