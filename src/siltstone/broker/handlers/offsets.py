"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit: how far groups have come."""

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import code_of
from siltstone.broker.group_answers import CommittedTopic, encode_committed
from siltstone.broker.handlers.produce_transactions import admit_offsets
from siltstone.broker.messages import Values, milliseconds
from siltstone.broker.wire import Payload, Request
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.offset_service import Committer, NewOffset
from siltstone.coordinator.group.records import OffsetKey
from siltstone.coordinator.group.topics import TopicInfo
from siltstone.coordinator.state_topic import TransactionalProducer
from siltstone.ids import TopicPartition

_FIRST_COMMIT_WITH_IDS: Final = 10
_FIRST_FETCH_WITH_IDS: Final = 10
_FIRST_WITH_GROUPS: Final = 8
_NO_OFFSET: Final = -1
# By whether the topic was named by an id that nobody knows.
_UNKNOWN: Final = {
    False: ErrorCode.unknown_topic_or_partition,
    True: ErrorCode.unknown_topic_id,
}


def handle_commit(broker: Broker, request: Request) -> Payload:
    """Write offsets down."""
    body = request.body
    committer = Committer(
        body.group_id,
        body.member_id,
        getattr(body, "group_instance_id", None),
        getattr(body, "generation_id_or_member_epoch", -1),
    )
    taken, answer = _sort(broker, body.topics, has_ids=request.version >= _FIRST_COMMIT_WITH_IDS)
    retention = getattr(body, "retention_time", None)
    retention_ms = None if retention is None else milliseconds(retention)
    try:
        codes = broker.offsets.commit(
            committer,
            taken,
            version=request.version,
            retention_ms=retention_ms if retention_ms is not None and retention_ms >= 0 else None,
        )
        broker.groups.touch(body.group_id, body.member_id)
    except GroupError as error:
        codes = [error.code] * len(taken)
    return encode_committed(_with_codes(answer, codes), request.version)


def handle_txn_commit(broker: Broker, request: Request) -> Values:
    """Write offsets down that count once a transaction commits."""
    body = request.body
    committer = Committer(
        body.group_id,
        getattr(body, "member_id", ""),
        getattr(body, "group_instance_id", None),
        getattr(body, "generation_id", -1),
    )
    taken, answer = _sort(broker, body.topics, has_ids=False)
    topic = broker.groups.registry.topic
    try:
        if taken:
            number = topic.partition_for(body.group_id)
            admit_offsets(broker, request, TopicPartition(topic.topic, number))
        codes = broker.offsets.commit_in_transaction(
            committer,
            taken,
            TransactionalProducer(body.producer_id, body.producer_epoch),
        )
        broker.groups.touch(body.group_id, committer.member_id)
    except Exception as error:  # noqa: BLE001 - its answer has a code for each partition only
        codes = [code_of(error, request)] * len(taken)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": code} for index, code in topic.codes
                ],
            }
            for topic in _with_codes(answer, codes)
        ]
    }


class _SortedTopic(NamedTuple):
    """The partitions of a topic as a client names them, those refused with a code already."""

    name: str
    topic_id: uuid.UUID | None
    partitions: list[tuple[int, ErrorCode | None]]


def _sort(
    broker: Broker, topics: Iterable[Any], *, has_ids: bool
) -> tuple[list[NewOffset], list[_SortedTopic]]:
    """Return what can be committed, and the places of everything in the answer."""
    taken: list[NewOffset] = []
    answer: list[_SortedTopic] = []
    for topic in topics:
        info = _find_topic(broker, topic, has_ids=has_ids)
        parts: list[tuple[int, ErrorCode | None]] = []
        for part in topic.partitions:
            index = part.partition_index
            if info is None or not 0 <= index < info.partition_count:
                parts.append((index, _UNKNOWN[has_ids and info is None]))
                continue
            parts.append((index, None))
            taken.append(
                NewOffset(
                    info.name,
                    index,
                    part.committed_offset,
                    getattr(part, "committed_leader_epoch", -1),
                    part.committed_metadata or "",
                    info.topic_id if has_ids else None,
                )
            )
        answer.append(
            _SortedTopic("", topic.topic_id, parts)
            if has_ids
            else _SortedTopic(topic.name, None, parts)
        )
    return taken, answer


def _with_codes(topics: Iterable[_SortedTopic], codes: Iterable[ErrorCode]) -> list[CommittedTopic]:
    """Put what became of the offsets that were taken where they stand in the answer."""
    given = iter(codes)
    return [
        CommittedTopic(
            topic.name,
            topic.topic_id,
            [(i, next(given) if code is None else code) for i, code in topic.partitions],
        )
        for topic in topics
    ]


def _find_topic(broker: Broker, topic: Any, *, has_ids: bool) -> TopicInfo | None:
    topics = broker.groups.registry.topics
    if has_ids:
        return None if topic.topic_id is None else topics.find_by_id(topic.topic_id)
    return topics.find(topic.name)


def handle_fetch(broker: Broker, request: Request) -> Values:
    """Say how far groups have come, in some partitions or in all."""
    body = request.body
    is_stable = getattr(body, "require_stable", False)
    if request.version >= _FIRST_WITH_GROUPS:
        groups = [_fetch(broker, request, group, is_stable) for group in body.groups]
        return {"groups": groups}
    return _fetch(broker, request, body, is_stable)


def _fetch(broker: Broker, request: Request, group: Any, is_stable: bool) -> dict[str, Any]:
    group_id: str = group.group_id
    try:
        broker.groups.check_fetch(
            group_id, getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
        )
    except GroupError as error:
        return _refused(request, group, error.code)
    topics = []
    for name, topic_id, numbers in _wanted(broker, request, group):
        parts = [
            _fetch_partition(broker, OffsetKey(group_id, name, number), is_stable)
            if name is not None
            else _absent(number, ErrorCode.unknown_topic_id)
            for number in numbers
        ]
        topics.append({"name": name, "topic_id": topic_id, "partitions": parts})
    return {"group_id": group_id, "topics": topics, "error_code": ErrorCode.none}


def _wanted(
    broker: Broker, request: Request, group: Any
) -> Iterator[tuple[str | None, uuid.UUID | None, Iterable[int]]]:
    topics = broker.groups.registry.topics
    has_ids = request.version >= _FIRST_FETCH_WITH_IDS
    if group.topics is None:
        for name, numbers in broker.offsets.partitions(group.group_id).items():
            info = topics.find(name)
            if info is not None or not has_ids:
                yield name, None if info is None else info.topic_id, numbers
        return
    for topic in group.topics:
        if not has_ids:
            yield topic.name, None, topic.partition_indexes
            continue
        info = None if topic.topic_id is None else topics.find_by_id(topic.topic_id)
        yield None if info is None else info.name, topic.topic_id, topic.partition_indexes


def _fetch_partition(broker: Broker, key: OffsetKey, is_stable: bool) -> dict[str, Any]:
    if is_stable and broker.offsets.is_unstable(key):
        return _absent(key.partition, ErrorCode.unstable_offset_commit)
    found = broker.offsets.find(key)
    if found is None:
        return _absent(key.partition, ErrorCode.none)
    return {
        "partition_index": key.partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
    }


def _absent(number: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": _NO_OFFSET,
        "metadata": "",
        "error_code": code,
    }


def _refused(request: Request, group: Any, code: ErrorCode) -> dict[str, Any]:
    topics: list[dict[str, Any]] = []
    if request.version == 1:
        # Its answer has a code for each partition only.
        topics = [
            {"name": t.name, "partitions": [_absent(i, code) for i in t.partition_indexes]}
            for t in group.topics or ()
        ]
    return {"group_id": group.group_id, "topics": topics, "error_code": code}


def handle_delete(broker: Broker, request: Request) -> Values:
    """Delete some offsets of a group."""
    body = request.body
    wanted = {topic.name: [p.partition_index for p in topic.partitions] for topic in body.topics}
    try:
        codes = broker.offsets.delete_offsets(body.group_id, wanted)
    except GroupError as error:
        return {"error_code": error.code, "topics": ()}
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "error_code": code}
                    for number, code in zip(numbers, codes.get(topic, ()), strict=True)
                ],
            }
            for topic, numbers in wanted.items()
        ]
    }
