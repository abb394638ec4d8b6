"""Offsets that are committed in transactions, in raw frames: they count with their transaction."""

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from tests.clients.conftest import MakeTopic
from tests.clients.test_transactions import MakeProducer, make_producer, new_id
from tests.support.groups import find_group
from tests.support.serving import RawClient
from tests.support.transactions import RawProducer, patiently
from tests.support.waiting import wait_until

__all__ = ["make_producer", "new_id"]


def commit_offset(
    producer: RawProducer, group: str, topic: str, offset: int, version: int
) -> ErrorCode:
    """Commit an offset in the transaction, as nobody in particular of a group."""
    part = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }

    def ask() -> Any:
        answer = producer.raw.ask(
            wire.TXN_OFFSET_COMMIT,
            version,
            transactional_id=producer.transactional_id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": topic, "partitions": [part]}],
        )
        return answer.topics[0].partitions[0]

    return ErrorCode(patiently(ask, lambda part: part.error_code).error_code)


def fetch_offset(raw: RawClient, group: str, topic: str, *, stable: bool) -> tuple[int, ErrorCode]:
    """Return the committed offset of a group, and the code."""
    groups = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    answer = raw.ask(wire.OFFSET_FETCH, 8, groups=groups, require_stable=stable)
    (part,) = answer.groups[0].topics[0].partitions
    return part.committed_offset, ErrorCode(part.error_code)


def fetch_all_offsets(raw: RawClient, group: str) -> dict[int, tuple[int, ErrorCode]]:
    """Return all that a group has, without naming topics."""
    groups = [{"group_id": group, "topics": None}]
    answer = raw.ask(wire.OFFSET_FETCH, 8, groups=groups, require_stable=True)
    return {
        part.partition_index: (part.committed_offset, ErrorCode(part.error_code))
        for found in answer.groups[0].topics
        for part in found.partitions
    }


def add_offsets(producer: RawProducer, group: str) -> ErrorCode:
    def ask() -> Any:
        return producer.raw.ask(
            wire.ADD_OFFSETS_TO_TXN,
            3,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
        )

    return ErrorCode(patiently(ask, lambda answer: answer.error_code).error_code)


@pytest.fixture
def group(raw: RawClient) -> str:
    """A group whose coordinator is there."""
    name = f"group-{uuid.uuid4()}"
    find_group(raw, name)
    return name


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_count_once_their_transaction_commits(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer, group: str, version: int
) -> None:
    topic = make_topic()
    producer = make_producer(version)

    def commit(offset: int) -> ErrorCode:
        if version == 1:
            assert add_offsets(producer, group) == ErrorCode.none
        return commit_offset(producer, group, topic, offset, 3 if version == 1 else 5)

    def wait_for(offset: int) -> None:
        expected = (offset, ErrorCode.none)
        wait_until(lambda: fetch_offset(raw, group, topic, stable=True) == expected)

    assert commit(5) == ErrorCode.none
    assert fetch_offset(raw, group, topic, stable=False) == (-1, ErrorCode.none)
    assert fetch_offset(raw, group, topic, stable=True) == (-1, ErrorCode.unstable_offset_commit)
    assert fetch_all_offsets(raw, group) == {}
    producer.end(commit=True)
    wait_for(5)
    assert fetch_all_offsets(raw, group) == {0: (5, ErrorCode.none)}
    assert commit(7) == ErrorCode.none
    assert fetch_offset(raw, group, topic, stable=False) == (5, ErrorCode.none)
    producer.end(commit=False)
    wait_for(5)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.invalid_txn_state), (4, ErrorCode.transaction_abortable)],
)
def test_offsets_outside_of_their_transaction_are_refused(
    raw: RawClient,
    make_topic: MakeTopic,
    make_producer: MakeProducer,
    group: str,
    version: int,
    code: ErrorCode,
) -> None:
    topic = make_topic()
    producer = make_producer(1)
    producer.produce(topic, b"a")

    assert commit_offset(producer, group, topic, 1, version) == code
    assert fetch_offset(raw, group, topic, stable=True) == (-1, ErrorCode.none)


def test_a_fenced_producer_commits_no_offsets(
    make_topic: MakeTopic, make_producer: MakeProducer, group: str
) -> None:
    topic = make_topic()
    old = make_producer()
    make_producer()

    assert add_offsets(old, group) == ErrorCode.producer_fenced
    assert commit_offset(old, group, topic, 1, 5) == ErrorCode.invalid_producer_epoch
    old.producer_id += 1_000_000
    assert add_offsets(old, group) == ErrorCode.invalid_producer_id_mapping
    refused = commit_offset(old, group, topic, 1, 5)
    assert refused == ErrorCode.invalid_producer_id_mapping
