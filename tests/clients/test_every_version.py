"""Every version that is advertised is served: asked by kio, the answer is read by kio."""

import struct
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from siltstone.broker import wire
from siltstone.broker.wire import SERVED
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.clients.conftest import MakeTopic
from tests.support.serving import RawClient
from tests.support.transactions import RawProducer

RECORDS = [Record(0, 1_000, b"k", b"v"), Record(1, 2_000, b"k", b"w")]
# Nobody is there yet: that they work is for the tests of groups to show.
REFUSALS = {
    wire.JOIN_GROUP: ErrorCode.member_id_required,
    wire.HEARTBEAT: ErrorCode.unknown_member_id,
    wire.LEAVE_GROUP: ErrorCode.unknown_member_id,
    wire.SYNC_GROUP: ErrorCode.unknown_member_id,
    wire.DESCRIBE_GROUPS: ErrorCode.group_id_not_found,
    wire.TXN_OFFSET_COMMIT: ErrorCode.unknown_topic_or_partition,
    wire.DELETE_GROUPS: ErrorCode.group_id_not_found,
    wire.CONSUMER_GROUP_DESCRIBE: ErrorCode.group_id_not_found,
    wire.OFFSET_DELETE: ErrorCode.group_id_not_found,
}
IN_TRANSACTION = {
    wire.ADD_PARTITIONS_TO_TXN,
    wire.ADD_OFFSETS_TO_TXN,
    wire.END_TXN,
    wire.WRITE_TXN_MARKERS,
    wire.DESCRIBE_TRANSACTIONS,
    wire.LIST_TRANSACTIONS,
}
EVERY_VERSION = [
    (key, version)
    for key, versions in SERVED.items()
    for version in range(versions.first, versions.last + 1)
]


def produce(raw: RawClient, topic: str, records: bytes | None, **values: Any) -> Any:
    part = {"index": 0, "records": records}
    answer = raw.ask(
        wire.PRODUCE,
        values.pop("version", 9),
        transactional_id=None,
        acks=values.pop("acks", -1),
        timeout=30_000,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )
    return answer.responses[0].partition_responses[0]


def topic_id_of(raw: RawClient, topic: str) -> Any:
    asked = [{"topic_id": None, "name": topic}]
    answer = raw.ask(
        wire.METADATA,
        12,
        topics=asked,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return answer.topics[0].topic_id


def begun(raw: RawClient, topic: str) -> RawProducer:
    """Return a producer whose transaction is open."""
    producer = RawProducer(raw, f"of-{topic}", version=1).init()
    producer.produce(topic, b"v")
    return producer


def values_in_transaction(api_key: int, topic: str, producer: Any) -> dict[str, Any]:
    """Return a request that succeeds while a transaction is open."""
    name = producer.transactional_id
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    topics = [{"name": topic, "partitions": [0], "partition_indexes": [0]}]
    marker = {**who, "transaction_result": True, "coordinator_epoch": 0, "topics": topics}
    by_key: dict[int, dict[str, Any]] = {
        wire.ADD_PARTITIONS_TO_TXN: {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": topics,
            "transactions": [{"transactional_id": name, **who, "topics": topics}],
        },
        wire.ADD_OFFSETS_TO_TXN: {"transactional_id": name, **who, "group_id": "group"},
        wire.END_TXN: {"transactional_id": name, **who, "committed": True},
        # The producer epoch of version 2 must be above the transaction's.
        wire.WRITE_TXN_MARKERS: {"markers": [{**marker, "producer_epoch": producer.epoch + 1}]},
        wire.DESCRIBE_TRANSACTIONS: {"transactional_ids": [name]},
        wire.LIST_TRANSACTIONS: {
            "state_filters": ("Ongoing",),
            "producer_id_filters": (producer.producer_id,),
            "transactional_id_pattern": None,
        },
    }
    return by_key[api_key]


def values_for(api_key: int, topic: str, topic_id: Any) -> dict[str, Any]:
    """Return a request that succeeds, with the fields of all versions."""
    fetched = {
        "partition": 0,
        "current_leader_epoch": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    altered = {
        "name": "retention.ms",
        "value": "1000000",
        "config_operation": 0,
    }
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    asked_offsets = [{"name": topic, "topic_id": topic_id, "partition_indexes": [0]}]
    by_key: dict[int, dict[str, Any]] = {
        wire.PRODUCE: {
            "transactional_id": None,
            "acks": -1,
            "timeout": 1000,
            "topic_data": [
                {
                    "name": topic,
                    "topic_id": topic_id,
                    "partition_data": [{"index": 0, "records": build_batch(RECORDS)}],
                }
            ],
        },
        wire.FETCH: {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [fetched]}],
            "forgotten_topics_data": (),
        },
        wire.LIST_OFFSETS: {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": 1000,
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": 1_500}]}],
        },
        wire.METADATA: {
            "topics": [{"topic_id": None, "name": topic}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
        wire.OFFSET_COMMIT: {
            "group_id": topic,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "retention_time": 1_000_000,
            "topics": [{"name": topic, "topic_id": topic_id, "partitions": [committed]}],
        },
        wire.OFFSET_FETCH: {
            "group_id": topic,
            "topics": asked_offsets,
            "groups": [{"group_id": topic, "topics": asked_offsets}],
            "require_stable": True,
        },
        wire.FIND_COORDINATOR: {"key": topic, "key_type": 0, "coordinator_keys": [topic]},
        wire.JOIN_GROUP: {
            "group_id": topic,
            "session_timeout": 6000,
            "rebalance_timeout": 6000,
            "member_id": "",
            "group_instance_id": "one",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"about me"}],
        },
        wire.HEARTBEAT: {
            "group_id": topic,
            "generation_id": 1,
            "member_id": "nobody",
        },
        wire.LEAVE_GROUP: {
            "group_id": topic,
            "member_id": "nobody",
            "members": [{"member_id": "nobody"}],
        },
        wire.SYNC_GROUP: {
            "group_id": topic,
            "generation_id": 1,
            "member_id": "nobody",
            "assignments": (),
        },
        wire.DESCRIBE_GROUPS: {"groups": ["nothing"], "include_authorized_operations": True},
        wire.LIST_GROUPS: {"states_filter": (), "types_filter": ("classic",)},
        wire.TXN_OFFSET_COMMIT: {
            "transactional_id": "t",
            "group_id": topic,
            "producer_id": 1,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": "nothing", "partitions": [committed]}],
        },
        wire.DELETE_GROUPS: {"groups_names": ["nothing"]},
        wire.OFFSET_DELETE: {
            "group_id": "nothing",
            "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}],
        },
        wire.API_VERSIONS: {"client_software_name": "t", "client_software_version": "1"},
        wire.CREATE_TOPICS: {
            "timeout": 1000,
            "validate_only": True,
            "topics": [
                {
                    "name": topic + "-more",
                    "num_partitions": 2,
                    "replication_factor": 1,
                    "assignments": (),
                    "configs": [{"name": "retention.ms", "value": "5"}],
                }
            ],
        },
        wire.DELETE_TOPICS: {
            "topics": [{"name": topic, "topic_id": None}],
            "topic_names": [topic],
            "timeout": 1000,
        },
        wire.DELETE_RECORDS: {
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}],
            "timeout": 1000,
        },
        wire.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout": 1000},
        wire.FIND_COORDINATOR: {
            "key": "id",
            "key_type": 0,
            "coordinator_keys": ["id"],
        },
        wire.OFFSET_FOR_LEADER_EPOCH: {
            "topics": [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        },
        wire.DESCRIBE_CONFIGS: {
            "resources": [resource],
            "include_synonyms": True,
            "include_documentation": True,
        },
        wire.ALTER_CONFIGS: {
            "resources": [{**resource, "configs": [altered]}],
            "validate_only": False,
        },
        wire.INCREMENTAL_ALTER_CONFIGS: {
            "resources": [{**resource, "configs": [altered]}],
            "validate_only": False,
        },
        wire.DESCRIBE_LOG_DIRS: {"topics": [{"topic": topic, "partitions": [0]}]},
        wire.CREATE_PARTITIONS: {
            "topics": [{"name": topic, "count": 2, "assignments": None}],
            "timeout": 1000,
            "validate_only": False,
        },
        wire.DESCRIBE_CLUSTER: {
            "include_cluster_authorized_operations": True,
            "include_fenced_brokers": False,
        },
        wire.DESCRIBE_PRODUCERS: {"topics": [{"name": topic, "partition_indexes": [0]}]},
        wire.CONSUMER_GROUP_HEARTBEAT: {
            "group_id": topic + "-new",
            "member_id": "me",
            "member_epoch": 0,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": [topic],
            "topic_partitions": (),
        },
        wire.CONSUMER_GROUP_DESCRIBE: {
            "group_ids": ["nothing"],
            "include_authorized_operations": True,
        },
        wire.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": topic}], "cursor": None},
    }
    return by_key[api_key]


def error_codes(answer: Any) -> list[int]:
    """Collect all error codes in an answer, wherever they stand."""
    if isinstance(answer, tuple):
        return [code for item in answer for code in error_codes(item)]
    found: list[int] = []
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        found += [value] if name.endswith("error_code") else error_codes(value)
    return found


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_a_version_that_is_advertised_is_served(
    api_key: int, version: int, raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    assert produce(raw, topic, build_batch(RECORDS)).error_code == ErrorCode.none
    topic_id = topic_id_of(raw, topic)
    raw.ask(wire.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[topic])

    if api_key in IN_TRANSACTION:
        values = values_in_transaction(api_key, topic, begun(raw, topic))
    else:
        values = values_for(api_key, topic, topic_id)
    answer = raw.ask(api_key, version, **values)

    codes = error_codes(answer)
    assert set(codes) <= {ErrorCode.none, REFUSALS.get(api_key)}, answer
    check_content(api_key, version, answer, topic)


def check_content(api_key: int, version: int, answer: Any, topic: str) -> None:
    """Look at the one thing that each answer is for."""
    if api_key == wire.PRODUCE:
        assert answer.responses[0].partition_responses[0].base_offset == 2
    elif api_key == wire.FETCH:
        (part,) = answer.responses[0].partitions
        assert part.records == build_batch(RECORDS, leader_epoch=0)
        assert part.high_watermark == part.last_stable_offset == 2
    elif api_key == wire.LIST_OFFSETS:
        (part,) = answer.topics[0].partitions
        assert (part.offset, part.timestamp) == (1, 2_000)
    elif api_key == wire.METADATA:
        assert answer.topics[0].name == topic
        assert answer.topics[0].partitions[0].leader_id == answer.brokers[0].node_id
    elif api_key == wire.API_VERSIONS:
        assert {(a.api_key, a.min_version, a.max_version) for a in answer.api_keys} == {
            (key, *versions) for key, versions in SERVED.items()
        }
    elif api_key == wire.FIND_COORDINATOR:
        (found,) = answer.coordinators if version >= 4 else (answer,)
        assert (found.node_id, found.host) == (0, "127.0.0.1")
    elif api_key == wire.JOIN_GROUP and version == 4:
        assert answer.member_id.startswith("test-")  # to join with it, as it has no instance id
    elif api_key == wire.JOIN_GROUP:
        assert answer.generation_id == 1
        assert answer.leader == answer.member_id
        assert [m.metadata for m in answer.members] == [b"about me"]
    elif api_key == wire.CONSUMER_GROUP_HEARTBEAT:
        (share,) = answer.assignment.topic_partitions
        assert (answer.member_epoch, share.partitions) == (2, (0,))
    elif api_key == wire.OFFSET_FETCH:
        (topics,) = (g.topics for g in answer.groups) if version >= 8 else (answer.topics,)
        assert topics[0].partitions[0].committed_offset == -1
    elif api_key == wire.DELETE_RECORDS:
        assert answer.topics[0].partitions[0].low_watermark == 1
    elif api_key == wire.OFFSET_FOR_LEADER_EPOCH:
        assert answer.topics[0].partitions[0].end_offset == 2
    elif api_key == wire.DESCRIBE_CONFIGS:
        (policy,) = (c for c in answer.results[0].configs if c.name == "cleanup.policy")
        assert policy.value == "delete"
    elif api_key == wire.DESCRIBE_LOG_DIRS:
        assert answer.results[0].topics[0].partitions[0].partition_size > 0
    elif api_key == wire.DESCRIBE_TRANSACTIONS:
        assert answer.transaction_states[0].transaction_state == "Ongoing"
    elif api_key == wire.LIST_TRANSACTIONS:
        assert answer.transaction_states[0].transactional_id == f"of-{topic}"
    elif api_key == wire.DESCRIBE_TOPIC_PARTITIONS:
        assert len(answer.topics[0].partitions) == 1


def test_an_unknown_version_of_api_versions_gets_the_oldest_answer(raw: RawClient) -> None:
    body = struct.pack(">hhi", 18, 99, 5) + struct.pack(">h", 4) + b"test" + b"\x00" * 10
    raw.socket.sendall(struct.pack(">i", len(body)) + body)

    data = raw.receive_frame()

    assert data is not None
    answer: Any
    answer, _ = entity_reader(load_response_schema(18, 0))(data, 4)
    assert answer.error_code == ErrorCode.unsupported_version
    assert {a.api_key for a in answer.api_keys} == set(SERVED)
