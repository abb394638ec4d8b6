"""Topics behind a broker, asked and changed by Kafka's own protocol, as a `LogManager` has them."""

from collections.abc import Collection, Mapping
from typing import Any, Final, Self

from kio.schema.errors import ErrorCode

from siltstone.broker.kafka_client import KafkaClient
from siltstone.broker.wire import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
)
from siltstone.cli.remote_log import RemoteLog
from siltstone.errors import (
    BrokerError,
    RequestError,
    SiltstoneError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)
from siltstone.ids import TopicId, TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.topic_store import TopicMetadata
from siltstone.settings import settings_of

_TIMEOUT_MS: Final = 60_000
_TOPIC: Final = 2  # the kind of resource
_OF_TOPIC: Final = 1  # the source of a setting
_SET: Final = 0
_DELETE: Final = 1
# What the user has asked for makes no sense: whoever asked can mend it.
_USAGE_CODES: Final = frozenset(
    {
        ErrorCode.invalid_config,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.invalid_replication_factor,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_request,
    }
)


class RemoteTopics:
    """The topics of a broker; the connection is closed at the end of a `with` block."""

    def __init__(self, address: str, overrides: Mapping[str, str] | None = None) -> None:
        self._overrides = dict(overrides or {})
        LogConfig.parse(self._overrides)
        self._client = KafkaClient(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__(None, None, None)

    def describe(self, topic: str) -> TopicMetadata:
        """Return one topic; raise UnknownTopicError if there is none of that name."""
        found = self._find(topic)
        config = {e.name: e.value for e in self._entries(topic) if e.config_source == _OF_TOPIC}
        return TopicMetadata(topic, TopicId(found.topic_id), len(found.partitions), config)

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return sorted(partition.partition_index for partition in self._find(topic).partitions)

    def config(self, topic: str) -> LogConfig:
        """Return the settings that act on a topic."""
        known = settings_of(LogConfig)
        entries = self._entries(topic)
        acting = {e.name: e.value for e in entries if e.name in known and e.value is not None}
        return LogConfig.parse({**acting, **self._overrides})

    def get_log(self, partition: TopicPartition) -> RemoteLog:
        """Return a log to read or append to; raise UnknownTopicError if it is not there."""
        if partition.partition not in self.partitions(partition.topic):
            raise UnknownTopicError(partition.topic, partition.partition)
        return RemoteLog(self._client, partition, self.config(partition.topic))

    def create_topic(
        self, topic: str, partition_count: int, config: Mapping[str, str] | None = None
    ) -> TopicMetadata:
        """Create a topic."""
        wanted = {
            "name": topic,
            "num_partitions": partition_count,
            "replication_factor": 1,
            "assignments": (),
            "configs": [{"name": k, "value": v} for k, v in (config or {}).items()],
        }
        answer = self._client.ask(
            CREATE_TOPICS, 7, topics=[wanted], timeout=_TIMEOUT_MS, validate_only=False
        )
        (made,) = answer.topics
        _check(made, topic)
        return TopicMetadata(topic, TopicId(made.topic_id), made.num_partitions, dict(config or {}))

    def add_partitions(self, topic: str, partition_count: int) -> TopicMetadata:
        """Raise the number of partitions of a topic."""
        wanted = {"name": topic, "count": partition_count, "assignments": None}
        answer = self._client.ask(
            CREATE_PARTITIONS, 3, topics=[wanted], timeout=_TIMEOUT_MS, validate_only=False
        )
        _check(answer.results[0], topic)
        return self.describe(topic)

    def alter_topic(
        self,
        topic: str,
        changes: Mapping[str, str] | None = None,
        resets: Collection[str] = (),
    ) -> TopicMetadata:
        """Change settings of a topic, or set them back to their defaults."""
        configs = [
            *({"name": n, "config_operation": _DELETE, "value": None} for n in resets),
            *(
                {"name": name, "config_operation": _SET, "value": value}
                for name, value in (changes or {}).items()
            ),
        ]
        resource = {"resource_type": _TOPIC, "resource_name": topic, "configs": configs}
        answer = self._client.ask(
            INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        _check(answer.responses[0], topic)
        return self.describe(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all of its records."""
        wanted = {"name": topic, "topic_id": None}
        answer = self._client.ask(DELETE_TOPICS, 6, topics=[wanted], timeout=_TIMEOUT_MS)
        _check(answer.responses[0], topic)

    def _find(self, topic: str) -> Any:
        answer = self._client.ask(
            METADATA,
            12,
            topics=[{"name": topic, "topic_id": None}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        (found,) = answer.topics
        _check(found, topic)
        return found

    def _entries(self, topic: str) -> Any:
        resource = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": None}
        answer = self._client.ask(DESCRIBE_CONFIGS, 4, resources=[resource])
        _check(answer.results[0], topic)
        return answer.results[0].configs


def _check(result: Any, topic: str) -> None:
    """Raise what a broker has against a request."""
    code: ErrorCode = result.error_code
    if code is ErrorCode.none:
        return
    if code is ErrorCode.unknown_topic_or_partition:
        raise UnknownTopicError(topic)
    if code is ErrorCode.topic_already_exists:
        raise TopicExistsError(topic)
    message = getattr(result, "error_message", None) or f"topic {topic}: {code.name}"
    kind: type[SiltstoneError] = UsageError if code in _USAGE_CODES else BrokerError
    if code is ErrorCode.policy_violation:
        kind = RequestError
    raise kind(message)
