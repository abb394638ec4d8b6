"""Transactional producers and readers of committed records: the clients themselves."""

import asyncio
import time
import uuid
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest

from tests.clients.conftest import MakeTopic
from tests.support.serving import ServedBroker

SECONDS = 120
EXPECTED = [b"0-0", b"0-1", b"2-0", b"2-1"]  # of four transactions every other one commits


class AnyBroker(Protocol):
    """Whoever serves."""

    @property
    def bootstrap(self) -> str: ...


def committed(served: AnyBroker, topic: str) -> list[bytes | None]:
    """Return what librdkafka's reader of committed records gets, up to the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": served.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value())
        raise AssertionError(f"no end after {values}")
    finally:
        consumer.close()


def confluent_producer(served: ServedBroker, transactional_id: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": served.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions(SECONDS)
    return producer


def test_confluent_commits_and_aborts(served: ServedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = confluent_producer(served, f"confluent-{uuid.uuid4()}")

    for number in range(4):
        producer.begin_transaction()
        for i in range(2):
            producer.produce(topic, b"%d-%d" % (number, i))
        producer.flush(SECONDS)
        if number % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)

    assert committed(served, topic) == EXPECTED


def test_a_confluent_producer_is_fenced_by_the_next(
    served: ServedBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    name = f"fenced-{uuid.uuid4()}"
    old = confluent_producer(served, name)
    old.begin_transaction()
    old.produce(topic, b"old")
    old.flush(SECONDS)

    new = confluent_producer(served, name)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        old.commit_transaction(SECONDS)
    new.begin_transaction()
    new.produce(topic, b"new")
    new.commit_transaction(SECONDS)

    assert fenced.value.args[0].fatal()
    assert committed(served, topic) == [b"new"]


def test_kafka_python_commits_and_aborts(served: ServedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = kafka.KafkaProducer(
        bootstrap_servers=served.bootstrap, transactional_id=f"kafka-python-{uuid.uuid4()}"
    )
    producer.init_transactions()

    for number in range(4):
        producer.begin_transaction()
        for i in range(2):
            producer.send(topic, b"%d-%d" % (number, i), partition=0)
        producer.flush(SECONDS)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()

    assert committed(served, topic) == EXPECTED


def test_aiokafka_commits_and_aborts(served: ServedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()

    async def produce_and_consume() -> list[Any]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=served.bootstrap, transactional_id=f"aiokafka-{uuid.uuid4()}"
        )
        await producer.start()
        for number in range(4):
            await producer.begin_transaction()
            for i in range(2):
                await producer.send_and_wait(topic, b"%d-%d" % (number, i), partition=0)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=served.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            group_id=None,
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        found = [(await consumer.getone()).value for _ in EXPECTED]
        await consumer.stop()
        return found

    assert asyncio.run(asyncio.wait_for(produce_and_consume(), SECONDS)) == EXPECTED
    assert committed(served, topic) == EXPECTED


# Offsets that count with the transaction


def committed_offset(consumer: confluent_kafka.Consumer, topic: str) -> int:
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], SECONDS)
    assert found.error is None
    return int(found.offset)


def test_confluent_commits_offsets_with_its_records_or_not_at_all(
    served: ServedBroker, make_topic: MakeTopic
) -> None:
    source, target = make_topic(), make_topic()
    group = f"group-{uuid.uuid4()}"
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": served.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(source, 0, 0)])
    producer = confluent_producer(served, f"offsets-{uuid.uuid4()}")

    def copy(offset: int) -> None:
        producer.begin_transaction()
        producer.produce(target, b"%d" % offset)
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(source, 0, offset)],
            consumer.consumer_group_metadata(),
            SECONDS,
        )

    copy(1)
    producer.commit_transaction(SECONDS)
    assert committed_offset(consumer, source) == 1
    copy(2)
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    assert committed_offset(consumer, source) == 1
    copy(3)
    producer.commit_transaction(SECONDS)
    assert committed_offset(consumer, source) == 3
    consumer.close()
    assert committed(served, target) == [b"1", b"3"]


def test_kafka_python_commits_offsets_with_its_records_or_not_at_all(
    served: ServedBroker, make_topic: MakeTopic
) -> None:
    source, target = make_topic(), make_topic()
    group = f"group-{uuid.uuid4()}"
    partition = kafka.TopicPartition(source, 0)
    producer = kafka.KafkaProducer(
        bootstrap_servers=served.bootstrap, transactional_id=f"offsets-{uuid.uuid4()}"
    )
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=served.bootstrap, group_id=group, enable_auto_commit=False
    )
    consumer.assign([partition])

    for offset, commits in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.send(target, b"%d" % offset, partition=0)
        producer.send_offsets_to_transaction(
            {partition: kafka.OffsetAndMetadata(offset, "", -1)}, group
        )
        producer.flush(SECONDS)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        assert consumer.committed(partition) == (offset if commits else offset - 1)
    producer.close()
    consumer.close()

    assert committed(served, target) == [b"1", b"3"]


def test_aiokafka_commits_offsets_with_its_records_or_not_at_all(
    served: ServedBroker, make_topic: MakeTopic
) -> None:
    source, target = make_topic(), make_topic()
    group = f"group-{uuid.uuid4()}"
    partition = aiokafka.TopicPartition(source, 0)

    async def copy() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=served.bootstrap, transactional_id=f"offsets-{uuid.uuid4()}"
        )
        await producer.start()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=served.bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([partition])
        for offset, commits in ((1, True), (2, False), (3, True)):
            await producer.begin_transaction()
            await producer.send_and_wait(target, b"%d" % offset, partition=0)
            await producer.send_offsets_to_transaction({partition: offset}, group)
            if commits:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            assert await consumer.committed(partition) == (offset if commits else offset - 1)
        await producer.stop()
        await consumer.stop()

    asyncio.run(asyncio.wait_for(copy(), SECONDS))
    assert committed(served, target) == [b"1", b"3"]
