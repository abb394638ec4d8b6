"""Transactions that are open when another takes the directory over: each ends what it finds."""

from kio.schema.errors import ErrorCode

from tests.clients.test_transactional_clients import committed as read_committed
from tests.clients.test_transactional_offsets import commit_offset, fetch_offset
from tests.kafka.conftest import MakeBroker
from tests.kafka.markers import wait_for_markers
from tests.kafka.test_new_groups_in_turns import (
    GROUP,
    OURS,
    TOPIC,
    talking_to,
)
from tests.support.serving import ServedBroker
from tests.support.transactions import RawProducer, fetch, find_coordinator

TRANSACTION_TIMEOUT_MS = 800_000  # or it may be over while one stops and the other starts


def test_open_transactions_go_from_kafka_to_ours_and_back(make_broker: MakeBroker) -> None:
    kafka = make_broker()
    kafka.start()
    kafka.create_topic(TOPIC)
    with talking_to(kafka) as raw:
        producer = RawProducer(raw, "turns").init(timeout_ms=TRANSACTION_TIMEOUT_MS)
        producer.produce(TOPIC, b"a")
        assert commit_offset(producer, GROUP, TOPIC, 5, 5) == ErrorCode.none
        old = RawProducer(raw, "old", version=1).init(timeout_ms=TRANSACTION_TIMEOUT_MS)
        old.produce(TOPIC, b"aborted")
        unstable = (-1, ErrorCode.unstable_offset_commit)
        assert fetch_offset(raw, GROUP, TOPIC, stable=True) == unstable
    kafka.stop()

    with ServedBroker(kafka.log_dir, OURS) as ours:
        ours.start()
        with talking_to(ours) as raw:
            producer.raw = old.raw = raw
            assert producer.describe().transaction_state == "Ongoing"
            assert fetch(raw, TOPIC).last_stable_offset == 0
            producer.end(commit=True)
            assert fetch_offset(raw, GROUP, TOPIC, stable=True) == (5, ErrorCode.none)
            old.end(commit=False)
            producer.produce(TOPIC, b"b")
            assert commit_offset(producer, GROUP, TOPIC, 6, 5) == ErrorCode.none
            old.produce(TOPIC, b"c")
        ours.kill()

        kafka.start()
        with talking_to(kafka) as raw:
            producer.raw = old.raw = raw
            find_coordinator(raw, "turns")
            assert producer.describe().transaction_state == "Ongoing"
            assert read_committed(kafka, TOPIC) == [b"a"]
            producer.end(commit=False)
            old.end(commit=True)
            wait_for_markers(kafka.bootstrap, "turns", "old")
            assert read_committed(kafka, TOPIC) == [b"a", b"c"]
            assert fetch_offset(raw, GROUP, TOPIC, stable=True) == (5, ErrorCode.none)
            producer.produce(TOPIC, b"d")
            producer.end(commit=True)
            wait_for_markers(kafka.bootstrap, "turns", "old")
        kafka.stop()

        ours.start()
        with talking_to(ours) as raw:
            producer.raw = raw
            assert read_committed(ours, TOPIC) == [b"a", b"c", b"d"]
            producer.produce(TOPIC, b"e")
            producer.end(commit=True)
            assert read_committed(ours, TOPIC) == [b"a", b"c", b"d", b"e"]
    assert kafka.complaints() == []
