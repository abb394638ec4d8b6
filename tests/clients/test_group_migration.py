"""Groups that go from the classic protocol to the consumer protocol, and back, as they are read."""

from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients import test_consumer_groups as consumer_protocol
from tests.clients import test_groups as classic_protocol
from tests.clients.conftest import MakeTopic
from tests.clients.test_groups import group, shares, wait_for
from tests.support.serving import ServedBroker

__all__ = ["group"]


def describe(served: ServedBroker, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    return admin.describe_consumer_groups([group])[group].result()


def type_of(served: ServedBroker, group: str) -> str:
    return str(describe(served, group).type.name)


def is_stable(served: ServedBroker, group: str) -> bool:
    return bool(describe(served, group).state.name == "STABLE")


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_is_upgraded_and_downgraded_with_the_members_it_has(
    served: ServedBroker, make_topic: MakeTopic, group: str, assignor: str
) -> None:
    topic = make_topic(4)
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
        # Cooperative members come together once more; Kafka takes nobody new meanwhile.
        wait_for(old, lambda: is_stable(served, group))
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
