"""kafkajs in groups and transactions: on our broker and on a real Kafka, which must do the same."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.clients.conftest import QUICK_GROUPS
from tests.kafka.programs import KafkajsMember, run_kafkajs
from tests.kafka.test_other_clients import bootstrap, create
from tests.support.serving import ServedBroker

__all__ = ["bootstrap"]

WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("served") / "logs", QUICK_GROUPS) as broker:
        yield broker.start()


def wait_until(is_done: Callable[[], bool], *members: KafkajsMember) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, [(m.assigned, m.read) for m in members]
        time.sleep(0.02)


def test_kafkajs_members_come_go_and_die(bootstrap: str) -> None:
    topic = create(bootstrap, "kafkajs-members")
    with KafkajsMember(bootstrap, topic, "kafkajs-members") as one:
        wait_until(lambda: sorted(one.assigned) == [0, 1], one)
        with KafkajsMember(bootstrap, topic, "kafkajs-members") as goes:
            both = (one, goes)
            wait_until(lambda: sorted(p for m in both for p in m.assigned) == [0, 1], *both)
            wait_until(lambda: len(one.assigned) == len(goes.assigned) == 1, *both)
            goes.leave()
        wait_until(lambda: sorted(one.assigned) == [0, 1], one)
        with KafkajsMember(bootstrap, topic, "kafkajs-members", session_ms=1500) as dies:
            both = (one, dies)
            wait_until(lambda: len(one.assigned) == len(dies.assigned) == 1, *both)
            dies.kill()
        wait_until(lambda: sorted(one.assigned) == [0, 1], one)

        run_kafkajs(bootstrap, "produce", topic=topic, count=20, codec="None", acks=-1)
        wait_until(lambda: len(one.read) >= 20, one)

    assert sorted(one.read, key=int) == [str(number) for number in range(20)]


def test_kafkajs_commits_and_aborts_transactions_with_offsets(bootstrap: str) -> None:
    topic = create(bootstrap, "kafkajs-transactions")
    source = create(bootstrap, "kafkajs-transactions-source")

    ended = run_kafkajs(
        bootstrap, "transact", topic=topic, source=source, group="kafkajs-pipeline", id="kafkajs"
    )
    read = run_kafkajs(bootstrap, "consume", topic=topic, group="kafkajs-committed", count=3)

    ((offsets,),) = ([one["partitions"]] for one in ended["committed"])
    assert {part["partition"]: part["offset"] for part in offsets} == {0: "12", 1: "-1"}
    assert ended["refused"] == "INVALID_PRODUCER_EPOCH"
    # Each marker takes an offset; what was aborted, or left open by who was fenced, is not read.
    assert read["found"] == [[0, 0, "0"], [0, 4, "2"], [0, 8, "heir"]]
