"""DeleteTopics and CreatePartitions."""

from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import ProtocolError, code_of, describe
from siltstone.broker.handlers.create_topics import check_new_partitions, check_replicas
from siltstone.broker.internal_topics import is_internal
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request

_FIRST_WITH_IDS: Final = 6


async def handle_delete(broker: Broker, request: Request) -> Values:
    """Delete topics by name or id."""
    body = request.body
    if request.version >= _FIRST_WITH_IDS:
        asked = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        asked = [(name, None) for name in body.topic_names]
    results = []
    for name, topic_id in asked:
        result: dict[str, Any] = {"name": name, "topic_id": topic_id}
        try:
            if not broker.server_config.broker.delete_topic_enable:
                raise ProtocolError(
                    ErrorCode.topic_deletion_disabled, "delete.topic.enable is false"
                )
            found = broker.partitions.find_name(topic_id) if name is None else name
            if found is None:
                raise ProtocolError(ErrorCode.unknown_topic_id, f"no topic {topic_id}")
            result |= {"name": found, "topic_id": await _delete(broker, found)}
        except Exception as error:  # noqa: BLE001 - one topic must not stop the others
            result["error_code"] = code_of(error, f"deletion of {name}")
            result["error_message"] = describe(error)
        results.append(result)
    return {"responses": results}


async def _delete(broker: Broker, topic: str) -> Any:
    topic_id = broker.manager.describe(topic).topic_id.value
    await broker.change(lambda: broker.manager.delete_topic(topic))
    broker.partitions.forget(topic)
    broker.offsets.on_topic_deleted(topic)
    broker.coordinators.transactions.on_topic_deleted(topic)
    return topic_id


async def handle_create_partitions(broker: Broker, request: Request) -> Values:
    """Raise the number of partitions of topics."""
    results = []
    for topic in request.body.topics:
        result: dict[str, Any] = {"name": topic.name}
        try:
            _check_partitions(broker, topic)
            if not request.body.validate_only:
                await broker.change(partial(broker.manager.add_partitions, topic.name, topic.count))
        except Exception as error:  # noqa: BLE001 - one topic must not stop the others
            result["error_code"] = code_of(error, f"partitions of {topic.name}")
            result["error_message"] = describe(error)
        results.append(result)
    return {"results": results}


def _check_partitions(broker: Broker, topic: Any) -> None:
    known = broker.manager.describe(topic.name)
    if is_internal(topic.name):
        raise ProtocolError(
            ErrorCode.invalid_partitions,
            f"topic {topic.name} keeps its partitions: each group or transactional id is looked "
            "for in the one that its name gives among them",
        )
    if topic.count <= known.partition_count:
        raise ProtocolError(
            ErrorCode.invalid_partitions,
            f"topic {topic.name} has {known.partition_count} partitions, {topic.count} is not more",
        )
    check_new_partitions(topic.count - known.partition_count)
    if topic.assignments is not None:
        if len(topic.assignments) != topic.count - known.partition_count:
            raise ProtocolError(
                ErrorCode.invalid_replica_assignment,
                f"{len(topic.assignments)} assignments for "
                f"{topic.count - known.partition_count} new partitions",
            )
        for assignment in topic.assignments:
            check_replicas(broker, assignment)
