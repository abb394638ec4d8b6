"""Transactions of a broker that is killed, or of producers that never come back."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from tests.support.serving import RawClient, ServedBroker
from tests.support.transactions import RawProducer, create_topic, fetch
from tests.support.waiting import wait_until

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
}
TOPIC = "t"
ID = "id"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "logs", SETTINGS) as broker:
        yield broker.start()


def stable_offset(raw: RawClient) -> int:
    return int(fetch(raw, TOPIC).last_stable_offset)


def test_a_transaction_goes_on_after_its_broker_was_killed(broker: ServedBroker) -> None:
    with RawClient(broker.port) as raw:
        create_topic(raw, TOPIC)
        producer = RawProducer(raw, ID).init()
        producer.produce(TOPIC, b"before")

    broker.kill()
    broker.start()

    with RawClient(broker.port) as raw:
        producer.raw = raw
        assert stable_offset(raw) == 0
        assert producer.describe().transaction_state == "Ongoing"
        assert producer.produce(TOPIC, b"after") == 1
        producer.end(commit=True)
        assert stable_offset(raw) == 3


def test_a_producer_that_never_comes_back_is_aborted_fenced_and_forgotten(
    broker: ServedBroker,
) -> None:
    with RawClient(broker.port) as raw:
        create_topic(raw, TOPIC)
        producer = RawProducer(raw, ID).init(timeout_ms=300)
        producer.produce(TOPIC, b"left behind")

        wait_until(lambda: stable_offset(raw) > 0)
        refused = producer.ask_produce(TOPIC, b"late", version=12)
        assert refused.error_code == ErrorCode.invalid_producer_epoch
        assert producer.ask_end(commit=True).error_code == ErrorCode.invalid_txn_state
    # Only now, or it may be forgotten before it was refused.
    assert broker.stop() == 0
    broker.settings["transactional.id.expiration.ms"] = "1000"
    broker.start()
    with RawClient(broker.port) as raw:
        producer.raw = raw
        not_found = ErrorCode.transactional_id_not_found
        wait_until(lambda: producer.describe().error_code == not_found)

        assert producer.ask_end(commit=True).error_code == ErrorCode.invalid_producer_id_mapping
    broker.kill()
    broker.start()
    with RawClient(broker.port) as raw:
        answer = RawProducer(raw, ID).describe()
        assert answer.error_code == ErrorCode.transactional_id_not_found


def test_state_that_a_kafka_left_is_compacted_and_not_deleted(broker: ServedBroker) -> None:
    """A Kafka keeps the settings of topics elsewhere; by default old records would be deleted."""
    with RawClient(broker.port) as raw:
        create_topic(raw, TOPIC)
        RawProducer(raw, ID).init()
    assert broker.stop() == 0
    known = [p for p in broker.directory.iterdir() if p.name.startswith("silt-topic")]
    assert known
    for path in known:
        path.unlink()

    broker.start()

    with RawClient(broker.port) as raw:
        resource = {"resource_type": 2, "resource_name": "__transaction_state"}
        answer = raw.ask(
            wire.DESCRIBE_CONFIGS,
            4,
            resources=[{**resource, "configuration_keys": ["cleanup.policy"]}],
            include_synonyms=False,
            include_documentation=False,
        )
        assert [c.value for c in answer.results[0].configs] == ["compact"]


def test_the_last_stable_offset_is_the_first_undecided_one_and_never_goes_back(
    tmp_path: Path,
) -> None:
    """Producers write, commit, abort and take over as they come; the broker dies in between."""
    rng = random.Random(7)
    settings = {"transaction.state.log.num.partitions": "2"}
    with ServedBroker(tmp_path / "logs", settings) as broker:
        broker.start()
        raw = RawClient(broker.port)
        create_topic(raw, TOPIC)
        producers = [RawProducer(raw, f"id-{n}", version=1 + n % 2).init() for n in range(5)]
        undecided: dict[str, int] = {}  # the first offset of each open transaction
        end, seen = 0, 0
        for step in range(240):
            if step % 100 == 99:
                raw.socket.close()
                broker.kill()
                raw = RawClient(broker.start().port)
                for producer in producers:
                    producer.raw = raw
            producer = rng.choice(producers)
            name = producer.transactional_id
            match rng.choice(["write", "write", "commit", "abort", "take over"]):
                case "write":
                    offset = producer.produce(TOPIC, b"%d" % step)
                    undecided.setdefault(name, offset)
                    assert offset == end
                    end += 1
                case "take over":
                    producer.init()
                    end += undecided.pop(name, None) is not None  # the marker of the abort
                case decision if name in undecided:
                    producer.end(commit=decision == "commit")
                    del undecided[name]
                    end += 1
            stable = stable_offset(raw)
            assert stable == min(undecided.values(), default=end), step
            assert stable >= seen, step
            seen = stable
        raw.socket.close()
    assert seen > 50
