"""librdkafka, unmodified: what its users do all day."""

import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.serving import ServedBroker
from tests.support.waiting import wait_until

COUNT = 500
SECONDS = 120.0


def produce(served: ServedBroker, topic: str, keys: Sequence[int], **config: str) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": served.bootstrap, "linger.ms": 5, **config})

    def note(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    for key in keys:
        producer.produce(
            topic, key=b"%d" % key, value=b"value %d" % key, headers=[("h", b"x")], on_delivery=note
        )
    assert producer.flush(SECONDS) == 0
    assert not failed


def consume(
    served: ServedBroker, partitions: Sequence[TopicPartition], count: int
) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": served.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign(list(partitions))
    messages: list[Message] = []
    deadline = time.monotonic() + SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.2):
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    return messages


@pytest.fixture
def admin(served: ServedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": served.bootstrap})


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> str:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    created = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
    created[name].result(SECONDS)

    # Kafka's brokers learn of it a moment after the answer.
    def is_led() -> bool:
        parts = admin.list_topics(name, SECONDS).topics[name].partitions
        return len(parts) == partitions and all(part.leader >= 0 for part in parts.values())

    wait_until(is_led)
    return name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed(served: ServedBroker, admin: AdminClient, codec: str) -> None:
    topic = create(admin, f"rd-{codec}", partitions=3)

    produce(served, topic, range(COUNT), **{"compression.type": codec})

    partitions = [TopicPartition(topic, number, 0) for number in range(3)]
    found = consume(served, partitions, COUNT)
    assert sorted(int(m.key() or b"") for m in found) == list(range(COUNT))
    assert all(m.value() == b"value " + (m.key() or b"") for m in found)
    assert all(m.headers() == [("h", b"x")] for m in found)
    assert len({(m.partition(), m.offset()) for m in found}) == COUNT


def test_an_idempotent_producer_writes_each_record_once(
    served: ServedBroker, admin: AdminClient
) -> None:
    topic = create(admin, "rd-idempotent")

    produce(served, topic, range(COUNT), **{"enable.idempotence": "true"})

    found = consume(served, [TopicPartition(topic, 0, 0)], COUNT)
    assert [int(m.key() or b"") for m in found] == list(range(COUNT))


def test_a_topic_is_made_when_somebody_writes_to_it(served: ServedBroker) -> None:
    produce(served, "rd-automatic", range(10))

    assert len(consume(served, [TopicPartition("rd-automatic", 0, 0)], 10)) == 10


def test_offsets_are_found_by_time_and_at_the_ends(
    served: ServedBroker, admin: AdminClient
) -> None:
    topic = create(admin, "rd-times")
    producer = Producer({"bootstrap.servers": served.bootstrap})
    for time_ms in (1_000, 2_000, 3_000):
        producer.produce(topic, b"v", timestamp=time_ms)
        producer.flush(SECONDS)
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": "none"})

    found = consumer.offsets_for_times([TopicPartition(topic, 0, 1_500)], SECONDS)

    assert found[0].offset == 1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS) == (0, 3)
    newest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})  # type: ignore[no-untyped-call]  # of the client
    assert newest[TopicPartition(topic, 0)].result(SECONDS).offset == 2
    consumer.close()


def test_a_topic_is_described_grown_configured_and_deleted(
    served: ServedBroker, admin: AdminClient
) -> None:
    topic = create(admin, "rd-admin", cleanup_policy="compact", segment_ms="12345678")
    resource = ConfigResource(ResourceType.TOPIC, topic)

    settings = admin.describe_configs([resource])[resource].result(SECONDS)
    assert settings["cleanup.policy"].value == "compact"
    assert not settings["cleanup.policy"].is_default
    assert settings["segment.bytes"].is_default

    changed = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(
                "min.cleanable.dirty.ratio",
                "0.1",
                incremental_operation=AlterConfigOpType.SET,
            ),
            ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([changed])[changed].result(SECONDS)

    # Kafka's brokers learn of changes a moment after the answer, of both of these at once.
    def are_altered() -> bool:
        settings = admin.describe_configs([resource])[resource].result(SECONDS)
        is_set = bool(settings["min.cleanable.dirty.ratio"].value == "0.1")
        assert settings["segment.ms"].is_default == is_set
        return is_set

    wait_until(are_altered)

    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(SECONDS)
    wait_until(lambda: len(admin.list_topics(topic, SECONDS).topics[topic].partitions) == 4)

    admin.delete_topics([topic])[topic].result(SECONDS)
    wait_until(lambda: topic not in admin.list_topics(timeout=SECONDS).topics)


def test_a_wrong_setting_is_refused_with_its_name(admin: AdminClient) -> None:
    with pytest.raises(KafkaException, match=r"did you mean retention\.ms") as refused:
        create(admin, "rd-wrong", retention_mz="1")

    assert refused.value.args[0].name() == "INVALID_CONFIG"


def test_deleted_records_are_not_read_any_more(served: ServedBroker, admin: AdminClient) -> None:
    topic = create(admin, "rd-delete-records")
    produce(served, topic, range(10), **{"batch.num.messages": "1"})

    deleted = admin.delete_records([TopicPartition(topic, 0, 4)])

    assert next(iter(deleted.values())).result(SECONDS).low_watermark == 4
    found = consume(served, [TopicPartition(topic, 0, 4)], 6)
    assert [m.offset() for m in found] == [4, 5, 6, 7, 8, 9]


def test_a_record_without_key_is_refused_by_a_compacted_topic(
    served: ServedBroker, admin: AdminClient
) -> None:
    topic = create(admin, "rd-keyless", cleanup_policy="compact")
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": served.bootstrap})

    def note(error: KafkaError | None, message: object) -> None:
        errors.append("none" if error is None else error.name())

    producer.produce(topic, b"no key", on_delivery=note)
    producer.flush(SECONDS)

    assert errors == ["INVALID_RECORD"]


def test_the_cluster_is_this_broker(served: ServedBroker, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(SECONDS)

    assert [node.port for node in described.nodes] == [served.port]
    assert described.cluster_id
