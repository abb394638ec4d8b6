"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic protocol of groups."""

from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.messages import Values, milliseconds
from siltstone.broker.wire import Request
from siltstone.coordinator.group.classic_state import JoinRequest, SyncRequest
from siltstone.coordinator.group.members import ClientOrigin, ProtocolOffer

_FIRST_WITH_KNOWN_IDS: Final = 4
_FIRST_WITH_SKIPPING: Final = 9
_FIRST_WITH_LEAVERS: Final = 3


def origin_of(request: Request) -> ClientOrigin:
    """Return who speaks, as Kafka writes it down."""
    return ClientOrigin(request.client_id or "", f"/{request.client_host}")


async def handle_join(broker: Broker, request: Request) -> Values:
    """Take a member in, and answer once its generation begins."""
    body = request.body
    session_timeout_ms = milliseconds(body.session_timeout)
    # In its first version one timeout was for everything.
    rebalance_timeout_ms = (
        milliseconds(body.rebalance_timeout) if request.version >= 1 else session_timeout_ms
    )
    joining = JoinRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        origin=origin_of(request),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple(ProtocolOffer(p.name, bytes(p.metadata)) for p in body.protocols),
        needs_known_id=request.version >= _FIRST_WITH_KNOWN_IDS,
        takes_skip_assignment=request.version >= _FIRST_WITH_SKIPPING,
    )
    answer = await broker.groups.join(body.group_id, joining)
    # Before version 7 a name must be there, also where there is none.
    nothing = "" if request.version < 7 else None
    return {
        "error_code": answer.error_code,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": nothing if answer.protocol is None else answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }


async def handle_sync(broker: Broker, request: Request) -> Values:
    """Give a member its share, once the leader has sent it."""
    body = request.body
    syncing = SyncRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=body.generation_id,
        protocol_type=getattr(body, "protocol_type", None),
        protocol=getattr(body, "protocol_name", None),
        assignments={one.member_id: bytes(one.assignment) for one in body.assignments},
    )
    answer = await broker.groups.sync(body.group_id, syncing)
    return {
        "error_code": answer.error_code,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }


def handle_heartbeat(broker: Broker, request: Request) -> Values:
    """Learn that a member lives."""
    body = request.body
    code = broker.groups.heartbeat(
        body.group_id,
        body.member_id,
        getattr(body, "group_instance_id", None),
        body.generation_id,
    )
    return {"error_code": code}


def handle_leave(broker: Broker, request: Request) -> Values:
    """Let members go."""
    body = request.body
    if request.version >= _FIRST_WITH_LEAVERS:
        leavers = [(one.member_id, one.group_instance_id) for one in body.members]
    else:
        leavers = [(body.member_id, None)]
    codes = broker.groups.leave(body.group_id, leavers)
    if isinstance(codes, ErrorCode):
        return {"error_code": codes, "members": ()}
    if request.version < _FIRST_WITH_LEAVERS:
        return {"error_code": codes[0]}
    return {
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
            for (member_id, instance_id), code in zip(leavers, codes, strict=True)
        ]
    }
