"""FindCoordinator: which broker looks after a group, or a transactional id. It is this one."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import ProtocolError, code_of, describe
from siltstone.broker.handlers.metadata import describe_broker
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request

_FIRST_WITH_KEYS: Final = 4
_NOBODY: Final = {"node_id": -1, "host": "", "port": -1}


class _Kind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


async def handle(broker: Broker, request: Request) -> Values:
    """Answer for each name; the topic of their state is made if it is not there."""
    body = request.body
    has_keys = request.version >= _FIRST_WITH_KEYS
    keys: Sequence[str] = body.coordinator_keys if has_keys else (body.key,)
    failure: dict[str, Any] = {}
    try:
        await _ensure_topic(broker, getattr(body, "key_type", _Kind.GROUP))
    except Exception as error:  # noqa: BLE001 - the client is told, and asks again
        failure = {
            "error_code": code_of(error, request),
            "error_message": describe(error),
            **_NOBODY,
        }
    answers = [{**describe_broker(broker, request), "key": key, **failure} for key in keys]
    return {"coordinators": answers} if has_keys else answers[0]


async def _ensure_topic(broker: Broker, key_type: int) -> None:
    match key_type:
        case _Kind.GROUP:
            await broker.groups.registry.topic.ensure()
        case _Kind.TRANSACTION:
            await broker.coordinators.transactions.topic.ensure()
        case _:
            raise ProtocolError(
                ErrorCode.invalid_request, f"no coordinator has key type {key_type}"
            )
