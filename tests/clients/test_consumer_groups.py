"""Groups of the consumer protocol: librdkafka's members, and frames of our own."""

import uuid
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from tests.clients.conftest import MakeTopic
from tests.clients.test_groups import produce, shares, wait_for
from tests.support.groups import find_group
from tests.support.serving import RawClient, ServedBroker


@pytest.fixture
def group(raw: RawClient) -> str:
    """A name that nobody has, and a broker that looks after it."""
    name = f"new-{uuid.uuid4()}"
    find_group(raw, name)
    return name


def consumer_of(served: ServedBroker, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": served.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )


def heartbeat(raw: RawClient, group: str, member: str, epoch: int, **values: Any) -> Any:
    return raw.ask(
        wire.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        **{"topic_partitions": None, **values},
    )


def join(raw: RawClient, group: str, member: str, topics: list[str], **values: Any) -> Any:
    return heartbeat(
        raw,
        group,
        member,
        0,
        **{
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": topics,
            "topic_partitions": (),
            **values,
        },
    )


def commit(
    raw: RawClient, group: str, member: str, epoch: int, topic: str, partition: int
) -> ErrorCode:
    part = {"partition_index": partition, "committed_offset": 1, "committed_metadata": ""}
    answer = raw.ask(
        wire.OFFSET_COMMIT,
        9,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[{"name": topic, "partitions": [part]}],
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def partitions(answer: Any) -> list[int]:
    return sorted(n for topic in answer.assignment.topic_partitions for n in topic.partitions)


def owned(answer: Any, numbers: list[int]) -> list[dict[str, Any]]:
    topic_id = answer.assignment.topic_partitions[0].topic_id
    return [{"topic_id": topic_id, "partitions": numbers}]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go_and_the_broker_shares_out(
    served: ServedBroker, make_topic: MakeTopic, group: str, assignor: str
) -> None:
    topic = make_topic(4)
    produce(served, topic, 4, 8)
    with ExitStack() as stack:
        first = stack.enter_context(
            closing(consumer_of(served, group, group_remote_assignor=assignor))
        )
        first.subscribe([topic])
        wait_for([first], lambda: shares([first]) == [[0, 1, 2, 3]])

        second = consumer_of(served, group, group_remote_assignor=assignor)
        second.subscribe([topic])
        both = [first, second]
        wait_for(both, lambda: [len(s) for s in shares(both)] == [2, 2])
        assert sorted(p for share in shares(both) for p in share) == [0, 1, 2, 3]
        first.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)

        second.close()
        wait_for([first], lambda: shares([first]) == [[0, 1, 2, 3]])
        admin = AdminClient({"bootstrap.servers": served.bootstrap})
        described = admin.describe_consumer_groups([group])[group].result()
        assert described.type.name == "CONSUMER"
        assert described.partition_assignor == assignor
        (found,) = first.committed([TopicPartition(topic, 0)])
        assert found.offset == 2


def test_a_pattern_finds_the_topics_that_come_later(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    first = make_topic(1)
    with closing(consumer_of(served, group)) as consumer:
        consumer.subscribe([f"^{first[:-1]}.*"])
        wait_for([consumer], lambda: {p.topic for p in consumer.assignment()} == {first})

        second = make_topic(2)

        both = {first, second}
        wait_for([consumer], lambda: {p.topic for p in consumer.assignment()} == both)


def test_a_partition_is_given_up_before_another_gets_it(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    one = join(raw, group, "one", [topic])
    assert (one.member_epoch, partitions(one)) == (2, [0, 1])  # A group is made with epoch 1.

    other = join(raw, group, "other", [topic])
    assert (other.member_epoch, partitions(other)) == (3, [])  # all are the first one's
    told = heartbeat(raw, group, "one", 2)
    (kept,) = partitions(told)
    assert told.member_epoch == 2  # until it has given up what it must
    assert heartbeat(raw, group, "other", 3).assignment is None

    moved = heartbeat(raw, group, "one", 2, topic_partitions=owned(told, [kept]))
    got = heartbeat(raw, group, "other", 3)

    assert moved.member_epoch == 3
    assert partitions(got) == [1 - kept]


def test_an_epoch_that_is_over_still_commits_what_the_member_held_since_then(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    join(raw, group, "one", [topic])
    join(raw, group, "other", [topic])
    told = heartbeat(raw, group, "one", 2)
    (kept,) = partitions(told)
    heartbeat(raw, group, "one", 2, topic_partitions=owned(told, [kept]))
    heartbeat(raw, group, "other", 3)

    # The first one is at epoch 3, and has held one partition since epoch 2.
    codes = [
        commit(raw, group, member, epoch, topic, partition)
        for member, epoch, partition in (
            ("one", 3, kept),
            ("one", 2, kept),
            ("one", 2, 1 - kept),
            ("one", 1, kept),
            ("one", 4, kept),
            ("other", 2, 1 - kept),
        )
    ]

    assert codes == [0, 0, *[ErrorCode.stale_member_epoch] * 4]


def test_a_member_with_a_wrong_epoch_is_fenced(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(1)
    join(raw, group, "one", [topic])

    assert heartbeat(raw, group, "one", 7).error_code == ErrorCode.fenced_member_epoch
    assert heartbeat(raw, group, "nobody", 1).error_code == ErrorCode.unknown_member_id
    assert heartbeat(raw, group + "x", "one", 1).error_code == ErrorCode.group_id_not_found
    refused = join(raw, group, "two", [topic], server_assignor="best")
    assert refused.error_code == ErrorCode.unsupported_assignor
    refused = join(raw, group, "two", [], subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.invalid_regular_expression
    assert commit(raw, group, "one", 0, topic, 0) == ErrorCode.stale_member_epoch


def test_no_pattern_takes_so_long_that_nobody_is_answered(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    make_topic(1)

    # The name of the topic can be taken apart in more ways than anybody can try.
    answer = join(raw, group, "one", [], subscribed_topic_regex="(([a-z-])+)+!")

    assert answer.error_code == ErrorCode.none
    answer = raw.ask(
        wire.LIST_TRANSACTIONS,
        2,
        state_filters=(),
        producer_id_filters=(),
        duration_filter=-1,
        transactional_id_pattern="(?=a)",
    )
    assert answer.error_code == ErrorCode.invalid_regular_expression


def test_a_static_member_that_is_away_keeps_its_share_for_the_next_one(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    epoch = join(raw, group, "one", [topic], instance_id="a").member_epoch
    unreleased = join(raw, group, "again", [topic], instance_id="a")
    away = heartbeat(raw, group, "one", -2, instance_id="a")

    back = join(raw, group, "again", [topic], instance_id="a")

    assert unreleased.error_code == ErrorCode.unreleased_instance_id
    assert away.member_epoch == -2
    assert (back.member_epoch, partitions(back)) == (epoch, [0, 1])
    fenced = heartbeat(raw, group, "one", epoch, instance_id="a")
    assert fenced.error_code == ErrorCode.fenced_instance_id
