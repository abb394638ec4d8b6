"""The consumer protocol, step by step: no sockets, and time as the test wants it."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.config import GroupConfig
from siltstone.coordinator.group.consumer import ConsumerGroup
from siltstone.coordinator.group.consumer_records import Places, decode_key
from siltstone.coordinator.group.consumer_state import Heartbeat, HeartbeatAnswer
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import ClientOrigin
from siltstone.coordinator.group.topics import TopicInfo
from siltstone.coordinator.state_topic import KeyedValue

CONFIG = GroupConfig(
    group_consumer_session_timeout_ms=1000, group_consumer_assignment_interval_ms=0
)
REBALANCE_MS = 500
DAY_MS = 1_700_000_000_000  # the time of day when the tests begin
NOBODY = ClientOrigin("c", "/h")


class GrowingTopics:
    """One topic, "t", that gets more partitions when the test wants it."""

    def __init__(self) -> None:
        self.count = 4
        self.topic_id = uuid.UUID(int=1)

    def _info(self) -> TopicInfo:
        return TopicInfo("t", self.topic_id, self.count)

    def find(self, name: str) -> TopicInfo | None:
        return self._info() if name == "t" else None

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        return self._info() if topic_id == self.topic_id else None

    def all(self) -> Iterable[TopicInfo]:
        return [self._info()]


@dataclass
class Client:
    """A client that does as it is told, when it gets to it."""

    member_id: str
    epoch: int = 0
    owned: Places = frozenset()
    told: Places = frozenset()


@dataclass
class Driven:
    """A group, its clients, and what it has written down."""

    now_ms: int = 0
    assignor: str | None = None
    topics: GrowingTopics = field(default_factory=GrowingTopics)
    config: GroupConfig = CONFIG
    records: list[KeyedValue] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.group = self.make(self.records.extend)

    def make(self, write: object) -> ConsumerGroup:
        return ConsumerGroup(
            "g",
            lambda: self.config,
            self.topics,
            lambda: DAY_MS + self.now_ms,
            write,  # type: ignore[arg-type]
        )

    def beat(self, member_id: str) -> HeartbeatAnswer:
        """Send a heartbeat, as a client that has given up what it was told to."""
        client = self.clients.setdefault(member_id, Client(member_id))
        joins = client.epoch == 0
        # Gives up first what it is not to have; takes the rest with the answer.
        client.owned &= client.told
        answer = self.group.handle_heartbeat(
            Heartbeat(
                member_id,
                client.epoch,
                NOBODY,
                rebalance_timeout_ms=REBALANCE_MS if joins else None,
                topics=("t",) if joins else None,
                assignor=self.assignor if joins else None,
                owned=client.owned,
            ),
            self.now_ms,
        )
        client.epoch = answer.epoch
        if answer.assignment is not None:
            client.told = answer.assignment
            client.owned |= answer.assignment
        return answer

    def leave(self, member_id: str) -> None:
        client = self.clients.pop(member_id)
        self.group.handle_heartbeat(Heartbeat(client.member_id, -1, NOBODY), self.now_ms)

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.group.handle_time(self.now_ms)
        self.clients = {i: c for i, c in self.clients.items() if i in self.group.members}

    def read_back(self) -> ConsumerGroup:
        """Return the group as a restart gives it."""
        again = self.make(lambda records: None)
        for record in self.records:
            again.take(decode_key(record.key), record.value)
        return again


def numbers(places: Places | None) -> list[int]:
    return sorted(number for _, number in places or ())


def test_a_member_that_is_silent_for_its_session_is_out() -> None:
    driven = Driven()
    driven.beat("a")
    driven.wait(600)
    driven.beat("b")

    driven.wait(400)

    assert list(driven.group.members) == ["b"]
    driven.beat("b")
    assert numbers(driven.beat("b").assignment or driven.clients["b"].told) == [0, 1, 2, 3]


def test_a_member_that_does_not_give_up_in_time_is_out() -> None:
    driven = Driven()
    driven.beat("a")
    driven.beat("b")
    driven.beat("a")  # is told to give up two
    driven.clients["a"].told = driven.clients["a"].owned  # and does not
    for _ in range(2):
        driven.wait(200)
        driven.beat("a")
        driven.beat("b")
    assert set(driven.group.members) == {"a", "b"}

    driven.wait(100)

    assert set(driven.group.members) == {"b"}


def test_new_partitions_are_shared_out() -> None:
    driven = Driven()
    driven.beat("a")
    driven.topics.count = 6

    driven.now_ms += 999
    assert driven.beat("a").assignment is None
    driven.now_ms += 1

    assert numbers(driven.beat("a").assignment) == [0, 1, 2, 3, 4, 5]


def test_many_that_come_at_a_time_are_shared_out_to_together() -> None:
    driven = Driven(config=replace(CONFIG, group_consumer_assignment_interval_ms=300))
    driven.beat("a")

    early = driven.beat("b")
    driven.wait(299)
    still_early = driven.beat("c")
    assert (early.epoch, numbers(early.assignment)) == (2, [])
    assert (still_early.epoch, numbers(still_early.assignment)) == (2, [])
    assert (driven.group.state_name, driven.group.epoch) == ("Assigning", 4)

    driven.wait(1)
    for member_id in "abcabc":
        driven.beat(member_id)

    shares = [numbers(driven.clients[member_id].owned) for member_id in "abc"]
    assert sorted(map(len, shares)) == [1, 1, 2]
    assert driven.group.state_name == "Stable"


@pytest.mark.parametrize("new_partitions", [0, 1])
def test_after_a_restart_the_epoch_rises_only_if_topics_changed_meanwhile(
    new_partitions: int,
) -> None:
    driven = Driven()
    for member_id in "ababab":
        driven.beat(member_id)
    epoch = driven.group.epoch

    driven.topics.count += new_partitions
    driven.group = driven.read_back()
    driven.group.resume(driven.now_ms)
    answers = [driven.beat(member_id) for member_id in "ab"]

    assert driven.group.epoch == epoch + new_partitions
    assert [answer.epoch for answer in answers] == [epoch + new_partitions] * 2


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    driven = Driven()
    driven.beat("a")
    driven.beat("b")
    driven.beat("a")
    before = driven.clients["a"].epoch
    driven.beat("a")  # moves on, but the client does not hear of it
    driven.clients["a"].epoch = before

    answer = driven.beat("a")

    assert answer.epoch == driven.group.epoch
    driven.clients["a"].epoch = answer.epoch + 1
    with pytest.raises(GroupError) as refused:
        driven.beat("a")
    assert refused.value.code is ErrorCode.fenced_member_epoch


@pytest.mark.parametrize(("assignor", "expected"), [("range", [2, 3]), ("uniform", [0, 1])])
def test_the_assignor_is_the_one_that_members_want(assignor: str, expected: list[int]) -> None:
    driven = Driven(assignor=assignor)
    for member_id in "ba":  # A range goes by names; what is uniform, by who has what already.
        driven.beat(member_id)

    assert numbers(driven.group.target["b"]) == expected
    assert driven.group.assignor_name() == assignor


def test_nothing_has_happened_if_it_cannot_be_written_down() -> None:
    driven = Driven()

    def refuse(records: list[KeyedValue]) -> None:
        raise GroupError(ErrorCode.coordinator_not_available, "the disk is full")

    driven.group = driven.make(refuse)
    with pytest.raises(GroupError, match="the disk is full"):
        driven.beat("a")

    assert (driven.group.epoch, driven.group.members, driven.group.target) == (1, {}, {})


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.sampled_from("abcd")),
        st.tuples(st.just("leave"), st.sampled_from("abcd")),
        st.tuples(st.just("wait"), st.sampled_from([100, 400, 700])),
        st.tuples(st.just("grow"), st.just(1)),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_no_partition_has_two_readers_and_all_settles_in_the_end(
    steps: list[tuple[str, object]],
) -> None:
    driven = Driven()
    for step, value in steps:
        if step == "beat":
            driven.beat(str(value))
        elif step == "leave" and value in driven.clients:
            driven.leave(str(value))
        elif step == "wait":
            driven.wait(int(str(value)))
        elif step == "grow":
            driven.topics.count += 1
        owned = [place for client in driven.clients.values() for place in client.owned]
        assert len(owned) == len(set(owned))

    again = driven.read_back()
    assert again.members == driven.group.members
    assert again.target == driven.group.target
    assert (again.epoch, again.target_epoch) == (driven.group.epoch, driven.group.target_epoch)

    driven.beat("a")
    for _ in range(4):
        driven.wait(251)
        for member_id in list(driven.clients):
            driven.beat(member_id)
    assert driven.group.state_name == "Stable"
    everything = sorted(n for client in driven.clients.values() for n in numbers(client.owned))
    assert everything == list(range(driven.topics.count))
