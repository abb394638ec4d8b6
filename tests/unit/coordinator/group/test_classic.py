"""The classic protocol, step by step: no sockets, and time as the test wants it."""

from dataclasses import dataclass, field

import pytest
from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.classic import ClassicGroup
from siltstone.coordinator.group.classic_state import (
    ClassicState,
    JoinRequest,
    State,
    SyncRequest,
    Timing,
)
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import (
    ClientOrigin,
    JoinAnswer,
    ProtocolOffer,
    SyncAnswer,
)
from tests.support.clock import ManualClock

SESSION_MS = 10_000
REBALANCE_MS = 30_000


@dataclass
class Driven:
    """A group, and what its members have been told."""

    delay_ms: int = 0
    max_size: int = 100
    now_ms: int = 0
    written: list[tuple[str, int, list[str]]] = field(default_factory=list)
    joins: dict[str, list[JoinAnswer]] = field(default_factory=dict)
    syncs: dict[str, list[SyncAnswer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = iter(range(1, 1000))
        self.group = ClassicGroup(
            "g",
            lambda: Timing(self.delay_ms, self.max_size),
            ManualClock(),
            lambda prefix: f"{prefix}-{next(count)}",
            self._persist,
        )

    def _persist(self, group: ClassicState) -> None:
        self.written.append((group.state.value, group.generation, list(group.members)))

    def join(self, who: str, *protocols: str, member_id: str = "", **changes: object) -> None:
        request = JoinRequest(
            member_id=member_id,
            instance_id=None,
            origin=ClientOrigin(who, "/h"),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=tuple(ProtocolOffer(p, p.encode()) for p in protocols or ("range",)),
            needs_known_id=False,
            takes_skip_assignment=True,
        )._replace(**changes)  # type: ignore[arg-type]
        self.group.handle_join(request, self.now_ms, self.joins.setdefault(who, []).append)

    def sync(self, who: str, **assignments: bytes) -> None:
        answer = self.joins[who][-1]
        request = SyncRequest(answer.member_id, None, answer.generation, None, None, assignments)
        self.group.handle_sync(request, self.now_ms, self.syncs.setdefault(who, []).append)

    def heartbeat(self, who: str) -> ErrorCode:
        answer = self.joins[who][-1]
        return self.group.handle_heartbeat(answer.member_id, None, answer.generation, self.now_ms)

    def wait(self, duration_ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.group.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.group.handle_time(self.now_ms)
        self.now_ms = end_ms

    def settle(self, who: str) -> None:
        """Bring the only member into a generation that is stable."""
        self.join(who)
        self.sync(who)


def test_the_first_members_wait_for_each_other_and_one_leads() -> None:
    driven = Driven(delay_ms=3000)
    driven.join("a")
    driven.wait(2000)
    driven.join("b")
    driven.wait(2999)
    assert driven.joins == {"a": [], "b": []}  # Somebody came, so the waiting began anew.

    driven.wait(1001)

    (a,), (b,) = driven.joins["a"], driven.joins["b"]
    assert (a.generation, a.leader, b.leader) == (1, "a-1", "a-1")
    assert [(m.member_id, m.metadata) for m in a.members] == [("a-1", b"range"), ("b-2", b"range")]
    assert b.members == ()


def test_the_leaders_sync_answers_all_and_is_written_down_first() -> None:
    driven = Driven(delay_ms=10)
    driven.join("a")
    driven.join("b")
    driven.wait(20)

    driven.sync("b")
    assert driven.syncs["b"] == []
    driven.sync("a", **{"a-1": b"0", "b-2": b"1"})

    assert driven.written == [("Stable", 1, ["a-1", "b-2"])]
    assert [s.assignment for who in "ab" for s in driven.syncs[who]] == [b"0", b"1"]
    assert driven.heartbeat("b") is ErrorCode.none


def test_what_most_members_like_best_of_what_all_have_is_chosen() -> None:
    driven = Driven(delay_ms=10)
    driven.join("a", "x", "sticky", "range")
    driven.join("b", "range", "sticky")
    driven.join("c", "range", "sticky")
    driven.wait(40)

    assert {answer.protocol for (answer,) in driven.joins.values()} == {"range"}


def test_who_has_no_protocol_in_common_is_refused() -> None:
    driven = Driven()
    driven.join("a", "range")
    driven.join("b", "sticky")
    driven.join("c", "range", protocol_type="connect")

    assert driven.joins["b"][0].error_code is ErrorCode.inconsistent_group_protocol
    assert driven.joins["c"][0].error_code is ErrorCode.inconsistent_group_protocol


def test_a_member_is_given_its_id_before_it_joins() -> None:
    driven = Driven()
    driven.join("a", needs_known_id=True)
    told = driven.joins["a"][0]
    assert (told.error_code, told.member_id) == (ErrorCode.member_id_required, "a-1")
    assert not driven.group.members

    driven.join("a", needs_known_id=True, member_id="a-1")

    assert driven.joins["a"][1].error_code is ErrorCode.none
    assert list(driven.group.members) == ["a-1"]


def test_an_id_that_nobody_joins_with_is_forgotten() -> None:
    driven = Driven()
    driven.join("a", needs_known_id=True)
    driven.wait(SESSION_MS)

    driven.join("a", member_id="a-1")

    assert driven.joins["a"][1].error_code is ErrorCode.unknown_member_id
    assert driven.group.is_empty


def test_a_rebalance_goes_on_without_those_that_do_not_join_again() -> None:
    driven = Driven()
    driven.settle("a")
    driven.join("b")
    assert driven.heartbeat("a") is ErrorCode.rebalance_in_progress

    for _ in range(4):
        driven.wait(REBALANCE_MS // 4 - 1)
        driven.heartbeat("a")  # It lives, but does not join.
    driven.wait(4)

    (b,) = driven.joins["b"]
    assert (b.error_code, b.generation, b.leader) == (ErrorCode.none, 2, "b-2")
    assert driven.heartbeat("a") is ErrorCode.unknown_member_id


def test_a_member_that_is_silent_for_its_session_is_out() -> None:
    driven = Driven()
    driven.settle("a")

    driven.wait(SESSION_MS - 1)
    assert driven.group.state_name == "Stable"
    driven.wait(1)

    assert driven.group.state_name == "Empty"
    assert driven.written[-1] == ("Empty", 2, [])


def test_a_member_that_does_not_sync_is_out_when_the_rebalance_should_be_over() -> None:
    driven = Driven(delay_ms=10)
    driven.join("a")
    driven.join("b")
    driven.wait(20)
    driven.sync("a")

    for _ in range(4):
        driven.wait(REBALANCE_MS // 4)
        driven.heartbeat("a")
        if driven.group.state is State.STABLE and "b-2" in driven.group.members:
            driven.heartbeat("b")

    assert list(driven.group.members) == ["a-1"]


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    driven = Driven()
    driven.join("a", instance_id="i")
    driven.sync("a", **{"i-1": b"share"})
    driven.wait(SESSION_MS - 1)

    driven.join("again", instance_id="i")

    (again,) = driven.joins["again"]
    assert (again.generation, again.skip_assignment) == (1, True)
    assert [m.member_id for m in again.members] == ["i-2"]
    assert driven.group.state is State.STABLE
    assert driven.written[-1] == ("Stable", 1, ["i-2"])
    code = driven.group.handle_heartbeat("i-1", "i", 1, driven.now_ms)
    assert code is ErrorCode.fenced_instance_id
    driven.sync("again")
    assert driven.syncs["again"][0].assignment == b"share"


def test_whoever_speaks_of_another_generation_is_refused() -> None:
    driven = Driven()
    driven.settle("a")
    group = driven.group

    assert group.handle_heartbeat("a-1", None, 2, 0) is ErrorCode.illegal_generation
    for member_id, generation, code in (
        ("a-1", 2, ErrorCode.illegal_generation),
        ("x", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
    ):
        with pytest.raises(GroupError) as refused:
            group.check_commit(member_id, None, generation, is_transactional=False)
        assert refused.value.code is code
    group.check_commit("a-1", None, 1, is_transactional=False)


def test_a_group_that_is_full_takes_nobody() -> None:
    driven = Driven(max_size=1)
    driven.join("a")
    driven.join("b")

    assert driven.joins["b"][0].error_code is ErrorCode.group_max_size_reached


def test_members_leave_one_by_one_and_the_rest_begins_anew() -> None:
    driven = Driven(delay_ms=10)
    driven.join("a")
    driven.join("b")
    driven.wait(20)
    driven.sync("b")
    driven.sync("a")

    codes = driven.group.handle_leave([("b-2", None), ("nobody", None)], driven.now_ms)

    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert driven.group.state is State.PREPARING
    driven.join("a", member_id="a-1")
    assert driven.joins["a"][-1].generation == 2


def test_nothing_has_happened_if_it_cannot_be_written_down() -> None:
    driven = Driven()
    driven.join("a")

    driven.group._persist = refuse
    with pytest.raises(GroupError, match="the disk is full"):
        driven.sync("a", **{"a-1": b"share"})

    assert driven.syncs["a"][0].error_code is ErrorCode.coordinator_not_available
    assert driven.group.state is State.PREPARING


def refuse(group: ClassicState) -> None:
    raise GroupError(ErrorCode.coordinator_not_available, "the disk is full")


def test_a_static_member_keeps_its_place_if_its_successor_cannot_be_written_down() -> None:
    driven = Driven()
    driven.join("a", instance_id="i")
    driven.sync("a", **{"a-1": b"share"})
    (first,) = driven.joins["a"]

    driven.group._persist = refuse
    driven.join("b", instance_id="i")

    assert driven.joins["b"][0].error_code is ErrorCode.coordinator_not_available
    assert list(driven.group.members) == [first.member_id]
    assert driven.group.leader == first.member_id
    heartbeat = driven.group.handle_heartbeat(first.member_id, "i", 1, driven.now_ms)
    assert heartbeat is ErrorCode.none


def test_the_last_member_has_left_also_if_that_cannot_be_written_down() -> None:
    driven = Driven()
    driven.settle("a")

    driven.group._persist = refuse
    codes = driven.group.handle_leave([("a-1", None)], driven.now_ms)

    assert codes == [ErrorCode.none]
    assert driven.group.state is State.EMPTY
