"""Logs are rolled before a coordinator would have to wait for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from siltstone.broker.broker import Broker
from siltstone.broker.config import parse_server_config
from siltstone.broker.room import make_room_for_states, with_room
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import ManualClock

HOUR_MS = 3_600_000
PARTITION = TopicPartition("t", 0)
STATE = TopicPartition("__consumer_offsets", 0)


@asynccontextmanager
async def broker_of(path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    fs = FileSystem()
    with LogManager([path], fs=fs, clock=clock) as manager:
        broker = Broker(parse_server_config({}), manager, fs, clock)
        yield broker
        broker.close()


def fill(broker: Broker, partition: TopicPartition, value_bytes: int) -> None:
    now_ms = broker.clock.now_ms()
    batch = build_batch([Record(0, now_ms, b"k", bytes(value_bytes))])
    broker.manager.get_log(partition).append(batch, leader_epoch=0)


def run(tmp_path: Path, clock: ManualClock, act: Callable[[Broker], Any]) -> None:
    async def inside() -> None:
        async with broker_of(tmp_path / "logs", clock) as broker:
            await act(broker)

    asyncio.run(inside())


def test_a_marker_finds_its_log_rolled_when_the_segment_is_too_old_for_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    async def act(broker: Broker) -> None:
        broker.manager.create_topic("t", 1, {"segment.ms": str(HOUR_MS)})
        log = broker.manager.get_log(PARTITION)
        fill(broker, PARTITION, 10)
        assert with_room(broker, [PARTITION], lambda: len(log.segments)) == 1
        clock.advance_ms(HOUR_MS + 1)

        waiting = with_room(broker, [PARTITION], lambda: len(log.segments))

        assert not isinstance(waiting, int)
        assert await waiting == 2
        assert log.recovery_point == log.log_end_offset == 1

    run(tmp_path, clock, act)


def test_a_marker_for_a_topic_that_is_gone_is_its_writers_to_refuse(
    tmp_path: Path, clock: ManualClock
) -> None:
    async def act(broker: Broker) -> None:
        assert with_room(broker, [PARTITION], lambda: "written") == "written"

    run(tmp_path, clock, act)


def test_the_state_of_coordinators_is_rolled_before_its_segment_is_full(
    tmp_path: Path, clock: ManualClock
) -> None:
    async def act(broker: Broker) -> None:
        for topic in (STATE.topic, PARTITION.topic):
            broker.manager.create_topic(topic, 1, {"segment.bytes": "10000"})
        for partition in (STATE, PARTITION):
            fill(broker, partition, 8_000)
        make_room_for_states(broker.manager)
        assert len(broker.manager.get_log(STATE).segments) == 1
        for partition in (STATE, PARTITION):
            fill(broker, partition, 1_000)

        make_room_for_states(broker.manager)

        assert len(broker.manager.get_log(STATE).segments) == 2
        assert len(broker.manager.get_log(PARTITION).segments) == 1

    run(tmp_path, clock, act)
