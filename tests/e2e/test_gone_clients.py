"""Clients that send a request and go away: what they asked for is carried out to its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from siltstone.broker.wire import DELETE_TOPICS, LIST_OFFSETS, PRODUCE
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.e2e.test_broker_life import append, create
from tests.support.serving import RawClient, ServedBroker
from tests.support.waiting import wait_until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "logs") as broker:
        yield broker.start()


def ask_and_go(broker: ServedBroker, api_key: int, version: int, values: dict[str, object]) -> None:
    with RawClient(broker.port) as client:
        client.send(api_key, version, values)


def test_a_topic_that_is_deleted_for_nobody_can_be_made_anew(broker: ServedBroker) -> None:
    with RawClient(broker.port) as client:
        create(client, "events", 100)
        append(client, "events", b"old")

        ask_and_go(broker, DELETE_TOPICS, 5, {"topic_names": ["events"], "timeout": 1000})
        wait_until(lambda: not list(broker.directory.glob("events-99")))

        wait_until(lambda: create(client, "events", 1) == 0)
        assert append(client, "events", b"new") == (0, 0)


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_record_that_is_produced_for_nobody_is_there_to_read(
    broker: ServedBroker, acks: int
) -> None:
    records = build_batch([Record(0, 1000, b"k", bytes(900_000))])
    parts = [{"index": 0, "records": records}]
    values: dict[str, object] = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": "events", "partition_data": parts}],
    }
    with RawClient(broker.port) as client:
        create(client, "events", 1, flush_messages="1")

        ask_and_go(broker, PRODUCE, 9, values)

        wait_until(lambda: latest_offset(client, "events") == 1)
        assert append(client, "events", b"next") == (0, 1)


def latest_offset(client: RawClient, topic: str) -> int:
    parts = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    answer = client.ask(
        LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": parts}],
    )
    return int(answer.topics[0].partitions[0].offset)
