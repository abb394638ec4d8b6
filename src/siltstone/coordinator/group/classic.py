"""A group of the classic protocol, as a state machine without I/O.

    Empty --> PreparingRebalance     a member joins
          --> CompletingRebalance    all have joined, or their time is up
          --> Stable                 the leader has synced
          --> PreparingRebalance     a member joins, leaves, dies, or has other protocols
          --> Empty                  nobody is left when the joining is over

A generation begins when everybody has joined. Its leader, the first to join, shares out the
partitions and sends the result with its sync, which answers the syncs of all. Whoever speaks of
another generation is refused. A member is dead when it is silent for its session timeout; one with
an instance id may come back as a new member and take its place without a rebalance.

Times in `now_ms` count from anywhere, and only go forward; `clock` tells the time of day.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.classic_state import (
    ClassicState,
    JoinRequest,
    State,
    SyncRequest,
    refusal,
)
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import (
    JoinAnswer,
    JoinReply,
    Member,
    SyncAnswer,
    SyncReply,
)

logger = logging.getLogger(__name__)

_NEW_MEMBER_MS: Final = 300_000  # a first join may wait so long for its answer


class ClassicGroup(ClassicState):
    """How far the rebalance of a group has come, and what happens next."""

    # Joining

    def handle_join(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        """Take a member in; it is answered when the generation begins, or at once if refused."""
        try:
            if self.state is State.DEAD:
                raise refusal(ErrorCode.coordinator_not_available, self.group_id, "is deleted")
            if not self._supports(request):
                raise refusal(
                    ErrorCode.inconsistent_group_protocol,
                    self.group_id,
                    f"has no protocol in common with {request.protocol_type} "
                    f"{[p.name for p in request.protocols]}",
                )
            if request.member_id:
                self._join_known(request, now_ms, reply)
            else:
                self._join_unknown(request, now_ms, reply)
        except GroupError as error:
            reply(JoinAnswer(error.code, request.member_id))

    def _join_unknown(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        member_id = self._make_member_id(request.instance_id or request.origin.client_id)
        if request.instance_id is not None:
            if request.instance_id in self._statics:
                self._replace_static(request, member_id, now_ms, reply)
                return
            self._check_room(is_promised=False)
            self._add(request, member_id, now_ms, reply)
            return
        self._check_room(is_promised=False)
        if request.needs_known_id:
            # A client that gives up before it is answered would otherwise be a member for ever.
            self._promised[member_id] = now_ms + request.session_timeout_ms
            reply(JoinAnswer(ErrorCode.member_id_required, member_id))
            return
        self._add(request, member_id, now_ms, reply)

    def _join_known(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        member_id = request.member_id
        if member_id in self._promised:
            self._check_room(is_promised=True)
            del self._promised[member_id]
            self._add(request, member_id, now_ms, reply)
            return
        member = self._get_member(member_id, request.instance_id)
        if self.state is State.PREPARING:
            self._update(member, request, now_ms, reply)
            self._maybe_complete_join(now_ms)
            return
        has_same_protocols = member.protocols == request.protocols
        is_leader = member_id == self.leader
        if self.state is State.COMPLETING and has_same_protocols:
            # Its answer was lost on the way.
            reply(self._join_answer(member))
        elif self.state is State.STABLE and has_same_protocols and not is_leader:
            reply(self._join_answer(member))
        else:
            # A leader that joins again wants a rebalance: it has seen new partitions, or topics.
            self._update(member, request, now_ms, reply)
            self._begin_rebalance(now_ms)

    def _add(self, request: JoinRequest, member_id: str, now_ms: int, reply: JoinReply) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.origin,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
            deadline_ms=now_ms + _NEW_MEMBER_MS,
            join_reply=reply,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if self.leader is None:
            self.leader = member_id
        if request.instance_id is not None:
            self._statics[request.instance_id] = member_id
        if self.state is State.PREPARING:
            self._has_newcomer = True
            self._maybe_complete_join(now_ms)
        else:
            self._begin_rebalance(now_ms)

    def _update(self, member: Member, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.origin = request.origin
        # A client that asks twice has lost the first connection.
        member.answer_join(JoinAnswer(ErrorCode.rebalance_in_progress, member.member_id))
        member.join_reply = reply
        self._touch(member, now_ms)

    def _replace_static(
        self, request: JoinRequest, member_id: str, now_ms: int, reply: JoinReply
    ) -> None:
        """Let a new process take the place of the member with its instance id."""
        assert request.instance_id is not None
        old = self.members.pop(self._statics[request.instance_id])
        old_leader = self.leader
        old.answer_join(JoinAnswer(ErrorCode.fenced_instance_id, old.member_id))
        old.answer_sync(SyncAnswer(ErrorCode.fenced_instance_id))
        self._unsynced.discard(old.member_id)
        member = Member(
            member_id,
            request.instance_id,
            request.origin,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            old.assignment,
        )
        self.members[member_id] = member
        self._statics[request.instance_id] = member_id
        if self.leader == old.member_id:
            self.leader = member_id
        self._touch(member, now_ms)
        if self.state is State.STABLE and self._choose_protocol() == self.protocol:
            try:
                self._persist(self)
            except GroupError:
                # The new process does not learn its id: the old member has its place again.
                del self.members[member_id]
                self.members[old.member_id] = old
                self._statics[request.instance_id] = old.member_id
                self.leader = old_leader
                raise
            answer = self._join_answer(member)
            if member_id == self.leader:
                # It must not share out anew: the others would not be asked for their syncs.
                answer = (
                    answer._replace(skip_assignment=True)
                    if request.takes_skip_assignment
                    else answer._replace(leader=old_leader or "", members=())
                )
            reply(answer)
            return
        member.join_reply = reply
        if self.state is State.PREPARING:
            self._maybe_complete_join(now_ms)
        else:
            self._begin_rebalance(now_ms)

    # The rebalance

    def rebalance(self, now_ms: int) -> None:
        """Have everybody join again."""
        self._begin_rebalance(now_ms)

    def _begin_rebalance(self, now_ms: int) -> None:
        if self.state is State.COMPLETING:
            for member in self.members.values():
                member.answer_sync(SyncAnswer(ErrorCode.rebalance_in_progress))
        self._sync_deadline_ms = None
        self._unsynced.clear()
        was_empty = self.state is State.EMPTY
        self._enter(State.PREPARING)
        timeout_ms = self._rebalance_timeout_ms()
        if was_empty:
            # The first ones wait a little for the others, and longer if others come.
            delay_ms = min(self._timing().initial_rebalance_delay_ms, timeout_ms)
            self._initial_wait_left_ms = timeout_ms - delay_ms
            self._has_newcomer = False
            self._join_deadline_ms = now_ms + delay_ms
            if not delay_ms:
                self._complete_join(now_ms)
            return
        self._join_deadline_ms = now_ms + timeout_ms
        self._maybe_complete_join(now_ms)

    def _maybe_complete_join(self, now_ms: int) -> None:
        if (
            self.state is State.PREPARING
            and self._initial_wait_left_ms is None
            and not self._promised
            and all(m.join_reply is not None for m in self.members.values())
        ):
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin the generation with those that have joined."""
        self._join_deadline_ms = None
        self._initial_wait_left_ms = None
        absent = [m for m in self.members.values() if m.join_reply is None]
        for member in absent:
            if member.instance_id is None:
                self._forget(member)
        if self.members and not self._elect_leader():
            # Only static members that are away: they may come back, so it goes on.
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms()
            return
        self.generation += 1
        if not self.members:
            self.protocol = None
            self.leader = None
            self._enter(State.EMPTY)
            try:
                self._persist(self)
            except GroupError as error:
                # Who reads the log finds members that are silent, and gives them up as well.
                logger.error("group %s is empty, which is not written: %s", self.group_id, error)
            return
        self.protocol = self._choose_protocol()
        self._enter(State.COMPLETING)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        self._unsynced = set(self.members)
        for member in list(self.members.values()):
            self._touch(member, now_ms)
            member.answer_join(self._join_answer(member))

    # Syncing

    def handle_sync(self, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        """Give a member its share, once the leader has sent it."""
        try:
            member = self._get_member(request.member_id, request.instance_id)
            self._check_generation(request.generation)
            if request.protocol_type not in (None, self.protocol_type) or (
                request.protocol not in (None, self.protocol)
            ):
                raise refusal(
                    ErrorCode.inconsistent_group_protocol,
                    self.group_id,
                    f"uses {self.protocol_type} {self.protocol}",
                )
            if self.state is State.PREPARING:
                raise refusal(ErrorCode.rebalance_in_progress, self.group_id, "is rebalancing")
        except GroupError as error:
            reply(SyncAnswer(error.code))
            return
        self._unsynced.discard(member.member_id)
        if self.state is State.STABLE:
            self._touch(member, now_ms)
            reply(self._sync_answer(member))
            return
        member.sync_reply = reply
        if member.member_id == self.leader:
            self._take_assignments(request.assignments, now_ms)

    def _take_assignments(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        before = self.state
        self._enter(State.STABLE)
        try:
            self._persist(self)
        except GroupError as error:
            # Nobody has seen it: the generation is tried again from its beginning.
            self.state = before
            for member in self.members.values():
                member.assignment = b""
                member.answer_sync(SyncAnswer(error.code))
            self._begin_rebalance(now_ms)
            raise
        for member in list(self.members.values()):
            if member.sync_reply is not None:
                self._touch(member, now_ms)
                member.answer_sync(self._sync_answer(member))

    # Staying, and leaving

    def handle_heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Learn that a member lives, and tell it whether to join again."""
        try:
            member = self._get_member(member_id, instance_id)
            self._check_generation(generation)
        except GroupError as error:
            return error.code
        self._touch(member, now_ms)
        return ErrorCode.rebalance_in_progress if self.state is State.PREPARING else ErrorCode.none

    def handle_leave(
        self, leavers: Iterable[tuple[str, str | None]], now_ms: int
    ) -> list[ErrorCode]:
        """Let members go, each by its id, or by its instance id alone."""
        codes = []
        has_lost = False
        for member_id, instance_id in leavers:
            if member_id in self._promised:
                del self._promised[member_id]
                codes.append(ErrorCode.none)
                continue
            try:
                if not member_id and instance_id is not None:
                    member_id = self._statics.get(instance_id, "")
                member = self._get_member(member_id, instance_id)
            except GroupError as error:
                codes.append(error.code)
                continue
            self._forget(member)
            codes.append(ErrorCode.none)
            has_lost = True
        self._go_on(now_ms, has_lost=has_lost)
        return codes

    def handle_time(self, now_ms: int) -> None:
        """Do what is due: members that are silent go, rebalances that wait go on."""
        has_lost = False
        for member_id, until_ms in list(self._promised.items()):
            if until_ms <= now_ms:
                del self._promised[member_id]
        for member in list(self.members.values()):
            if member.deadline_ms <= now_ms:
                if member.is_waiting and not member.is_new:
                    self._touch(member, now_ms)
                else:
                    self._forget(member)
                    has_lost = True
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            for member_id in self._unsynced & set(self.members):
                self._forget(self.members[member_id])
                has_lost = True
            self._unsynced.clear()
        self._go_on(now_ms, has_lost=has_lost)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._on_join_deadline(now_ms)

    def _on_join_deadline(self, now_ms: int) -> None:
        left_ms = self._initial_wait_left_ms
        if left_ms and self._has_newcomer:
            delay_ms = min(self._timing().initial_rebalance_delay_ms, left_ms)
            self._initial_wait_left_ms = left_ms - delay_ms
            self._has_newcomer = False
            self._join_deadline_ms = now_ms + delay_ms
            return
        self._complete_join(now_ms)

    def _go_on(self, now_ms: int, *, has_lost: bool) -> None:
        """Go on without those that are gone; somebody who was only expected changes nothing."""
        if self.state in (State.STABLE, State.COMPLETING):
            if has_lost:
                self._begin_rebalance(now_ms)
        else:
            self._maybe_complete_join(now_ms)

    def _forget(self, member: Member) -> None:
        del self.members[member.member_id]
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            self._statics.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        member.answer_join(JoinAnswer(ErrorCode.unknown_member_id, member.member_id))
        member.answer_sync(SyncAnswer(ErrorCode.unknown_member_id))
