"""A broker that is killed with SIGKILL comes back with its groups, and members go on."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients import test_consumer_groups as consumer_protocol
from tests.clients import test_groups as classic_protocol
from tests.clients.conftest import QUICK_GROUPS
from tests.clients.test_groups import produce, shares, wait_for
from tests.support.serving import ServedBroker


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("groups") / "logs", QUICK_GROUPS) as broker:
        yield broker.start()


def committed(consumer: Consumer, topic: str) -> int:
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    return int(found.offset)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_offsets_outlive_the_broker(served: ServedBroker, protocol: str) -> None:
    topic = group = f"survives-{protocol}"
    produce(served, topic, 1, 2)  # makes the topic
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    with closing(
        classic_protocol.consumer_of(served, group, session_timeout_ms=60_000)
        if protocol == "classic"
        else consumer_protocol.consumer_of(served, group)
    ) as consumer:
        revoked: list[object] = []
        consumer.subscribe([topic], on_revoke=lambda _, places: revoked.append(places))
        wait_for([consumer], lambda: shares([consumer]) == [[0]])
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)

        served.kill()
        served.start()

        assert committed(consumer, topic) == 1
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        assert committed(consumer, topic) == 2
        described = admin.describe_consumer_groups([group])[group].result()
        assert described.state.name == "STABLE"
        assert not revoked
