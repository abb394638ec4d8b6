"""The internal topics: where a name belongs, what is written, what a replay gives."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from siltstone.coordinator.state_topic import (
    KeyedValue,
    StateTopic,
    StateTopicConfig,
    TransactionalProducer,
    java_hash,
)
from siltstone.log.log_manager import LogManager
from siltstone.records.compression import Codec
from tests.support.clock import ManualClock
from tests.support.owned_logs import ManagedLogs

CONFIG = StateTopicConfig("__state", 50, 1 << 20, "uncompressed")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    with LogManager([tmp_path / "logs"], clock=ManualClock(1_000)) as manager:
        yield manager


@pytest.fixture
def state(manager: LogManager) -> StateTopic:
    state = StateTopic(ManagedLogs(manager), ManualClock(1_000), CONFIG)
    asyncio.run(state.ensure())
    return state


# Computed with a JVM: Math.abs(name.hashCode()) and its remainder by 50, as Utils.abs does it.
@pytest.mark.parametrize(
    ("name", "expected_hash", "expected_partition"),
    [
        ("", 0, 0),
        ("group-1", 293427299, 49),
        ("größe", 98762257, 7),
        ("\U0001f600x", 54959989, 39),
        ("polygenelubricants", -(2**31), 0),
    ],
)
def test_a_name_belongs_to_the_partition_that_java_gives_it(
    state: StateTopic, name: str, expected_hash: int, expected_partition: int
) -> None:
    assert java_hash(name) == expected_hash
    assert state.partition_for(name) == expected_partition


def test_the_topic_is_made_once_and_compacted(manager: LogManager, state: StateTopic) -> None:
    asyncio.run(state.ensure())

    metadata = manager.describe("__state")
    assert metadata.partition_count == 50
    assert metadata.config == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": str(1 << 20),
    }


def test_a_replay_gives_what_was_appended_with_tombstones_and_transactions(
    state: StateTopic,
) -> None:
    state.append(7, [KeyedValue(b"a", b"1"), KeyedValue(b"b", b"")])
    state.append(7, [KeyedValue(b"a", None)])
    state.append(7, [KeyedValue(b"c", b"3")], TransactionalProducer(90, 4))
    state.append(8, [KeyedValue(b"elsewhere", b"4")])

    batches = list(state.replay(7))

    assert [
        (batch.header.producer_id, batch.header.producer_epoch, batch.header.is_transactional)
        for batch in batches
    ] == [(-1, -1, False), (-1, -1, False), (90, 4, True)]
    assert [(r.key, r.value) for batch in batches for r in batch.iter_records()] == [
        (b"a", b"1"),
        (b"b", b""),
        (b"a", None),
        (b"c", b"3"),
    ]
    assert list(state.replay(9)) == []


def test_what_is_written_is_compressed_as_told(manager: LogManager) -> None:
    config = replace(CONFIG, compression_type="producer", codec=Codec.ZSTD, load_buffer_bytes=1)
    state = StateTopic(ManagedLogs(manager), ManualClock(1_000), config)
    asyncio.run(state.ensure())
    records = [KeyedValue(b"%d" % number, b"value" * 100) for number in range(20)]

    for one in records:
        state.append(0, [one, KeyedValue(b"gone", None)])

    batches = list(state.replay(0))
    assert [batch.header.codec for batch in batches] == [Codec.ZSTD] * 20
    assert [next(batch.iter_records()).key for batch in batches] == [one.key for one in records]
