"""A member of the consumer protocol, and its way from what it has to what it is to have.

A member first gives up what it is not to have any more; only when it says that it has done so does
it go on to the epoch of its target, and gets of it what nobody else still holds. So no partition is
ever read by two.

    STABLE       it has its target, or waits for a new one
    UNREVOKED    it was told to give partitions up, and has not said yet that it did
    UNRELEASED   it has what is free of its target; others are to give up the rest first
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from siltstone.coordinator.group.consumer_records import (
    ClassicInfo,
    CurrentValue,
    Given,
    MemberValue,
    Place,
    Places,
)
from siltstone.coordinator.group.members import ClientOrigin

NOTHING: Final[Places] = frozenset()
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
AWAY_EPOCH: Final = -2  # a static member that comes back
_NOBODY: Final = ClientOrigin("", "")
_NOTHING_GIVEN: Final[Given] = MappingProxyType({})


class MemberState(enum.IntEnum):
    """How far a member has come, by the numbers that are written down."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member; a change of it is a new one."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    origin: ClientOrigin = _NOBODY
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicInfo | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Places = NOTHING
    pending_revocation: Places = NOTHING
    # The epochs in which what it holds was given to it.
    given_epochs: Given = field(default_factory=lambda: _NOTHING_GIVEN)

    @property
    def holds(self) -> Places:
        """What nobody else may have yet."""
        return self.assigned | self.pending_revocation

    def value(self) -> MemberValue:
        """Return what it has told about itself, as it is written down."""
        return MemberValue(
            self.instance_id,
            self.rack_id,
            self.origin.client_id,
            self.origin.host,
            self.topics,
            self.regex,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic,
        )

    def current(self) -> CurrentValue:
        """Return what it has, as it is written down."""
        return CurrentValue(
            self.epoch,
            self.previous_epoch,
            self.state,
            self._given(self.assigned),
            self._given(self.pending_revocation),
        )

    def _given(self, places: Places) -> Given:
        return {place: self.given_epochs.get(place, self.epoch) for place in places}

    def with_value(self, value: MemberValue) -> "ConsumerMember":
        """Return it with what it has told about itself."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            origin=ClientOrigin(value.client_id, value.client_host),
            topics=value.topics,
            regex=value.regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.assignor,
            classic=value.classic,
        )

    def with_current(self, value: CurrentValue) -> "ConsumerMember":
        """Return it with what it has."""
        return replace(
            self,
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            state=MemberState(value.state),
            assigned=frozenset(value.assigned),
            pending_revocation=frozenset(value.pending_revocation),
            given_epochs={**value.assigned, **value.pending_revocation},
        )

    def held_since(self, place: Place) -> int | None:
        """Return the epoch in which a partition was given to it, None if it does not hold it."""
        return self.given_epochs.get(place, self.epoch) if place in self.holds else None

    def at_epoch(self, epoch: int) -> "ConsumerMember":
        """Return it in another epoch; the one before is good once more, if an answer was lost."""
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, previous_epoch=self.epoch)


def reconcile(
    member: ConsumerMember,
    target: Places,
    target_epoch: int,
    owned: Places | None,
    is_free: Callable[[Place], bool],
) -> ConsumerMember:
    """Return a member as far on its way as it may go now.

    `owned` is what the client says it has, if it says so; `is_free` tells whether no other member
    holds a partition.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and _still_owns(owned, member.pending_revocation):
        return member
    keeps = member.assigned & target
    to_give_up = member.assigned - target
    if to_give_up and _still_owns(owned, to_give_up):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            assigned=keeps,
            pending_revocation=to_give_up,
        )
    to_get = target - member.assigned
    free = frozenset(place for place in to_get if is_free(place))
    given = {place: member.given_epochs.get(place, member.epoch) for place in keeps}
    return replace(
        member.at_epoch(target_epoch),
        state=MemberState.STABLE if free == to_get else MemberState.UNRELEASED,
        assigned=keeps | free,
        pending_revocation=NOTHING,
        given_epochs={**given, **dict.fromkeys(free, target_epoch)},
    )


def _still_owns(owned: Places | None, places: Places) -> bool:
    """Say whether a client may still read some partitions: it has not said that it does not."""
    return owned is None or bool(owned & places)
