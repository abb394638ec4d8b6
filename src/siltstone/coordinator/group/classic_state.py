"""A group of the classic protocol: who is in it, what it was told, and what it may do.

How it goes from one state to the next is in `classic`.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.clock import Clock
from siltstone.coordinator.group.consumer_records import Place
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import (
    ClientOrigin,
    JoinAnswer,
    JoinedMember,
    Member,
    ProtocolOffer,
    SyncAnswer,
)
from siltstone.coordinator.group.records import encode_group_key
from siltstone.coordinator.group.subscription import CONSUMER, find_topics
from siltstone.coordinator.state_topic import KeyedValue


class State(enum.Enum):
    """The states of a group, by the names that clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Timing(NamedTuple):
    """How long the first members wait for others, and how many there may be."""

    initial_rebalance_delay_ms: int
    max_size: int


class JoinRequest(NamedTuple):
    """A member that wants to be in the next generation."""

    member_id: str
    instance_id: str | None
    origin: ClientOrigin
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[ProtocolOffer, ...]
    needs_known_id: bool  # a new member is given its id first, and joins with it then
    takes_skip_assignment: bool


class SyncRequest(NamedTuple):
    """A member that has joined, and asks for its share; the leader gives those of all."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


class ClassicState:
    """The members of a group, and what they have in common.

    `persist` writes the group down as it is; it raises if it cannot, and then nothing has happened.
    """

    def __init__(
        self,
        group_id: str,
        timing: Callable[[], Timing],
        clock: Clock,
        make_member_id: Callable[[str], str],
        persist: Callable[["ClassicState"], None],
    ) -> None:
        self.group_id: Final = group_id
        self._timing = timing
        self._clock = clock
        self._make_member_id = make_member_id
        self._persist = persist
        self.state = State.EMPTY
        self.state_since_ms = clock.now_ms()  # the time of day
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._statics: dict[str, str] = {}  # instance id -> member id
        self._promised: dict[str, int] = {}  # ids given to members that are to join -> until when
        self._unsynced: set[str] = set()
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._initial_wait_left_ms: int | None = None  # only while the first members gather
        self._has_newcomer = False

    @property
    def state_name(self) -> str:
        """The state of the group, by the name that clients are told."""
        return self.state.value

    @property
    def group_type(self) -> str:
        """The protocol of its members, by the name that clients are told."""
        return "classic"

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it, or about to be."""
        return self.state in (State.EMPTY, State.DEAD) and not self._promised

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_time` has something to do, if nothing happens before."""
        times = [m.deadline_ms for m in self.members.values()]
        times += self._promised.values()
        times += [t for t in (self._join_deadline_ms, self._sync_deadline_ms) if t is not None]
        return min(times, default=None)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that consumers read; None if the members are something else."""
        if self.protocol_type != CONSUMER:
            return None
        found: set[str] = set()
        for member in self.members.values():
            # In the time between two generations the first of its offers has to do.
            topics = find_topics(member.metadata_for(self.protocol) or member.protocols[0].metadata)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def expiry_base_ms(self, commit_time_ms: int) -> int | None:
        """Return since when an offset that no member needs has been of no use; None: it is."""
        if self.protocol_type is None:
            return commit_time_ms  # Nobody was ever in the group.
        if self.state is State.EMPTY:
            return self.state_since_ms if self.state_since_ms >= 0 else commit_time_ms
        if self.state is State.STABLE and self.subscribed_topics() is not None:
            return commit_time_ms
        return None

    def deletion_records(self) -> list[KeyedValue]:
        """Return what makes everything forgotten that was written down about the group."""
        return [KeyedValue(encode_group_key(self.group_id), None)]

    def restore(
        self,
        *,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        leader: str | None,
        state_since_ms: int,
        members: Iterable[Member],
    ) -> None:
        """Become what was written down; `resume` is to follow before anybody is served."""
        self.members = {m.member_id: m for m in members}
        self._statics = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id}
        self.generation = generation
        self.protocol_type = protocol_type or None
        self.protocol = protocol
        self.leader = leader
        self.state = State.STABLE if self.members else State.EMPTY
        self.state_since_ms = state_since_ms

    def resume(self, now_ms: int) -> None:
        """Give all members their session's time to be heard of, after a restart."""
        for member in self.members.values():
            self._touch(member, now_ms)

    # Checks

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        places: Iterable[Place] = (),
        *,
        is_transactional: bool,
    ) -> None:
        """Raise unless somebody may commit offsets now, who may be no member at all.

        Which partitions they are of is not asked: the broker does not know who has what.
        """
        if self.state is State.DEAD:
            raise refusal(ErrorCode.coordinator_not_available, self.group_id, "is deleted")
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._get_member(member_id, instance_id)
            self._check_generation(generation)
        elif not is_transactional:
            raise refusal(
                ErrorCode.unknown_member_id, self.group_id, "has members, and only they commit"
            )
        if not is_transactional and self.state is State.COMPLETING:
            raise refusal(ErrorCode.rebalance_in_progress, self.group_id, "is rebalancing")

    def touch(self, member_id: str, now_ms: int) -> None:
        """Learn that a member lives from something else than a heartbeat."""
        member = self.members.get(member_id)
        if member is not None:
            self._touch(member, now_ms)

    def _touch(self, member: Member, now_ms: int) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms

    def _get_member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            known_id = self._statics.get(instance_id)
            if known_id is not None and known_id != member_id:
                raise refusal(
                    ErrorCode.fenced_instance_id,
                    self.group_id,
                    f"knows instance {instance_id} as {known_id} now, not as {member_id}",
                )
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise refusal(
                ErrorCode.unknown_member_id, self.group_id, f"has no member {member_id!r}"
            )
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise refusal(
                ErrorCode.illegal_generation,
                self.group_id,
                f"is at generation {self.generation}, not {generation}",
            )

    def _check_room(self, is_promised: bool) -> None:
        size = len(self.members) + len(self._promised) - is_promised
        if size >= self._timing().max_size:
            raise refusal(
                ErrorCode.group_max_size_reached, self.group_id, f"has {size} members: it is full"
            )

    def _supports(self, request: JoinRequest) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        if self.state is State.EMPTY or not self.members:
            return True
        common = self._common_protocols()
        return request.protocol_type == self.protocol_type and any(
            p.name in common for p in request.protocols
        )

    # What they have in common

    def _common_protocols(self) -> list[str]:
        """Return the protocols that all members have, in the order of the first member."""
        counts = Counter(p.name for m in self.members.values() for p in m.protocols)
        return [name for name, count in counts.items() if count == len(self.members)]

    def _choose_protocol(self) -> str:
        """Return what most members like best of the protocols that all have."""
        common = self._common_protocols()
        votes = Counter(
            next(p.name for p in member.protocols if p.name in common)
            for member in self.members.values()
        )
        return max(common, key=lambda name: votes[name])

    def _rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def _elect_leader(self) -> bool:
        """See that the leader is one that has joined; False if nobody has."""
        if self.leader in self.members and self.members[self.leader].join_reply is not None:
            return True
        joined = next((m for m in self.members.values() if m.join_reply is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def _join_answer(self, member: Member) -> JoinAnswer:
        members: tuple[JoinedMember, ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                JoinedMember(m.member_id, m.instance_id, m.metadata_for(self.protocol))
                for m in self.members.values()
            )
        return JoinAnswer(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            members,
        )

    def _sync_answer(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.none, self.protocol_type, self.protocol, member.assignment)

    def abandon(self, code: ErrorCode) -> None:
        """Answer all who wait, as the group goes on elsewhere."""
        for member in self.members.values():
            member.answer_join(JoinAnswer(code, member.member_id))
            member.answer_sync(SyncAnswer(code))

    def _enter(self, state: State) -> None:
        self.state = state
        self.state_since_ms = self._clock.now_ms()


def refusal(code: ErrorCode, group_id: str, what: str) -> GroupError:
    """Make the error that a group refuses with."""
    return GroupError(code, f"group {group_id} {what}")
