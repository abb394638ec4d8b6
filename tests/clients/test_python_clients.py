"""kafka-python and aiokafka, unmodified."""

import asyncio
import time
from typing import Any

import kafka
import kafka.admin
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition

from tests.support.serving import ServedBroker

COUNT = 200
SECONDS = 120


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_produces_and_consumes(served: ServedBroker, codec: str | None) -> None:
    topic = f"kafka-python-{codec}"
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=served.bootstrap)
    admin.create_topics([kafka.admin.NewTopic(topic, 2, 1)])
    producer = kafka.KafkaProducer(bootstrap_servers=served.bootstrap, compression_type=codec)
    sent = [
        producer.send(topic, key=b"%d" % i, value=b"value %d" % i, partition=i % 2)
        for i in range(COUNT)
    ]
    producer.flush(SECONDS)
    assert sorted(future.get(SECONDS).offset for future in sent[::2]) == list(range(COUNT // 2))

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=served.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    partitions = [kafka.TopicPartition(topic, number) for number in range(2)]
    consumer.assign(partitions)
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < COUNT and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            found += records

    assert sorted(int(record.key) for record in found) == list(range(COUNT))
    assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, COUNT // 2)
    consumer.close()
    producer.close()
    admin.delete_topics([topic])
    admin.close()


def test_aiokafka_produces_and_consumes(served: ServedBroker) -> None:
    topic = "aiokafka"

    async def produce_and_consume() -> list[bytes | None]:
        async with AIOKafkaProducer(
            bootstrap_servers=served.bootstrap, enable_idempotence=True
        ) as producer:
            for number in range(COUNT):
                await producer.send(topic, b"value %d" % number, key=b"k")
            await producer.flush()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=served.bootstrap, group_id=None, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        values: list[bytes | None] = []
        while len(values) < COUNT:
            record = await asyncio.wait_for(consumer.getone(), SECONDS)
            values.append(record.value)
        await consumer.stop()
        return values

    values = asyncio.run(produce_and_consume())

    assert values == [b"value %d" % number for number in range(COUNT)]
