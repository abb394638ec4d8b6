"""A directory that Kafka filled is served by ours, and then by Kafka again."""

from collections.abc import Iterable

import confluent_kafka

from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from tests.clients.test_confluent import consume, produce
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import MakeBroker
from tests.kafka.harness import Harness
from tests.kafka.markers import wait_for_markers
from tests.support.log_checks import fetch_all
from tests.support.serving import RawClient, ServedBroker
from tests.support.transactions import RawProducer, find_coordinator
from tests.support.waiting import wait_until

COUNT = 300
KEY_COUNT = 20


def test_a_directory_goes_from_kafka_to_our_broker_and_back(make_broker: MakeBroker) -> None:
    kafka = make_broker()
    kafka.start()
    kafka.create_topic("turns", config={"segment.bytes": 1024 * 1024})
    produce(kafka, "turns", range(COUNT), **{"compression.type": "lz4"})  # type: ignore[arg-type]
    start = confluent_kafka.TopicPartition("turns", 0, 0)
    # Kafka sets topics aside that are not of its own making: also those of a client's group.
    consume(kafka, [start], COUNT)  # type: ignore[arg-type]
    kafka.stop()

    with ServedBroker(kafka.log_dirs[0]) as ours:
        ours.start()
        first = consume(ours, [start], COUNT)
        produce(ours, "turns", range(COUNT, 2 * COUNT), **{"enable.idempotence": "true"})
        assert ours.stop() == 0

    kafka.start()
    both = consume(kafka, [start], 2 * COUNT)  # type: ignore[arg-type]

    assert [int(m.key() or b"") for m in first] == list(range(COUNT))
    assert [int(m.key() or b"") for m in both] == list(range(2 * COUNT))
    assert [m.offset() for m in both] == list(range(2 * COUNT))
    assert kafka.complaints() == []


def test_what_our_broker_has_compacted_kafka_serves(make_broker: MakeBroker) -> None:
    kafka = make_broker()
    kafka.start()
    kafka.create_topic("cleaned", config={"segment.bytes": 2000, "cleanup.policy": "compact"})
    write_changes(kafka, range(COUNT))
    kafka.stop()

    settings = {
        "log.cleanup.policy": "compact",  # Kafka keeps the settings of topics where we cannot read.
        "log.segment.bytes": "2000",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.backoff.ms": "100",
    }
    with ServedBroker(kafka.log_dirs[0], settings) as ours:
        ours.start()
        write_changes(ours, range(COUNT, 2 * COUNT))
        wait_until(lambda: "Log cleaner cleaned log cleaned-0" in ours.log())
        write_changes(ours, range(2 * COUNT, 3 * COUNT))
        assert ours.stop() == 0
    log = LogReader([kafka.log_dirs[0]]).get_log(TopicPartition("cleaned", 0))
    records = [r for batch in fetch_all(log, 1 << 20) for r in batch.iter_records()]

    kafka.start()
    start = confluent_kafka.TopicPartition("cleaned", 0, 0)
    found = consume(kafka, [start], len(records))  # type: ignore[arg-type]

    assert [(m.offset(), m.key(), m.value()) for m in found] == [
        (r.offset, r.key, r.value) for r in records
    ]
    assert len(records) < 3 * COUNT
    latest = {m.key(): m.value() for m in found}
    assert latest == {
        b"%d" % (number % KEY_COUNT): b"value %d" % number
        for number in range(3 * COUNT - KEY_COUNT, 3 * COUNT)
    }
    assert kafka.complaints() == []


def write_changes(broker: KafkaBroker | ServedBroker, numbers: Iterable[int]) -> None:
    """Give each of a few keys a value again and again, in small batches."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 5, "linger.ms": 5}
    )
    for number in numbers:
        producer.produce("cleaned", b"value %d" % number, b"%d" % (number % KEY_COUNT), partition=0)
    assert producer.flush(120) == 0


def test_a_transaction_goes_from_kafka_to_our_broker_and_back(
    make_broker: MakeBroker, harness: Harness
) -> None:
    kafka = make_broker()
    kafka.start()
    kafka.create_topic("turns")
    with RawClient(port_of(kafka)) as raw:
        # Or it may be over while one stops and the other starts.
        producer = RawProducer(raw, "turns").init(timeout_ms=800_000)
        producer.produce("turns", b"a")
        producer.end(commit=True)
        producer.produce("turns", b"b")
        producer.end(commit=False)
        producer.produce("turns", b"c")
        silent = RawProducer(raw, "silent").init()  # Known to the coordinator only.
    kafka.stop()

    with ServedBroker(kafka.log_dirs[0]) as ours:
        ours.start()
        with RawClient(ours.port) as raw:
            producer.raw = raw
            assert producer.describe().transaction_state == "Ongoing"
            fresh = RawProducer(raw, "fresh").init()
            assert fresh.producer_id not in (producer.producer_id, silent.producer_id)
            producer.produce("turns", b"d")
            producer.end(commit=True)
            producer.produce("turns", b"e")
            producer.end(commit=False)
            producer.produce("turns", b"f")
        assert ours.stop() == 0

    kafka.start()
    with RawClient(port_of(kafka)) as raw:
        producer.raw = raw
        find_coordinator(raw, "turns")
        producer.produce("turns", b"g")
        producer.end(commit=True)
        wait_for_markers(kafka.bootstrap, "turns")
        found = harness.consume(kafka.bootstrap, "turns", isolation="read_committed")

    assert [record.value for record in found.records] == [b"a", b"c", b"d", b"f", b"g"]
    assert kafka.complaints() == []


def port_of(kafka: KafkaBroker) -> int:
    return int(kafka.bootstrap.rsplit(":", 1)[1])
