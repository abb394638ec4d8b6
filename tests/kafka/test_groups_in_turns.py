"""Groups and their offsets, on a directory in turns: each goes on where the other ended."""

from collections.abc import Mapping
from typing import Protocol

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.test_groups import wait_for
from tests.kafka.conftest import MakeBroker
from tests.support.serving import ServedBroker
from tests.support.waiting import wait_until

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


class AnyBroker(Protocol):
    @property
    def bootstrap(self) -> str: ...


def commit(broker: AnyBroker, group: str, offsets: Mapping[int, int], metadata: str = "") -> None:
    """Commit as a member, so that the group itself is written down, too."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 60_000,
        }
    )
    consumer.subscribe(["turns"])
    wait_for([consumer], lambda: bool(consumer.assignment()))
    places = [TopicPartition("turns", p, o, metadata) for p, o in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    # A client that leaves does not wait for long until it is heard.
    wait_until(lambda: states(broker)[group] == "EMPTY")


def committed(broker: AnyBroker, group: str) -> dict[int, tuple[int, str]]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = ConsumerGroupTopicPartitions(group)
    found: dict[int, tuple[int, str]] = {}

    def is_answered() -> bool:
        try:
            answer = admin.list_consumer_group_offsets([asked])[group].result()
        except KafkaException as error:
            # A Kafka that has just started reads its groups while it answers already.
            if error.args[0].code() not in (
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.NOT_COORDINATOR,
            ):
                raise
            return False
        found.update({p.partition: (p.offset, p.metadata or "") for p in answer.topic_partitions})
        return True

    wait_until(is_answered)
    return found


def states(broker: AnyBroker) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listed = admin.list_consumer_groups().result()
    return {group.group_id: group.state.name for group in listed.valid}


def test_offsets_go_from_kafka_to_ours_and_back(make_broker: MakeBroker) -> None:
    kafka = make_broker(properties=SETTINGS)
    kafka.start()
    kafka.create_topic("turns", 3)
    commit(kafka, "theirs", {0: 5, 1: 7}, "half-way")
    commit(kafka, "both", {0: 1})
    kafka.stop()

    with ServedBroker(kafka.log_dirs[0], SETTINGS) as ours:
        ours.start()
        assert committed(ours, "theirs") == {0: (5, "half-way"), 1: (7, "half-way")}
        assert states(ours) == {"theirs": "EMPTY", "both": "EMPTY"}
        commit(ours, "both", {0: 2, 2: 9}, "ours")
        commit(ours, "ours", {1: 3})
        admin = AdminClient({"bootstrap.servers": ours.bootstrap})
        admin.delete_consumer_groups(["theirs"])["theirs"].result()
        ours.kill()

        kafka.start()
        assert committed(kafka, "both") == {0: (2, "ours"), 2: (9, "ours")}
        assert committed(kafka, "ours") == {1: (3, "")}
        assert states(kafka) == {"ours": "EMPTY", "both": "EMPTY"}
        kafka.stop()

        ours.start()
        assert committed(ours, "both") == {0: (2, "ours"), 2: (9, "ours")}
        assert states(ours) == {"ours": "EMPTY", "both": "EMPTY"}
    assert kafka.complaints() == []
