"""DescribeGroups, ListGroups and DeleteGroups: for those who look after groups."""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import code_of, describe
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request
from siltstone.coordinator.group.classic import ClassicGroup
from siltstone.coordinator.group.classic_state import State
from siltstone.coordinator.group.errors import GroupError

# Without access control everybody may do everything that a group knows.
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_ASKED: Final = -(2**31)
_FIRST_WITH_NOT_FOUND: Final = 6


def handle_describe(broker: Broker, request: Request) -> Values:
    """Say who is in each group, and what its members have."""
    return {"groups": [_describe(broker, request, name) for name in request.body.groups]}


def _describe(broker: Broker, request: Request, group_id: str) -> dict[str, Any]:
    operations = (
        GROUP_OPERATIONS
        if getattr(request.body, "include_authorized_operations", False)
        else NOT_ASKED
    )
    try:
        group = broker.groups.describe(group_id)
    except GroupError as error:
        is_missing = error.code is ErrorCode.group_id_not_found
        # Older clients take a group that is not there for one that is over.
        is_quiet = is_missing and request.version < _FIRST_WITH_NOT_FOUND
        return {
            "error_code": ErrorCode.none if is_quiet else error.code,
            "error_message": None if is_quiet else describe(error),
            "group_id": group_id,
            "group_state": State.DEAD.value if is_missing else "",
            "protocol_type": "",
            "protocol_data": "",
            "members": (),
            "authorized_operations": NOT_ASKED,
        }
    is_stable = group.state is State.STABLE
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol or "" if is_stable else "",
        "members": _describe_members(group, is_stable=is_stable),
        "authorized_operations": operations,
    }


def _describe_members(group: ClassicGroup, *, is_stable: bool) -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.origin.client_id,
            "client_host": member.origin.host,
            # Between two generations they mean nothing.
            "member_metadata": member.metadata_for(group.protocol) if is_stable else b"",
            "member_assignment": member.assignment if is_stable else b"",
        }
        for member in group.members.values()
    ]


def handle_list(broker: Broker, request: Request) -> Values:
    """List the groups of some states and types, or all."""
    states = {name.lower() for name in getattr(request.body, "states_filter", ())}
    types = {name.lower() for name in getattr(request.body, "types_filter", ())}
    listed = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": group.state_name,
            "group_type": group.group_type,
        }
        for group in broker.groups.groups()
    ]
    return {
        "groups": [
            one
            for one in listed
            if (not states or one["group_state"].lower() in states)
            and (not types or one["group_type"].lower() in types)
        ]
    }


def handle_delete(broker: Broker, request: Request) -> Values:
    """Delete groups that have no members."""
    results = []
    for group_id in request.body.groups_names:
        result: dict[str, Any] = {"group_id": group_id}
        try:
            broker.offsets.delete_group(group_id)
        except Exception as error:  # noqa: BLE001 - one group must not stop the others
            result["error_code"] = code_of(error, f"deletion of group {group_id}")
        results.append(result)
    return {"results": results}
