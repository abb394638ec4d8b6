"""Consumers of the classic protocol in groups: confluent-kafka, kafka-python and aiokafka."""

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import MakeTopic
from tests.support.serving import ServedBroker
from tests.support.waiting import wait_until

WAIT_SECONDS = 120


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4()}"


def consumer_of(served: ServedBroker, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": served.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 100,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )


def produce(served: ServedBroker, topic: str, partitions: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": served.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(WAIT_SECONDS) == 0


def wait_for(consumers: list[Consumer], is_done: Callable[[], bool]) -> None:
    """Poll all consumers until something is the case."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, [c.assignment() for c in consumers]
        for consumer in consumers:
            consumer.poll(0.02)


def shares(consumers: list[Consumer]) -> list[list[int]]:
    return sorted(sorted(p.partition for p in c.assignment()) for c in consumers)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_share_the_partitions(
    served: ServedBroker, make_topic: MakeTopic, group: str, assignor: str
) -> None:
    topic = make_topic(4)
    config = {"partition_assignment_strategy": assignor}
    with ExitStack() as stack:
        first = stack.enter_context(closing(consumer_of(served, group, **config)))
        first.subscribe([topic])
        wait_for([first], lambda: shares([first]) == [[0, 1, 2, 3]])

        second = consumer_of(served, group, **config)
        second.subscribe([topic])
        both = [first, second]
        wait_for(both, lambda: [len(s) for s in shares(both)] == [2, 2])
        assert sorted(p for share in shares(both) for p in share) == [0, 1, 2, 3]

        second.close()
        wait_for([first], lambda: shares([first]) == [[0, 1, 2, 3]])


def state_of(admin: AdminClient, group: str) -> str:
    return str(admin.describe_consumer_groups([group])[group].result().state.name)


MEMBER = """
import sys
from confluent_kafka import Consumer
servers, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "session.timeout.ms": 1000,
                     "heartbeat.interval.ms": 100})
consumer.subscribe([topic])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


def test_a_member_that_dies_is_replaced_after_its_session(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    command = [sys.executable, "-c", MEMBER, served.bootstrap, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        for line in dying.stdout:
            if line.strip() == "2":
                break
        dying.kill()

    with closing(consumer_of(served, group)) as heir:
        heir.subscribe([topic])
        wait_for([heir], lambda: shares([heir]) == [[0, 1]])


def test_what_was_committed_is_where_the_next_one_goes_on(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    produce(served, topic, 2, 20)

    def read(count: int) -> list[int]:
        values: list[int] = []
        with closing(consumer_of(served, group)) as consumer:
            consumer.subscribe([topic])
            deadline = time.monotonic() + WAIT_SECONDS
            while len(values) < count:
                assert time.monotonic() < deadline
                record = consumer.poll(1)
                if record is not None and record.error() is None:
                    value = record.value()
                    assert value is not None
                    values.append(int(value))
                    consumer.commit(message=record, asynchronous=False)
        return values

    assert sorted(read(7) + read(13)) == list(range(20))


def test_kafka_python_commits_and_goes_on(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    produce(served, topic, 2, 30)

    def read(count: int) -> list[int]:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=served.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=1,
            consumer_timeout_ms=WAIT_SECONDS * 1000,
        )
        values = []
        for record in consumer:
            values.append(int(record.value))
            if len(values) == count:
                break
        consumer.commit()
        consumer.close()
        return values

    assert sorted(read(11) + read(19)) == list(range(30))


def test_aiokafka_members_share_and_commit_by_themselves(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(4)
    produce(served, topic, 4, 40)

    async def run() -> tuple[list[int], dict[int, int | None]]:
        members = [
            AIOKafkaConsumer(
                topic,
                bootstrap_servers=served.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(member.start() for member in members))
        values: list[int] = []

        async def have_all_been_read() -> bool:
            """Say whether each has its half, and is at the end of it: it may read things again."""
            if {len(m.assignment()) for m in members} != {2}:
                return False
            positions = [await m.position(p) for m in members for p in m.assignment()]
            return len(set(values)) == 40 and positions == [10] * 4

        while not await have_all_been_read():
            for member in members:
                found = await member.getmany(timeout_ms=50)
                values += [int(r.value or b"") for records in found.values() for r in records]
        for member in members:
            await member.stop()
        reader = AIOKafkaConsumer(bootstrap_servers=served.bootstrap, group_id=group)
        await reader.start()
        committed = {i: await reader.committed(AioTopicPartition(topic, i)) for i in range(4)}
        await reader.stop()
        return values, committed

    values, committed = asyncio.run(asyncio.wait_for(run(), WAIT_SECONDS))

    assert set(values) == set(range(40))
    assert committed == dict.fromkeys(range(4), 10)


def test_a_static_member_comes_back_to_its_share_and_fences_the_one_before(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(closing(consumer_of(served, group, group_instance_id=name)))
            for name in ("one", "other")
        )
        one.subscribe([topic])
        revoked: list[Any] = []
        other.subscribe([topic], on_revoke=lambda _, partitions: revoked.append(partitions))
        wait_for([one, other], lambda: shares([one, other]) == [[0], [1]])
        share = one.assignment()
        revoked.clear()

        again = stack.enter_context(closing(consumer_of(served, group, group_instance_id="one")))
        again.subscribe([topic])
        wait_for([again, other], lambda: bool(again.assignment()))

        assert again.assignment() == share
        assert not revoked  # There was no rebalance.
        with pytest.raises(KafkaException, match=r"FENCED_INSTANCE_ID|_FATAL"):
            one.commit(offsets=[TopicPartition(topic, share[0].partition, 0)], asynchronous=False)


def test_groups_are_listed_described_and_deleted(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    with closing(consumer_of(served, group, client_id="looked-at")) as consumer:
        consumer.subscribe([topic])
        wait_for([consumer], lambda: bool(consumer.assignment()))
        consumer.commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)

        described = admin.describe_consumer_groups([group])[group].result()
        listed = admin.list_consumer_groups().result()
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result()

        assert described.state.name == "STABLE"
        (member,) = described.members
        assert (member.client_id, member.host) == ("looked-at", "/127.0.0.1")
        assert [p.partition for p in member.assignment.topic_partitions] == [0, 1]
        assert (group, "STABLE") in [(g.group_id, g.state.name) for g in listed.valid]

    wanted = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([wanted])[group].result()
    assert [(p.partition, p.offset) for p in found.topic_partitions] == [(1, 7)]
    # A client that leaves does not wait for long until it is heard.
    wait_until(lambda: state_of(admin, group) == "EMPTY")
    admin.delete_consumer_groups([group])[group].result()
    assert group not in [g.group_id for g in admin.list_consumer_groups().result().valid]
