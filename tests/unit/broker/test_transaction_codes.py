"""What transactional producers are told when disks refuse, or the states are gone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from siltstone.broker.broker import Broker
from siltstone.broker.config import parse_server_config
from siltstone.broker.handlers.offsets import handle_txn_commit
from siltstone.broker.handlers.topics import handle_delete
from siltstone.coordinator.transaction.service import Initialization
from siltstone.coordinator.transaction.state import Producer
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_directory import LogDirectory
from siltstone.log.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.serving import frame_of

ID = "id"
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
STATE = TopicPartition("__transaction_state", 0)


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[Broker]:
    fs = FileSystem()
    with LogManager([tmp_path / "one", tmp_path / "two"], fs=fs, clock=clock) as manager:
        manager.create_topic("t", 2)
        broker = Broker(parse_server_config(SETTINGS), manager, fs, clock)
        for topic in (broker.coordinators.transactions.topic, broker.groups.registry.topic):
            asyncio.run(topic.ensure())
        yield broker
        broker.close()


def directory_of(broker: Broker, partition: TopicPartition) -> LogDirectory:
    return next(d for d in broker.manager.directories if partition in d.logs)


def commit_offset(broker: Broker, producer: Producer, version: int) -> ErrorCode:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    values = {
        "transactional_id": ID,
        "group_id": "g",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "topics": [{"name": "t", "partitions": [part]}],
    }
    frame = frame_of(wire.TXN_OFFSET_COMMIT, version, values)
    answer = handle_txn_commit(broker, wire.decode(memoryview(frame)[4:], ""))
    return ErrorCode(answer["topics"][0]["partitions"][0]["error_code"])


def test_offsets_are_tried_again_when_the_coordinator_cannot_write(broker: Broker) -> None:
    producer = broker.coordinators.transactions.initialize(Initialization(ID, 1000, None))

    directory_of(broker, STATE).take_offline("pulled out")

    assert commit_offset(broker, producer, 5) is ErrorCode.coordinator_not_available


def test_offsets_are_tried_again_while_a_transaction_ends(broker: Broker) -> None:
    transactions = broker.coordinators.transactions
    producer = transactions.initialize(Initialization(ID, 1000, None))
    near = directory_of(broker, STATE)
    (away,) = [p for n in (0, 1) if (p := TopicPartition("t", n)) not in near.logs]
    transactions.add_partitions(ID, producer, frozenset({away}), 0)
    directory_of(broker, away).take_offline("pulled out")
    transactions.end(ID, producer, commit=True, client_version=0)

    # The first ones do not know CONCURRENT_TRANSACTIONS.
    assert commit_offset(broker, producer, 3) is ErrorCode.coordinator_not_available
    assert commit_offset(broker, producer, 5) is ErrorCode.concurrent_transactions


def test_transactions_are_forgotten_with_the_topic_of_their_states(broker: Broker) -> None:
    transactions = broker.coordinators.transactions
    transactions.initialize(Initialization(ID, 1000, None))
    values = {"topic_names": ["__transaction_state"], "timeout": 1000}
    frame = frame_of(wire.DELETE_TOPICS, 5, values)

    asyncio.run(handle_delete(broker, wire.decode(memoryview(frame)[4:], "")))

    assert transactions.find(ID) is None
