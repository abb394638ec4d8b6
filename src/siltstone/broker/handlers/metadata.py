"""Metadata and DescribeTopicPartitions: which topics there are, and that all of them are here."""

import logging
import uuid
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.internal_topics import is_internal
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request
from siltstone.errors import StorageError, TopicExistsError, UnknownTopicError
from siltstone.ids import is_legal_topic
from siltstone.log.topic_store import TopicMetadata

logger = logging.getLogger(__name__)

_NO_LEADER: Final = -1
_FIRST_BY_ID: Final = 12  # An earlier one has a field for the id, and Kafka refuses to look at it.
# Without access control everybody may do everything that a topic, or a cluster, knows.
_TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
_NOT_ASKED: Final = -(2**31)


def handle(broker: Broker, request: Request) -> Values | Awaitable[Values]:
    """Describe all topics, some by name, or some by id; create those that are missing, if asked."""
    body = request.body
    asked: Sequence[Any] | None = body.topics
    if asked is None or (request.version == 0 and not asked):
        topics = [_describe(broker, request, topic) for topic in broker.manager.topics()]
        return _answer(broker, request, topics)
    if request.version < _FIRST_BY_ID and any(_is_by_id(topic) for topic in asked):
        # Topics without a name cannot be told in these versions; all of them are refused.
        refused = [_missing(topic.name or "", None, ErrorCode.invalid_request) for topic in asked]
        return _answer(broker, request, refused)
    missing = [topic.name for topic in asked if _may_create(broker, request, topic)]
    if missing:
        return _create_and_answer(broker, request, asked, missing)
    return _answer(broker, request, [_find(broker, request, topic) for topic in asked])


def _is_by_id(topic: Any) -> bool:
    return topic.name is None or getattr(topic, "topic_id", None) is not None


async def _create_and_answer(
    broker: Broker, request: Request, asked: Sequence[Any], missing: Sequence[str]
) -> Values:
    for name in missing:
        create = partial(
            broker.manager.create_topic, name, broker.server_config.broker.num_partitions
        )
        try:
            await broker.change(create)
        except TopicExistsError:
            pass  # Another client was faster, which is as good.
        except StorageError as error:
            logger.error("topic %s could not be created: %s", name, error)
    return _answer(broker, request, [_find(broker, request, topic) for topic in asked])


def _may_create(broker: Broker, request: Request, topic: Any) -> bool:
    return (
        topic.name is not None
        and broker.server_config.broker.auto_create_topics_enable
        and getattr(request.body, "allow_auto_topic_creation", True)
        and is_legal_topic(topic.name)
        and not is_internal(topic.name)
        and not _exists(broker, topic.name)
    )


def _exists(broker: Broker, name: str) -> bool:
    try:
        broker.manager.describe(name)
    except UnknownTopicError:
        return False
    return True


def _answer(broker: Broker, request: Request, topics: Sequence[Values]) -> Values:
    wants_operations = getattr(request.body, "include_cluster_authorized_operations", False)
    return {
        "brokers": [describe_broker(broker, request)],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if wants_operations else _NOT_ASKED,
    }


def describe_broker(broker: Broker, request: Request) -> dict[str, Any]:
    """Say where this broker is reached."""
    return {
        "node_id": broker.node_id,
        "broker_id": broker.node_id,
        "host": broker.endpoint.host or request.local_host,
        "port": broker.endpoint.port,
        "rack": None,
        "is_fenced": False,
    }


def _find(broker: Broker, request: Request, topic: Any) -> Values:
    topic_id: uuid.UUID | None = getattr(topic, "topic_id", None)
    name: str | None = topic.name
    if name is None:
        name = broker.partitions.find_name(topic_id)
        if name is None:
            return _missing(None, topic_id, ErrorCode.unknown_topic_id)
    return _find_by_name(broker, request, name)


def _find_by_name(broker: Broker, request: Request, name: str) -> Values:
    if not is_legal_topic(name):
        return _missing(name, None, ErrorCode.invalid_topic_exception)
    try:
        return _describe(broker, request, broker.manager.describe(name))
    except UnknownTopicError:
        return _missing(name, None, ErrorCode.unknown_topic_or_partition)


def _missing(name: str | None, topic_id: uuid.UUID | None, code: ErrorCode) -> Values:
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": ()}


def _describe(broker: Broker, request: Request, topic: TopicMetadata) -> dict[str, Any]:
    wants_operations = getattr(request.body, "include_topic_authorized_operations", True)
    return {
        "name": topic.topic,
        "topic_id": topic.topic_id.value,
        "is_internal": is_internal(topic.topic),
        "partitions": [
            _describe_partition(broker, topic.topic, number)
            for number in range(topic.partition_count)
        ],
        "topic_authorized_operations": _TOPIC_OPERATIONS if wants_operations else _NOT_ASKED,
    }


def _describe_partition(broker: Broker, topic: str, number: int) -> Values:
    node = broker.node_id
    try:
        log = broker.partitions.get(topic, number).log
    except (StorageError, UnknownTopicError):
        # Its disk is gone, or it is damaged: it has a replica, but nobody leads it.
        return {
            "error_code": ErrorCode.leader_not_available,
            "partition_index": number,
            "leader_id": _NO_LEADER,
            "replica_nodes": (node,),
            "isr_nodes": (),
            "eligible_leader_replicas": (),
            "last_known_elr": (),
            "offline_replicas": (node,),
        }
    return {
        "partition_index": number,
        "leader_id": node,
        "leader_epoch": log.latest_epoch,
        "replica_nodes": (node,),
        "isr_nodes": (node,),
        "eligible_leader_replicas": (),
        "last_known_elr": (),
    }


def handle_topic_partitions(broker: Broker, request: Request) -> Values:
    """Describe topics page by page; a cursor says where the next page begins."""
    body = request.body
    names = sorted({topic.name for topic in body.topics})
    if not names:
        names = [topic.topic for topic in broker.manager.topics()]
    first_partition = 0
    if body.cursor is not None:
        names = [name for name in names if name >= body.cursor.topic_name]
        if names and names[0] == body.cursor.topic_name:
            first_partition = body.cursor.partition_index
    left = max(1, min(body.response_partition_limit, _MAX_PAGE))
    topics: list[Values] = []
    for name in names:
        found = dict(_find_by_name(broker, request, name))
        partitions = list(found["partitions"])[first_partition:]
        if left == 0 or len(partitions) > left:
            found["partitions"] = partitions[:left]
            if left:
                topics.append(found)
            cursor = {"topic_name": name, "partition_index": first_partition + left}
            return {"topics": topics, "next_cursor": cursor}
        found["partitions"] = partitions
        topics.append(found)
        left -= len(partitions)
        first_partition = 0
    return {"topics": topics, "next_cursor": None}


_MAX_PAGE: Final = 2000  # max.request.partition.size.limit
