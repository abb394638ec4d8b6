"""A directory that Kafka filled is served by ours, and then by Kafka again."""

import confluent_kafka

from tests.clients.test_confluent import consume, produce
from tests.kafka.conftest import MakeBroker
from tests.support.serving import ServedBroker

COUNT = 300


def test_a_directory_goes_from_kafka_to_our_broker_and_back(make_broker: MakeBroker) -> None:
    kafka = make_broker()
    kafka.start()
    kafka.create_topic("turns", config={"segment.bytes": 1024 * 1024})
    produce(kafka, "turns", range(COUNT), **{"compression.type": "lz4"})  # type: ignore[arg-type]
    kafka.stop()

    with ServedBroker(kafka.log_dirs[0]) as ours:
        ours.start()
        start = confluent_kafka.TopicPartition("turns", 0, 0)
        first = consume(ours, [start], COUNT)
        produce(ours, "turns", range(COUNT, 2 * COUNT), **{"enable.idempotence": "true"})
        assert ours.stop() == 0

    kafka.start()
    both = consume(kafka, [start], 2 * COUNT)  # type: ignore[arg-type]

    assert [int(m.key() or b"") for m in first] == list(range(COUNT))
    assert [int(m.key() or b"") for m in both] == list(range(2 * COUNT))
    assert [m.offset() for m in both] == list(range(2 * COUNT))
    assert kafka.complaints() == []
