"""Members that speak the classic protocol, in a group of the consumer protocol.

The broker shares out for all. A join is a heartbeat with everything in it: it says what the member
wants and still has. A sync gives it what it has now. The generation it is told is its epoch; when
there is something else for it, its next heartbeat tells it to join again.
"""

from collections.abc import Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.classic_state import JoinRequest, SyncRequest
from siltstone.coordinator.group.consumer import ConsumerGroup
from siltstone.coordinator.group.consumer_member import JOIN_EPOCH, ConsumerMember, MemberState
from siltstone.coordinator.group.consumer_records import ClassicInfo, Places
from siltstone.coordinator.group.consumer_state import Heartbeat
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.members import JoinAnswer, SyncAnswer
from siltstone.coordinator.group.migration import encode_share, share_version
from siltstone.coordinator.group.subscription import CONSUMER, decode_subscription
from siltstone.coordinator.group.topics import Topics
from siltstone.errors import DecodeError

_ALREADY_THERE: Final = -1


def join(
    group: ConsumerGroup, request: JoinRequest, new_id: str, topics: Topics, now_ms: int
) -> JoinAnswer:
    """Take a classic member in, or learn what it wants now; raise GroupError if it is refused."""
    member_id = request.member_id or new_id
    _check_protocols(group, request)
    if not request.member_id and request.instance_id is None and request.needs_known_id:
        return JoinAnswer(ErrorCode.member_id_required, member_id)
    try:
        subscription = decode_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        raise GroupError(
            ErrorCode.inconsistent_group_protocol, f"its subscription makes no sense: {error}"
        ) from error
    owned: Places = frozenset(
        (info.topic_id, number)
        for name, numbers in subscription.owned
        if (info := topics.find(name)) is not None
        for number in numbers
    )
    group.handle_heartbeat(
        Heartbeat(
            member_id=member_id,
            epoch=JOIN_EPOCH,
            origin=request.origin,
            instance_id=request.instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=subscription.topics,
            owned=owned,
            classic=ClassicInfo(request.session_timeout_ms, request.protocols),
        ),
        now_ms,
    )
    member = group.members[member_id]
    return JoinAnswer(ErrorCode.none, member_id, member.epoch, CONSUMER, request.protocols[0].name)


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    known = [m.classic for m in group.members.values() if m.classic is not None]
    offered = {offer.name for offer in request.protocols}
    for classic in known:
        offered &= {offer.name for offer in classic.protocols}
    if request.protocol_type != CONSUMER or not offered:
        raise GroupError(
            ErrorCode.inconsistent_group_protocol,
            f"group {group.group_id} has no protocol in common with {request.protocol_type} "
            f"{[p.name for p in request.protocols]}",
        )


def sync(group: ConsumerGroup, request: SyncRequest, topics: Topics, now_ms: int) -> SyncAnswer:
    """Give a classic member what it has now; raise GroupError if it is refused."""
    member = _get(group, request.member_id, request.instance_id, request.generation)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        raise GroupError(
            ErrorCode.rebalance_in_progress, f"group {group.group_id} is at epoch {group.epoch}"
        )
    group.touch(member.member_id, now_ms)
    share = encode_share(member.assigned, topics, share_version(member))
    return SyncAnswer(ErrorCode.none, CONSUMER, request.protocol, share)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> ErrorCode:
    """Learn that a classic member lives, and tell it whether to join again."""
    try:
        member = _get(group, member_id, instance_id, generation)
    except GroupError as error:
        return error.code
    group.touch(member_id, now_ms)
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED
        or (member.state is MemberState.UNRELEASED and group.has_free(member))
    ):
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(group: ConsumerGroup, leavers: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
    """Let classic members go, each by its id, or by its instance id alone."""
    codes, gone = [], []
    for member_id, instance_id in leavers:
        if not member_id and instance_id is not None:
            holder = group.find_static(instance_id)
            member_id = "" if holder is None else holder.member_id
        try:
            member = _get(group, member_id, instance_id, _ALREADY_THERE)
        except GroupError as error:
            codes.append(error.code)
            continue
        gone.append(member.member_id)
        codes.append(ErrorCode.none)
    group.remove(gone)
    return codes


def _get(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    if instance_id is not None:
        holder = group.find_static(instance_id)
        if holder is not None and holder.member_id != member_id:
            raise GroupError(
                ErrorCode.fenced_instance_id, f"{instance_id} is {holder.member_id} now"
            )
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise GroupError(
            ErrorCode.unknown_member_id, f"group {group.group_id} has no member {member_id!r}"
        )
    if generation not in (_ALREADY_THERE, member.epoch):
        raise GroupError(
            ErrorCode.illegal_generation,
            f"member {member_id} is at epoch {member.epoch}, not {generation}",
        )
    return member
