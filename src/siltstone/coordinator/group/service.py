"""The coordinator of groups: who asks for which group, and what time does to it.

Everything runs on the event loop of the broker. Each group has one timer, for the first of its
deadlines; a deadline that moves on finds it too early, and it is set again then.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.coordinator.group import classic_members
from siltstone.coordinator.group.classic import ClassicGroup
from siltstone.coordinator.group.classic_state import JoinRequest, SyncRequest
from siltstone.coordinator.group.config import split
from siltstone.coordinator.group.consumer import ConsumerGroup
from siltstone.coordinator.group.consumer_member import JOIN_EPOCH
from siltstone.coordinator.group.consumer_state import Heartbeat, HeartbeatAnswer
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import JoinAnswer, SyncAnswer
from siltstone.coordinator.group.migration import can_downgrade, can_upgrade
from siltstone.coordinator.group.registry import Group, GroupRegistry, make_member_id
from siltstone.coordinator.group.subscription import CONSUMER
from siltstone.errors import DecodeError

logger = logging.getLogger(__name__)

_REST_MS: Final = 1000


class GroupCoordinator:
    """Serves the members of all groups."""

    def __init__(self, registry: GroupRegistry) -> None:
        self.registry: Final = registry
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._is_closed = False

    def start(self) -> None:
        """Begin to count the time of the groups that were read."""
        for group in self.registry.resume(_now_ms()):
            self._watch(group)

    def close(self) -> None:
        """Stop all timers, and send away all who wait."""
        self._is_closed = True
        for group in self.groups():
            group.abandon(ErrorCode.not_coordinator)
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # The classic protocol

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """Take a member in, and return once its generation begins."""
        config = self.registry.config
        try:
            self._check_name(group_id)
            if not (
                config.group_min_session_timeout_ms
                <= request.session_timeout_ms
                <= config.group_max_session_timeout_ms
            ):
                raise GroupError(
                    ErrorCode.invalid_session_timeout,
                    f"a session timeout of {request.session_timeout_ms} ms",
                )
            group = self.registry.find(group_id)
            if isinstance(group, ConsumerGroup):
                if not group.is_empty:
                    return self._join_consumer_group(group, request)
                self.registry.delete(group)
                group = None
            if group is None:
                if request.member_id:
                    raise _unknown_member(group_id, request.member_id)
                group = self.registry.create_classic(group_id)
        except GroupError as error:
            return JoinAnswer(error.code, request.member_id)
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        group.handle_join(request, _now_ms(), lambda answer: _answer(future, answer))
        self._watch(group)
        return await future

    def _join_consumer_group(self, group: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
        new_id = make_member_id(request.instance_id or request.origin.client_id)
        try:
            return classic_members.join(group, request, new_id, self.registry.topics, _now_ms())
        finally:
            self._watch(group)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """Return the share of a member, once the leader has sent it."""
        try:
            self._check_name(group_id)
            found = self.registry.find(group_id)
            if isinstance(found, ConsumerGroup):
                return classic_members.sync(found, request, self.registry.topics, _now_ms())
            group = self._get(group_id, request.member_id)
        except GroupError as error:
            return SyncAnswer(error.code)
        future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        try:
            group.handle_sync(request, _now_ms(), lambda answer: _answer(future, answer))
        except GroupError as error:
            # The log has not taken it; everybody was told to begin again.
            logger.error("group %s: %s", group_id, error)
        self._watch(group)
        return await future

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Learn that a member lives, and tell it what it has to know."""
        try:
            self._check_name(group_id)
            found = self.registry.find(group_id)
            if isinstance(found, ConsumerGroup):
                return classic_members.heartbeat(
                    found, member_id, instance_id, generation, _now_ms()
                )
            group = self._get(group_id, member_id)
        except GroupError as error:
            return error.code
        return group.handle_heartbeat(member_id, instance_id, generation, _now_ms())

    def leave(
        self, group_id: str, leavers: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode] | ErrorCode:
        """Let members go; return a code for each, or one for all."""
        try:
            self._check_name(group_id)
        except GroupError as error:
            return error.code
        group = self.registry.find(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(leavers)
        if isinstance(group, ConsumerGroup):
            found = classic_members.leave(group, leavers)
            self._maybe_downgrade(group)
            return found
        codes = group.handle_leave(leavers, _now_ms())
        self._watch(group)
        return codes

    # The consumer protocol

    def consumer_heartbeat(self, group_id: str, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Learn that a member lives and what it wants, and tell it what it has."""
        self._check_name(group_id)
        if CONSUMER not in split(self.registry.config.group_coordinator_rebalance_protocols):
            raise GroupError(
                ErrorCode.unsupported_version,
                "the consumer protocol is not enabled (group.coordinator.rebalance.protocols)",
            )
        group = self.registry.find(group_id)
        if isinstance(group, ClassicGroup):
            policy = self.registry.config.group_consumer_migration_policy
            if heartbeat.epoch == JOIN_EPOCH and not group.is_empty and can_upgrade(group, policy):
                group = self.registry.upgrade(group, _now_ms())
            elif heartbeat.epoch != JOIN_EPOCH or not group.is_empty:
                raise GroupError(
                    ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group."
                )
            else:
                self.registry.delete(group)
                group = None
        if group is None:
            if heartbeat.epoch != JOIN_EPOCH:
                raise GroupError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
            group = self.registry.create_consumer(group_id)
        try:
            return group.handle_heartbeat(heartbeat, _now_ms())
        finally:
            self._watch(group)
            self._maybe_downgrade(group)

    def _maybe_downgrade(self, group: ConsumerGroup) -> None:
        policy = self.registry.config.group_consumer_migration_policy
        if not can_downgrade(group, policy):
            return
        try:
            self._watch(self.registry.downgrade(group, _now_ms()))
        except (GroupError, DecodeError) as error:
            # What led here has happened, and counts; the group is tried again when more happens.
            logger.error("group %s cannot be downgraded: %s", group.group_id, error)

    def touch(self, group_id: str, member_id: str) -> None:
        """Learn that a member lives from something else than a heartbeat."""
        group = self.registry.find(group_id)
        if group is not None:
            group.touch(member_id, _now_ms())

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise unless somebody may ask for the offsets of a group, which need not be there."""
        self._check_name(group_id)
        group = self.registry.find(group_id)
        if member_epoch >= 0 and member_id and isinstance(group, ConsumerGroup):
            group.check_member(member_id, member_epoch)

    # Looking

    def describe(self, group_id: str) -> ClassicGroup:
        """Return a classic group; raise GroupError if there is none of that name."""
        group = self._find_any(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupError(
                ErrorCode.group_id_not_found, f"Group {group_id} is not a classic group."
            )
        return group

    def describe_consumer(self, group_id: str) -> ConsumerGroup:
        """Return a group of the consumer protocol; raise GroupError if there is none."""
        group = self._find_any(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupError(
                ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group."
            )
        return group

    def _find_any(self, group_id: str) -> Group:
        self._check_name(group_id)
        group = self.registry.find(group_id)
        if group is None:
            raise GroupError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    def groups(self) -> Iterable[Group]:
        """Return every group."""
        return list(self.registry.groups.values())

    # Time

    def _watch(self, group: Group, rest_ms: int = 0) -> None:
        """See that a timer rings no later than the first deadline of a group, after a rest."""
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is None or self._is_closed:
            return
        group_id = group.group_id
        known = self._timers.get(group_id)
        if known is not None:
            if known[0] <= deadline_ms:
                return
            known[1].cancel()
        wait_seconds = max(rest_ms, deadline_ms - _now_ms()) / 1000
        timer = asyncio.get_running_loop().call_later(wait_seconds, self._ring, group_id)
        self._timers[group_id] = (deadline_ms, timer)

    def _ring(self, group_id: str) -> None:
        del self._timers[group_id]
        group = self.registry.find(group_id)
        if group is None:
            return
        rest_ms = 0
        try:
            group.handle_time(_now_ms())
            if isinstance(group, ConsumerGroup):
                self._maybe_downgrade(group)
        except GroupError as error:
            # What was due still is: the disk is given a while.
            logger.error("group %s: %s", group_id, error)
            rest_ms = _REST_MS
        self._watch(group, rest_ms)

    # Checks

    def _check_name(self, group_id: str) -> None:
        if not group_id:
            raise GroupError(ErrorCode.invalid_group_id, "a group must have a name")
        self.registry.check_served(group_id)

    def _get(self, group_id: str, member_id: str) -> ClassicGroup:
        group = self.registry.find(group_id)
        if not isinstance(group, ClassicGroup):
            raise _unknown_member(group_id, member_id)
        return group


def _unknown_member(group_id: str, member_id: str) -> GroupError:
    return GroupError(ErrorCode.unknown_member_id, f"group {group_id} has no member {member_id!r}")


def _answer(
    future: "asyncio.Future[JoinAnswer] | asyncio.Future[SyncAnswer]", answer: object
) -> None:
    if not future.done():  # else the client is gone
        future.set_result(answer)  # type: ignore[arg-type]


def _now_ms() -> int:
    """Return a time that only goes forward."""
    return int(asyncio.get_running_loop().time() * 1000)
