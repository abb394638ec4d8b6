"""A group of the consumer protocol: who is in it, what is written down of it, what it may do.

How it goes on from heartbeat to heartbeat is in `consumer`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.config import GroupConfig
from siltstone.coordinator.group.consumer_member import (
    JOIN_EPOCH,
    NOTHING,
    ConsumerMember,
    MemberState,
)
from siltstone.coordinator.group.consumer_records import (
    ClassicInfo,
    GroupEpoch,
    Key,
    Kind,
    Place,
    Places,
    TargetEpoch,
    decode_current,
    decode_group,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_epoch,
    encode_current,
    encode_group,
    encode_key,
    encode_member,
    encode_target,
    encode_target_epoch,
)
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import ClientOrigin
from siltstone.coordinator.group.topics import TopicInfo, Topics
from siltstone.coordinator.patterns import check_pattern
from siltstone.coordinator.state_topic import KeyedValue
from siltstone.errors import DecodeError

_MAX_REGEX_LENGTH: Final = 1000
# Before anybody is in it, as in Kafka; the first member raises it.
_FIRST_EPOCH: Final = 1
_NOTHING_SAID: Final = (None,) * 5


class Heartbeat(NamedTuple):
    """What a member says; None where nothing has changed since it was last said."""

    member_id: str
    epoch: int
    origin: ClientOrigin
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Places | None = None
    classic: ClassicInfo | None = None  # of a member that speaks the classic protocol

    @property
    def is_full(self) -> bool:
        """Whether the client says all that there is to say, and wants to hear all."""
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms is not None
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )

    @property
    def tells_nothing(self) -> bool:
        """Whether the client says no more than that it lives, and what it has."""
        said = (self.topics, self.regex, self.assignor, self.classic, self.rack_id)
        return said == _NOTHING_SAID and self.rebalance_timeout_ms is None


class HeartbeatAnswer(NamedTuple):
    """What a member is told; no assignment means that it has not changed."""

    member_id: str
    epoch: int
    assignment: Places | None = None


class ConsumerState:
    """The members of a group, what they have and are to have."""

    group_type: Final = "consumer"
    protocol_type: Final = "consumer"

    def __init__(
        self,
        group_id: str,
        config: Callable[[], GroupConfig],
        topics: Topics,
        now_of_day_ms: Callable[[], int],
        write: Callable[[list[KeyedValue]], None],
    ) -> None:
        self.group_id: Final = group_id
        self._config = config
        self._topics = topics
        self._now_of_day_ms = now_of_day_ms
        self._write = write
        self.epoch = _FIRST_EPOCH
        self.target_epoch = 0
        self._topic_hash = 0
        self._target_time_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Places] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        self._known_topics: dict[str, TopicInfo] = {}
        self._holders: dict[Place, str] = {}
        self._topics_seen_ms: int | None = None
        self._session_deadlines: dict[str, int] = {}
        self._revocation_deadlines: dict[str, int] = {}

    # Looking

    @property
    def state_name(self) -> str:
        """The state of the group, by the name that clients are told."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if any(
            m.state is not MemberState.STABLE or m.epoch != self.target_epoch
            for m in self.members.values()
        ):
            return "Reconciling"
        return "Stable"

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_time` has something to do, if nothing happens before."""
        times = [*self._session_deadlines.values(), *self._revocation_deadlines.values()]
        return min(times, default=None)

    def assignor_name(self) -> str:
        """Return the assignor that most members want, or the default."""
        return self._choose_assignor(self.members.values())

    def _choose_assignor(self, members: Iterable[ConsumerMember]) -> str:
        votes: dict[str, int] = {}
        for member in members:
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        default = self._config().group_consumer_assignors.split(",")[0].strip()
        return max(votes, key=lambda name: votes[name], default=default)

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members read."""
        return frozenset(t for m in self.members.values() for t in wanted_topics(m, self.regexes))

    def expiry_base_ms(self, commit_time_ms: int) -> int | None:
        """Return since when an offset that no member needs has been of no use; None: it is."""
        return commit_time_ms

    def has_free(self, member: ConsumerMember) -> bool:
        """Say whether a member could get all that it still waits for."""
        waits_for = self.target.get(member.member_id, NOTHING) - member.assigned
        return not any(place in self._holders for place in waits_for)

    def find_static(self, instance_id: str) -> ConsumerMember | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    # What is written down

    def take(self, key: Key, value: bytes | None) -> None:
        """Take in a record, as it was written down before a restart."""
        detail = key.detail or ""
        match key.kind:
            case Kind.GROUP if value is not None:
                self.epoch, self._topic_hash = decode_group(value)
            case Kind.TARGET if value is not None:
                self.target_epoch, self._target_time_ms = decode_target_epoch(value)
            case Kind.MEMBER:
                if value is None:
                    self.members.pop(detail, None)
                else:
                    self.members[detail] = self._member(detail).with_value(decode_member(value))
            case Kind.CURRENT_MEMBER:
                if value is not None:
                    self.members[detail] = self._member(detail).with_current(decode_current(value))
            case Kind.TARGET_MEMBER:
                if value is None:
                    self.target.pop(detail, None)
                else:
                    self.target[detail] = decode_target(value)
            case Kind.REGEX:
                if value is None:
                    self.regexes.pop(detail, None)
                else:
                    self.regexes[detail] = decode_regex(value)

    def adopt(self, members: Iterable[ConsumerMember], epoch: int) -> list[KeyedValue]:
        """Take in the members of a classic group; return what is to be written down about it."""
        self.members = {member.member_id: member for member in members}
        self.target = {member.member_id: member.assigned for member in self.members.values()}
        self.epoch = self.target_epoch = epoch
        everybody = self.members.items()
        return [
            *(self._record(Kind.MEMBER, i, encode_member(m.value())) for i, m in everybody),
            self._record(Kind.GROUP, None, encode_group(GroupEpoch(epoch))),
            *(self._record(Kind.TARGET_MEMBER, i, encode_target(m.assigned)) for i, m in everybody),
            self._record(Kind.TARGET, None, encode_target_epoch(TargetEpoch(epoch))),
            *(
                self._record(Kind.CURRENT_MEMBER, i, encode_current(m.current()))
                for i, m in everybody
            ),
        ]

    def deletion_records(self) -> list[KeyedValue]:
        """Return what makes everything forgotten that was written down about the group."""
        return [
            *(
                record
                for member_id in self.members
                for record in tombstones(self.group_id, member_id)
            ),
            *(self._record(Kind.REGEX, regex, None) for regex in self.regexes),
            self._record(Kind.TARGET, None, None),
            self._record(Kind.GROUP, None, None),
        ]

    def _member(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id=member_id)

    def _record(self, kind: Kind, detail: str | None, value: bytes | None) -> KeyedValue:
        return KeyedValue(encode_key(Key(kind, self.group_id, detail)), value)

    def resume(self, now_ms: int) -> None:
        """Give all members their time to be heard of, after a restart."""
        self._holders = {p: m.member_id for m in self.members.values() for p in m.holds}
        for member in self.members.values():
            self._session_deadlines[member.member_id] = now_ms + self._session_timeout_ms(member)
            if member.state is MemberState.UNREVOKED:
                timeout_ms = max(member.rebalance_timeout_ms, 0)
                self._revocation_deadlines[member.member_id] = now_ms + timeout_ms

    # Checks

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        places: Iterable[Place],
        *,
        is_transactional: bool,
    ) -> None:
        """Raise unless somebody may commit offsets now, who may be no member at all.

        A member may speak of an epoch that is over, if it held all these partitions since then.
        """
        if epoch < 0 and not self.members:
            return
        if is_transactional and epoch < 0 and not member_id:
            return
        member = self._get_member(member_id)
        if epoch > member.epoch or any(
            (since := member.held_since(place)) is None or epoch < since
            for place in (places if epoch != member.epoch else ())
        ):
            raise self._stale(member, epoch)

    def check_member(self, member_id: str, epoch: int) -> None:
        """Raise unless a member speaks of its epoch."""
        member = self._get_member(member_id)
        if member.epoch != epoch:
            raise self._stale(member, epoch)

    def _get_member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise self._refusal(ErrorCode.unknown_member_id, f"has no member {member_id}.")
        return member

    def _stale(self, member: ConsumerMember, epoch: int) -> GroupError:
        return self._refusal(
            ErrorCode.illegal_generation
            if member.classic is not None
            else ErrorCode.stale_member_epoch,
            f"knows member {member.member_id} at epoch {member.epoch}, not {epoch}",
        )

    def check_assignor(self, name: str) -> None:
        """Raise unless an assignor is one that this broker has."""
        offered = [one.strip() for one in self._config().group_consumer_assignors.split(",")]
        if name not in offered:
            raise GroupError(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {name} is not supported. Supported assignors: "
                f"{', '.join(offered)}.",
            )

    def _check_regex(self, regex: str) -> None:
        try:
            if len(regex) > _MAX_REGEX_LENGTH:
                raise DecodeError(0, f"a pattern longer than {_MAX_REGEX_LENGTH} characters")
            check_pattern(regex)
        except DecodeError as error:
            raise GroupError(ErrorCode.invalid_regular_expression, error.reason) from error

    def _check_epoch(self, member: ConsumerMember, heartbeat: Heartbeat) -> None:
        epoch = heartbeat.epoch
        if epoch in (JOIN_EPOCH, member.epoch):
            return
        # An answer that was lost: the client speaks of the epoch before, and has nothing more.
        if (
            epoch == member.previous_epoch
            and heartbeat.owned is not None
            and heartbeat.owned <= member.assigned
        ):
            return
        raise self._refusal(
            ErrorCode.fenced_member_epoch,
            f"knows member {member.member_id} at epoch {member.epoch}, not {epoch}",
        )

    def touch(self, member_id: str, now_ms: int) -> None:
        """Learn that a classic member lives; all others are heard of by their heartbeats only."""
        member = self.members.get(member_id)
        if member is not None and member.classic is not None:
            self._session_deadlines[member_id] = now_ms + self._session_timeout_ms(member)

    def abandon(self, code: ErrorCode) -> None:
        """Let go of who waits: in this protocol nobody does."""

    def _session_timeout_ms(self, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._config().group_consumer_session_timeout_ms

    def _refusal(self, code: ErrorCode, what: str) -> GroupError:
        return GroupError(code, f"group {self.group_id} {what}")


def wanted_topics(member: ConsumerMember, regexes: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the topics that a member wants, by their names and by its pattern."""
    return {*member.topics, *regexes.get(member.regex or "", ())}


def tombstones(group_id: str, member_id: str) -> list[KeyedValue]:
    """Return what makes a member forgotten."""
    kinds = (Kind.CURRENT_MEMBER, Kind.TARGET_MEMBER, Kind.MEMBER)
    return [KeyedValue(encode_key(Key(kind, group_id, member_id)), None) for kind in kinds]
