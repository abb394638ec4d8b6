"""What is refused when topics and settings are asked for or changed, and with which code."""

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.clients.conftest import MakeTopic
from tests.clients.test_every_version import produce, topic_id_of
from tests.support.serving import RawClient

BATCH = build_batch([Record(0, 1_000, b"k", b"v")])


def create(raw: RawClient, *topics: dict[str, Any], validate_only: bool = False) -> list[Any]:
    defaults = {
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    answer = raw.ask(
        wire.CREATE_TOPICS,
        7,
        topics=[{**defaults, **topic} for topic in topics],
        timeout=10_000,
        validate_only=validate_only,
    )
    return list(answer.topics)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "with space"}, ErrorCode.invalid_topic_exception),
        ({"name": ""}, ErrorCode.invalid_topic_exception),
        ({"name": "x" * 250}, ErrorCode.invalid_topic_exception),
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"num_partitions": -2}, ErrorCode.invalid_partitions),
        ({"num_partitions": 10_001}, ErrorCode.policy_violation),
        ({"num_partitions": 2**31 - 1}, ErrorCode.policy_violation),
        ({"replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ({"replication_factor": 3}, ErrorCode.invalid_replication_factor),
        ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "segment.ms", "value": "x"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "segment.ms", "value": None}]}, ErrorCode.invalid_config),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [77]}],
            },
            ErrorCode.invalid_replica_assignment,
        ),
        (
            {"assignments": [{"partition_index": 0, "broker_ids": [0]}]},
            ErrorCode.invalid_request,
        ),
    ],
)
def test_a_topic_that_cannot_be_is_not_created(
    raw: RawClient, topic: dict[str, Any], code: ErrorCode
) -> None:
    (refused,) = create(raw, {"name": "refused", **topic})

    assert refused.error_code == code


def test_a_topic_is_created_once_and_not_beside_one_that_looks_the_same(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    (again,) = create(raw, {"name": topic})
    (alike,) = create(raw, {"name": topic.replace("_", ".", 1)})
    twice = create(raw, {"name": "twice"}, {"name": "twice"})

    assert again.error_code == ErrorCode.topic_already_exists
    assert alike.error_code == ErrorCode.invalid_topic_exception
    assert {answer.error_code for answer in twice} == {ErrorCode.invalid_request}


def test_a_topic_that_is_only_validated_is_not_there(raw: RawClient) -> None:
    (valid,) = create(raw, {"name": "only-validated"}, validate_only=True)

    assert valid.error_code == ErrorCode.none
    assert topic_id_of(raw, "only-validated") is None


def test_what_is_not_there_cannot_be_deleted(raw: RawClient) -> None:
    by_name = raw.ask(wire.DELETE_TOPICS, 5, topic_names=["no-such-topic"], timeout=10_000)
    unknown = [{"name": None, "topic_id": uuid.uuid4()}]
    by_id = raw.ask(wire.DELETE_TOPICS, 6, topics=unknown, timeout=10_000)

    assert by_name.responses[0].error_code == ErrorCode.unknown_topic_or_partition
    assert by_id.responses[0].error_code == ErrorCode.unknown_topic_id


def test_a_topic_is_deleted_by_its_id(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    topic_id = topic_id_of(raw, topic)

    wanted = [{"name": None, "topic_id": topic_id}]
    answer = raw.ask(wire.DELETE_TOPICS, 6, topics=wanted, timeout=10_000)

    (deleted,) = answer.responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (0, topic, topic_id)


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (1, None, ErrorCode.invalid_partitions),
        (2, [{"broker_ids": [77]}], ErrorCode.invalid_replica_assignment),
        (4, [{"broker_ids": [0]}], ErrorCode.invalid_replica_assignment),
    ],
)
def test_partitions_that_cannot_be_are_not_created(
    raw: RawClient, make_topic: MakeTopic, count: int, assignments: Any, code: ErrorCode
) -> None:
    topic = {"name": make_topic(), "count": count, "assignments": assignments}

    answer = raw.ask(wire.CREATE_PARTITIONS, 3, topics=[topic], timeout=10_000, validate_only=False)

    assert answer.results[0].error_code == code


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_no_partitions_are_added_where_coordinators_keep_their_state(
    raw: RawClient, topic: str
) -> None:
    kind = 1 if topic == "__transaction_state" else 0
    raw.ask(wire.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["somebody"])
    wanted = {"name": topic, "count": 99, "assignments": None}

    answer = raw.ask(wire.CREATE_PARTITIONS, 3, topics=[wanted], timeout=10_000, validate_only=True)

    assert answer.results[0].error_code == ErrorCode.invalid_partitions


def test_no_more_partitions_are_added_than_may_be_at_once(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = {"name": make_topic(), "count": 10_002, "assignments": None}

    answer = raw.ask(wire.CREATE_PARTITIONS, 3, topics=[topic], timeout=10_000, validate_only=False)

    assert answer.results[0].error_code == ErrorCode.policy_violation


@pytest.mark.parametrize(
    ("policy", "offset", "code"),
    [
        ("delete", 2, ErrorCode.offset_out_of_range),
        ("delete", -2, ErrorCode.offset_out_of_range),
        ("compact", 1, ErrorCode.policy_violation),
        ("compact,delete", -1, ErrorCode.none),
    ],
)
def test_records_are_deleted_only_where_they_may_be(
    raw: RawClient, make_topic: MakeTopic, policy: str, offset: int, code: ErrorCode
) -> None:
    topic = make_topic(cleanup_policy=policy)
    produce(raw, topic, BATCH)
    part = {"partition_index": 0, "offset": offset}

    answer = raw.ask(
        wire.DELETE_RECORDS,
        2,
        topics=[{"name": topic, "partitions": [part]}],
        timeout=10_000,
    )

    assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such", 0, "1"), ErrorCode.invalid_config),
        (("retention.ms", 0, "-7"), ErrorCode.invalid_config),
        (("retention.ms", 2, "7"), ErrorCode.invalid_config),
        (("cleanup.policy", 2, "compact"), ErrorCode.none),
        (("min.compaction.lag.ms", 0, "9223372036854775807"), ErrorCode.none),
    ],
)
def test_settings_that_cannot_be_are_not_taken(
    raw: RawClient, make_topic: MakeTopic, change: tuple[str, int, str], code: ErrorCode
) -> None:
    topic = make_topic()
    name, operation, value = change
    configs = [{"name": name, "config_operation": operation, "value": value}]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs}

    answer = raw.ask(wire.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)

    assert answer.responses[0].error_code == code


def test_settings_of_what_is_not_there_are_not_described(raw: RawClient) -> None:
    resources = [
        {"resource_type": 2, "resource_name": "no-such-topic", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "77", "configuration_keys": None},
    ]

    answer = raw.ask(
        wire.DESCRIBE_CONFIGS,
        4,
        resources=resources,
        include_synonyms=False,
        include_documentation=False,
    )

    assert [result.error_code for result in answer.results] == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_request,
    ]


def test_topics_are_described_page_by_page(raw: RawClient, make_topic: MakeTopic) -> None:
    topics = sorted(make_topic(partitions=3) for _ in range(2))
    asked = [{"name": topic} for topic in topics]
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        answer = raw.ask(
            wire.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=asked,
            response_partition_limit=2,
            cursor=cursor,
        )
        page = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        assert len(page) <= 2
        seen += page
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }

    assert seen == [(topic, number) for topic in topics for number in range(3)]


@pytest.mark.parametrize("version", [10, 11])
def test_topics_are_not_told_by_id_in_versions_that_have_only_its_field(
    raw: RawClient, make_topic: MakeTopic, version: int
) -> None:
    name = make_topic()
    topic_id = topic_id_of(raw, name)

    def ask(*topics: dict[str, Any]) -> list[tuple[Any, ErrorCode]]:
        answer = raw.ask(
            wire.METADATA,
            version,
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            **({"include_cluster_authorized_operations": False} if version == 10 else {}),
        )
        return [(topic.name, topic.error_code) for topic in answer.topics]

    nameless, by_id = {"topic_id": None, "name": None}, {"topic_id": topic_id, "name": name}
    plain = {"topic_id": None, "name": name}
    assert ask(plain, nameless) == [
        (name, ErrorCode.invalid_request),
        ("", ErrorCode.invalid_request),
    ]
    assert ask(by_id) == [(name, ErrorCode.invalid_request)]
    assert ask(plain) == [(name, ErrorCode.none)]
