"""Offsets on real logs: what is committed, what goes with a transaction, what expires."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.classic import ClassicGroup
from siltstone.coordinator.group.classic_state import JoinRequest, SyncRequest
from siltstone.coordinator.group.config import GroupConfig
from siltstone.coordinator.group.consumer_state import Heartbeat
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import ClientOrigin, ProtocolOffer
from siltstone.coordinator.group.offset_service import Committer, NewOffset, OffsetCoordinator
from siltstone.coordinator.group.records import OffsetKey
from siltstone.coordinator.group.registry import GroupRegistry
from siltstone.coordinator.group.service import GroupCoordinator
from siltstone.coordinator.group.topics import TopicInfo
from siltstone.coordinator.state_topic import (
    KeyedValue,
    StateTopic,
    StateTopicConfig,
    TransactionalProducer,
)
from siltstone.log.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.owned_logs import ManagedLogs

CONFIG = StateTopicConfig("__consumer_offsets", 3, 1 << 20, "producer")
MINUTE_MS = 60_000
GROUPS = GroupConfig(offsets_retention_minutes=10, offset_metadata_max_bytes=5)
# Version 0 of a subscription to the topic "t".
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"


class FixedTopics:
    """The topics "t" and "u", of two partitions each."""

    _known: Final = {name: TopicInfo(name, uuid.UUID(int=n), 2) for n, name in enumerate("tu", 1)}

    def find(self, name: str) -> TopicInfo | None:
        return self._known.get(name)

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        return next((t for t in self._known.values() if t.topic_id == topic_id), None)

    def all(self) -> Iterable[TopicInfo]:
        return self._known.values()


class Coordinated:
    """The coordinator of a directory, which can be started again."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self._path = path
        self._manager: LogManager | None = None
        self.restart()

    def restart(self) -> None:
        self.close()
        self._manager = LogManager([self._path], clock=self.clock)
        topic = StateTopic(ManagedLogs(self._manager), self.clock, CONFIG)
        asyncio.run(topic.ensure())
        self.registry = GroupRegistry(topic, self.clock, FixedTopics(), lambda: GROUPS)
        self.registry.load()
        self.offsets = OffsetCoordinator(self.registry)

    def close(self) -> None:
        if self._manager is not None:
            self._manager.close()

    def commit(self, group: str, topic: str, offset: int, metadata: str = "") -> list[ErrorCode]:
        committer = Committer(group, "", None, -1)
        return self.offsets.commit(committer, [new(topic, offset, metadata)], version=8)

    def find(self, group: str, topic: str = "t") -> int | None:
        found = self.offsets.find(OffsetKey(group, topic, 0))
        return None if found is None else found.offset

    def make_member(self, group: str) -> str:
        """Have somebody join who subscribes to the topic "t"; return its id."""
        answers: list[str] = []
        joining = JoinRequest(
            "",
            None,
            ClientOrigin("c", "/h"),
            1000,
            1000,
            "consumer",
            (ProtocolOffer("range", SUBSCRIPTION),),
            needs_known_id=False,
            takes_skip_assignment=False,
        )
        classic = self.registry.create_classic(group)
        classic.handle_join(joining, 0, lambda answer: answers.append(answer.member_id))
        classic.handle_time(3000)
        syncing = SyncRequest(answers[0], None, 1, None, None, {})
        classic.handle_sync(syncing, 3000, lambda answer: None)
        return answers[0]


def new(topic: str, offset: int, metadata: str = "") -> NewOffset:
    return NewOffset(topic, 0, offset, -1, metadata, None)


@pytest.fixture
def coordinated(tmp_path: Path) -> Iterator[Coordinated]:
    coordinated = Coordinated(tmp_path / "logs")
    yield coordinated
    coordinated.close()


def test_what_was_committed_is_there_after_a_restart(coordinated: Coordinated) -> None:
    for number in range(20):
        assert coordinated.commit(f"g{number}", "t", number) == [ErrorCode.none]
    coordinated.commit("g1", "t", 100)
    member_id = coordinated.make_member("members")

    coordinated.restart()

    assert [coordinated.find(f"g{n}") for n in range(20)] == [0, 100, *range(2, 20)]
    group = coordinated.registry.find("members")
    assert group is not None
    assert list(group.members) == [member_id]
    assert group.state_name == "Stable"


def test_of_a_partition_that_cannot_be_read_whole_nothing_is_acted_upon(
    coordinated: Coordinated,
) -> None:
    coordinated.commit("g", "t", 1)
    coordinated.make_member("g")
    topic = coordinated.registry.topic
    topic.append(topic.partition_for("g"), [KeyedValue(b"\0", b"")])
    other = next(n for n in "abcdef" if topic.partition_for(n) != topic.partition_for("g"))
    coordinated.commit(other, "t", 2)

    coordinated.restart()

    assert list(coordinated.registry.groups) == [other]
    assert (coordinated.find("g"), coordinated.find(other)) == (None, 2)
    with pytest.raises(GroupError, match="cannot be read"):
        coordinated.commit("g", "t", 3)


def test_metadata_that_is_too_long_is_refused_alone(coordinated: Coordinated) -> None:
    codes = coordinated.offsets.commit(
        Committer("g", "", None, -1), [new("t", 1, "123456"), new("u", 2, "12345")], version=8
    )

    assert codes == [ErrorCode.offset_metadata_too_large, ErrorCode.none]
    assert (coordinated.find("g"), coordinated.find("g", "u")) == (None, 2)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_offsets_of_a_transaction_count_from_its_marker_on(
    coordinated: Coordinated, is_restarted: bool
) -> None:
    key = OffsetKey("g", "t", 0)
    coordinated.commit("g", "t", 1)
    coordinated.offsets.commit_in_transaction(
        Committer("g", "", None, -1), [new("t", 9)], TransactionalProducer(7, 0)
    )
    if is_restarted:
        coordinated.restart()
    assert (coordinated.find("g"), coordinated.offsets.is_unstable(key)) == (1, True)

    partition = coordinated.registry.topic.partition_for("g")
    coordinated.offsets.on_transaction_end((partition + 1) % 3, 7, True)  # not its partition
    assert coordinated.offsets.is_unstable(key)
    coordinated.offsets.on_transaction_end(partition, 7, True)

    assert (coordinated.find("g"), coordinated.offsets.is_unstable(key)) == (9, False)


def test_offsets_of_an_aborted_transaction_never_count(coordinated: Coordinated) -> None:
    coordinated.offsets.commit_in_transaction(
        Committer("g", "", None, -1), [new("t", 9)], TransactionalProducer(7, 0)
    )
    partition = coordinated.registry.topic.partition_for("g")

    coordinated.offsets.on_transaction_end(partition, 7, False)

    assert coordinated.find("g") is None


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    "delete",
    [
        lambda offsets: offsets.delete_group("g"),
        lambda offsets: offsets.delete_offsets("g", {"t": [0]}),
        lambda offsets: offsets.on_topic_deleted("t"),
    ],
    ids=["group", "offset", "topic"],
)
def test_what_a_transaction_has_written_is_deleted_with_the_rest(
    coordinated: Coordinated, delete: Callable[[OffsetCoordinator], object], is_restarted: bool
) -> None:
    coordinated.offsets.commit_in_transaction(
        Committer("g", "", None, -1), [new("t", 9)], TransactionalProducer(7, 0)
    )
    partition = coordinated.registry.topic.partition_for("g")

    delete(coordinated.offsets)
    if is_restarted:
        coordinated.restart()
    assert not coordinated.offsets.is_unstable(OffsetKey("g", "t", 0))
    coordinated.offsets.on_transaction_end(partition, 7, True)

    assert coordinated.find("g") is None


def test_offsets_that_nobody_uses_expire_and_the_group_with_them(coordinated: Coordinated) -> None:
    coordinated.commit("alone", "t", 1)
    coordinated.clock.advance_ms(10 * MINUTE_MS - 1)
    asyncio.run(coordinated.offsets.expire())
    assert coordinated.find("alone") == 1

    coordinated.clock.advance_ms(1)
    asyncio.run(coordinated.offsets.expire())

    assert coordinated.find("alone") is None
    coordinated.restart()
    assert coordinated.find("alone") is None
    assert coordinated.registry.find("alone") is None


def test_an_offset_that_says_when_it_expires_does_so_however_long_the_group_is_empty(
    coordinated: Coordinated,
) -> None:
    member_id = coordinated.make_member("g")
    group = coordinated.registry.find("g")
    assert isinstance(group, ClassicGroup)
    group.handle_leave([(member_id, None)], 3000)
    committer = Committer("g", "", None, -1)
    coordinated.offsets.commit(committer, [new("t", 1)], version=4, retention_ms=1000)
    coordinated.offsets.commit(committer, [new("u", 2)], version=4)

    coordinated.clock.advance_ms(1000)
    asyncio.run(coordinated.offsets.expire())

    assert (coordinated.find("g"), coordinated.find("g", "u")) == (None, 2)


def test_others_are_heard_while_many_offsets_expire(coordinated: Coordinated) -> None:
    for number in range(1000):
        coordinated.commit(f"g{number}", "t", number)
    coordinated.clock.advance_ms(10 * MINUTE_MS)

    async def expire() -> int:
        expiring = asyncio.create_task(coordinated.offsets.expire())
        await asyncio.sleep(0)
        left_count = len(coordinated.registry.groups)
        await expiring
        return left_count

    assert 0 < asyncio.run(expire()) < 1000
    assert coordinated.registry.groups == {}


def test_only_offsets_of_topics_that_members_do_not_read_expire(coordinated: Coordinated) -> None:
    member_id = coordinated.make_member("g")
    committer = Committer("g", member_id, None, 1)
    coordinated.offsets.commit(committer, [new("t", 1), new("u", 2)], version=8)

    coordinated.clock.advance_ms(10 * MINUTE_MS)
    asyncio.run(coordinated.offsets.expire())

    assert (coordinated.find("g"), coordinated.find("g", "u")) == (1, None)
    with pytest.raises(GroupError) as refused:
        coordinated.offsets.delete_group("g")
    assert refused.value.code is ErrorCode.non_empty_group


def test_offsets_are_deleted_unless_a_member_reads_the_topic(coordinated: Coordinated) -> None:
    member_id = coordinated.make_member("g")
    committer = Committer("g", member_id, None, 1)
    coordinated.offsets.commit(committer, [new("t", 1), new("u", 2)], version=8)

    codes = coordinated.offsets.delete_offsets("g", {"t": [0], "u": [0, 5], "x": [0]})

    assert codes == {
        "t": [ErrorCode.group_subscribed_to_topic],
        "u": [ErrorCode.none, ErrorCode.unknown_topic_or_partition],
        "x": [ErrorCode.unknown_topic_or_partition],
    }
    assert (coordinated.find("g"), coordinated.find("g", "u")) == (1, None)


def test_offsets_of_a_topic_go_with_it(coordinated: Coordinated) -> None:
    coordinated.commit("g", "t", 1)
    coordinated.commit("g", "u", 2)

    coordinated.offsets.on_topic_deleted("t")
    coordinated.restart()

    assert (coordinated.find("g"), coordinated.find("g", "u")) == (None, 2)


def test_the_consumer_protocol_is_refused_where_it_is_not_enabled(
    coordinated: Coordinated,
) -> None:
    members = GroupCoordinator(
        GroupRegistry(
            coordinated.registry.topic,
            coordinated.clock,
            FixedTopics(),
            lambda: replace(GROUPS, group_coordinator_rebalance_protocols="classic"),
        )
    )

    with pytest.raises(GroupError, match="the consumer protocol is not enabled") as caught:
        members.consumer_heartbeat("g", Heartbeat("m", 0, ClientOrigin("c", "/h")))

    assert caught.value.code == ErrorCode.unsupported_version
    assert members.registry.groups == {}
