"""Transactions that are open when another takes the directory over: each ends what it finds."""

import time

from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from tests.clients.test_transactional_clients import committed as read_committed
from tests.kafka.conftest import MakeBroker
from tests.kafka.test_new_groups_in_turns import (
    GROUP,
    OURS,
    TOPIC,
    committed,
    fetch_offsets,
    talking_to,
)
from tests.support.serving import RawClient, ServedBroker
from tests.support.transactions import RawProducer, fetch, patiently


def test_open_transactions_go_from_kafka_to_ours_and_back(make_broker: MakeBroker) -> None:
    kafka = make_broker()
    kafka.start()
    kafka.create_topic(TOPIC)
    with talking_to(kafka) as raw:
        producer = RawProducer(raw, "turns").init()
        producer.produce(TOPIC, b"a")
        send_offset(producer, 5)
        old = RawProducer(raw, "old", version=1).init()
        old.produce(TOPIC, b"aborted")
        assert fetch_offsets(raw).topics[0].partitions[0].error_code == (
            ErrorCode.unstable_offset_commit
        )
    kafka.stop()

    with ServedBroker(kafka.log_dir, OURS) as ours:
        ours.start()
        with talking_to(ours) as raw:
            producer.raw = old.raw = raw
            assert producer.describe().transaction_state == "Ongoing"
            assert fetch(raw, TOPIC).last_stable_offset == 0
            producer.end(commit=True)
            assert committed(raw) == {0: (5, "")}
            old.end(commit=False)
            producer.produce(TOPIC, b"b")
            send_offset(producer, 6)
            old.produce(TOPIC, b"c")
        ours.kill()

        kafka.start()
        with talking_to(kafka) as raw:
            producer.raw = old.raw = raw
            wait_for_coordinator(raw, "turns")
            assert producer.describe().transaction_state == "Ongoing"
            assert read_committed(kafka, TOPIC) == [b"a"]
            producer.end(commit=False)
            old.end(commit=True)
            deadline = time.monotonic() + 30
            while read_committed(kafka, TOPIC) != [b"a", b"c"]:
                assert time.monotonic() < deadline
            assert committed(raw) == {0: (5, "")}
            producer.produce(TOPIC, b"d")
            producer.end(commit=True)
        kafka.stop()

        ours.start()
        with talking_to(ours) as raw:
            producer.raw = raw
            assert read_committed(ours, TOPIC) == [b"a", b"c", b"d"]
            producer.produce(TOPIC, b"e")
            producer.end(commit=True)
            assert read_committed(ours, TOPIC) == [b"a", b"c", b"d", b"e"]
    assert kafka.complaints() == []


def wait_for_coordinator(raw: RawClient, transactional_id: str) -> None:
    patiently(
        lambda: raw.ask(
            wire.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]
        ).transaction_states[0],
        lambda state: state.error_code,
    )


def send_offset(producer: RawProducer, offset: int) -> None:
    """Commit an offset of the group in the transaction, as the second version does."""
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    answer = patiently(
        lambda: producer.raw.ask(
            wire.TXN_OFFSET_COMMIT,
            5,
            transactional_id=producer.transactional_id,
            group_id=GROUP,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=-1,
            member_id="",
            topics=[{"name": TOPIC, "partitions": [part]}],
        ),
        lambda answer: answer.topics[0].partitions[0].error_code,
    )
    assert answer.topics[0].partitions[0].error_code == ErrorCode.none, answer
