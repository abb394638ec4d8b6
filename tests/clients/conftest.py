"""A broker that all tests of a worker share: give topics names of their own, and leave it alone."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.support.serving import RawClient, ServedBroker
from tests.support.waiting import wait_until

MakeTopic = Callable[..., str]

# The first member of a group need not wait for others, and one that is silent is soon given up.
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # The target of a group is there when a heartbeat is answered, not up to a second later.
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A running broker."""
    with ServedBroker(tmp_path_factory.mktemp("served") / "logs", QUICK_GROUPS) as broker:
        yield broker.start()


@pytest.fixture
def raw(served: ServedBroker) -> Iterator[RawClient]:
    """A connection to it that speaks raw frames."""
    with RawClient(served.port) as client:
        yield client


@pytest.fixture
def make_topic(raw: RawClient, request: pytest.FixtureRequest) -> MakeTopic:
    """Topics that are named after the test."""
    count = 0

    def make(partitions: int = 1, **config: str) -> str:
        nonlocal count
        count += 1
        name = re.sub(r"[^a-zA-Z0-9._-]", "-", f"{request.node.name[:200]}-{count}")
        configs = [{"name": k.replace("_", "."), "value": v} for k, v in config.items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": (),
            "configs": configs,
        }
        answer = raw.ask(19, 7, topics=[topic], timeout=30_000, validate_only=False)
        assert answer.topics[0].error_code == 0, answer
        _wait_until_led(raw, name, partitions)
        return name

    return make


def _wait_until_led(raw: RawClient, topic: str, partitions: int) -> None:
    """Wait until every partition answers; a real Kafka takes its time after it has said yes."""
    asked = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]

    def is_led() -> bool:
        topics = [{"name": topic, "partitions": asked}]
        answer = raw.ask(2, 7, replica_id=-1, isolation_level=0, topics=topics)
        return all(part.error_code == 0 for part in answer.topics[0].partitions)

    wait_until(is_led)
