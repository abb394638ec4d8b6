"""CreateTopics."""

from collections import Counter
from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.config_entries import describe_topic_config
from siltstone.broker.error_codes import ProtocolError, code_of, describe
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request
from siltstone.errors import ConfigError, TopicExistsError
from siltstone.ids import is_legal_topic
from siltstone.log.config import LogConfig

_BY_DEFAULT: Final = -1
_MAX_NEW_PARTITIONS: Final = (
    10_000  # As Kafka: a slip of the hand must not fill the disk with files.
)


async def handle(broker: Broker, request: Request) -> Values:
    """Create each topic, or say why not; with `validate_only`, only say whether it could be."""
    counts = Counter(topic.name for topic in request.body.topics)
    results: list[dict[str, Any]] = []
    for topic in request.body.topics:
        if counts[topic.name] > 1:
            if not any(result["name"] == topic.name for result in results):
                results.append(
                    _refused(topic, ErrorCode.invalid_request, "the topic is named twice")
                )
            continue
        try:
            results.append(await _create(broker, request, topic))
        except Exception as error:  # noqa: BLE001 - one topic must not stop the others
            code = code_of(error, f"creation of {topic.name}")
            results.append(_refused(topic, code, describe(error)))
    return {"topics": results}


async def _create(broker: Broker, request: Request, topic: Any) -> dict[str, Any]:
    _check_name(broker, topic.name)
    partition_count = _partition_count(broker, topic)
    config = parse_config(topic.configs)
    LogConfig.parse({**broker.server_config.topic_defaults, **config})
    topic_id = None
    if not request.body.validate_only:
        metadata = await broker.change(
            lambda: broker.manager.create_topic(topic.name, partition_count, config)
        )
        topic_id = metadata.topic_id.value
    return {
        "name": topic.name,
        "topic_id": topic_id,
        "num_partitions": partition_count,
        "replication_factor": 1,
        "configs": describe_topic_config(broker, config),
    }


def parse_config(entries: Any) -> dict[str, str]:
    """Take settings as a client sends them; one without a value makes no sense."""
    config = {}
    for entry in entries:
        if entry.value is None:
            raise ConfigError(entry.name, "null", "must have a value")
        config[entry.name] = entry.value
    return config


def _check_name(broker: Broker, name: str) -> None:
    if not is_legal_topic(name):
        raise ProtocolError(
            ErrorCode.invalid_topic_exception,
            f"illegal topic name {name!r}: 1 to 249 of letters, digits, dot, dash, underscore",
        )
    # Metrics turn dots into underscores, so that two topics would have the same ones.
    for other in broker.manager.topics():
        if other.topic == name:
            raise TopicExistsError(name)
        if other.topic.replace(".", "_") == name.replace(".", "_"):
            raise ProtocolError(
                ErrorCode.invalid_topic_exception, f"topic {name} collides with {other.topic}"
            )


def _partition_count(broker: Broker, topic: Any) -> int:
    if topic.assignments:
        return _check_assignments(broker, topic)
    count: int = topic.num_partitions
    if count == _BY_DEFAULT:
        count = broker.server_config.broker.num_partitions
    if count < 1:
        raise ProtocolError(ErrorCode.invalid_partitions, "a topic needs at least 1 partition")
    check_new_partitions(count)
    if topic.replication_factor not in (_BY_DEFAULT, 1):
        raise ProtocolError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {topic.replication_factor}: there is 1 broker",
        )
    return count


def check_new_partitions(count: int) -> None:
    """Refuse more partitions than may be made at once."""
    if count > _MAX_NEW_PARTITIONS:
        raise ProtocolError(
            ErrorCode.policy_violation,
            f"{count} new partitions are more than {_MAX_NEW_PARTITIONS}, the most for one request",
        )


def _check_assignments(broker: Broker, topic: Any) -> int:
    if topic.num_partitions != _BY_DEFAULT or topic.replication_factor != _BY_DEFAULT:
        raise ProtocolError(
            ErrorCode.invalid_request, "give either assignments, or numbers of partitions"
        )
    numbers = sorted(assignment.partition_index for assignment in topic.assignments)
    if numbers != list(range(len(numbers))):
        raise ProtocolError(
            ErrorCode.invalid_replica_assignment, "partitions must be assigned from 0 on, each once"
        )
    for assignment in topic.assignments:
        check_replicas(broker, assignment)
    return len(numbers)


def check_replicas(broker: Broker, assignment: Any) -> None:
    """Refuse replicas anywhere but here."""
    if tuple(assignment.broker_ids) != (broker.node_id,):
        raise ProtocolError(
            ErrorCode.invalid_replica_assignment,
            f"replicas {list(assignment.broker_ids)}: there is only broker {broker.node_id}",
        )


def _refused(topic: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": None,
        "error_code": code,
        "error_message": message,
        "configs": None,
    }
