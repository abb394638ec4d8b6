"""Groups that go from the classic protocol to the consumer protocol, and back, as they are read."""

from contextlib import ExitStack, closing

from confluent_kafka.admin import AdminClient

from tests.clients import test_consumer_groups as consumer_protocol
from tests.clients import test_groups as classic_protocol
from tests.clients.conftest import MakeTopic
from tests.clients.test_groups import group, shares, wait_for
from tests.support.serving import ServedBroker

__all__ = ["group"]


def type_of(served: ServedBroker, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    return str(admin.describe_consumer_groups([group])[group].result().type.name)


def test_a_group_is_upgraded_and_downgraded_with_the_members_it_has(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    go_both_ways(served, make_topic(4), group, "range")


def test_a_group_of_cooperative_members_is_upgraded_and_downgraded(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    go_both_ways(served, make_topic(4), group, "cooperative-sticky")


def go_both_ways(served: ServedBroker, topic: str, group: str, assignor: str) -> None:
    """Let a member of the consumer protocol come to classic ones, and go again."""
    with ExitStack() as stack:
        old = [
            stack.enter_context(
                closing(
                    classic_protocol.consumer_of(
                        served, group, partition_assignment_strategy=assignor
                    )
                )
            )
            for _ in range(2)
        ]
        for consumer in old:
            consumer.subscribe([topic])
        wait_for(old, lambda: [len(s) for s in shares(old)] == [2, 2])
        assert type_of(served, group) == "CLASSIC"

        new = consumer_protocol.consumer_of(served, group)
        new.subscribe([topic])
        everybody = [*old, new]
        wait_for(everybody, lambda: sorted(map(len, shares(everybody))) == [1, 1, 2])
        assert sorted(p for share in shares(everybody) for p in share) == [0, 1, 2, 3]
        assert type_of(served, group) == "CONSUMER"

        new.close()
        wait_for(old, lambda: [len(s) for s in shares(old)] == [2, 2])
        assert sorted(p for share in shares(old) for p in share) == [0, 1, 2, 3]
        assert type_of(served, group) == "CLASSIC"


def test_an_empty_group_takes_the_protocol_of_who_comes(
    served: ServedBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(1)
    for make, name in (
        (classic_protocol.consumer_of, "CLASSIC"),
        (consumer_protocol.consumer_of, "CONSUMER"),
        (classic_protocol.consumer_of, "CLASSIC"),
    ):
        with closing(make(served, group)) as consumer:
            consumer.subscribe([topic])
            wait_for([consumer], lambda c=consumer: shares([c]) == [[0]])  # type: ignore[misc]
            assert type_of(served, group) == name
