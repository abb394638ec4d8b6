"""From plain values to the message of the version that a client speaks.

The classes of a message differ from version to version: fields come, go and become optional. A
handler gives the values of all versions, by their names; what a version does not have is left out,
and what it has beyond them gets its default.
"""

import dataclasses
import datetime
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import (
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from kio.schema.errors import ErrorCode
from kio.static.protocol import Entity

E = TypeVar("E", bound=Entity)
Values: TypeAlias = Mapping[str, Any]

_EPOCH: Final = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
# What a handler need not say, and kio has no default for.
_OBVIOUS: Final[Mapping[str, Any]] = {
    "error_code": ErrorCode.none,
    "error_message": None,
    "throttle_time": 0,
}


class _Field(NamedTuple):
    name: str
    convert: Callable[[Any], Any] | None
    is_required: bool


def build(entity_type: type[E], values: Values) -> E:
    """Make a message of one version; raise KeyError if a value is missing that it must have."""
    arguments = {}
    for field in _fields(entity_type):
        name = field.name
        if name in values:
            value = values[name]
            arguments[name] = value if field.convert is None else field.convert(value)
        elif field.is_required:
            value = _OBVIOUS[name]
            arguments[name] = value if field.convert is None else field.convert(value)
    return entity_type(**arguments)


@cache
def _fields(entity_type: type[Entity]) -> tuple[_Field, ...]:
    hints = get_type_hints(entity_type)
    return tuple(
        _Field(
            field.name,
            _converter(hints[field.name], field.metadata.get("kafka_type")),
            field.default is dataclasses.MISSING,
        )
        for field in dataclasses.fields(entity_type)
    )


def _converter(hint: Any, kafka_type: str | None) -> Callable[[Any], Any] | None:
    """Return how a plain value becomes what kio wants in a field; None if it is that already."""
    is_nullable = get_origin(hint) in (Union, types.UnionType)
    if is_nullable:
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return _to_timedelta
    if kafka_type == "datetime_i64":
        return _to_nullable_datetime if is_nullable else _to_datetime
    if get_origin(hint) is tuple:
        item: Any = get_args(hint)[0]
        if isinstance(item, type) and dataclasses.is_dataclass(item):
            nested = cast(type[Entity], item)
            return lambda value: None if value is None else tuple(build(nested, v) for v in value)
        return lambda value: None if value is None else tuple(value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        entity = cast(type[Entity], hint)
        return lambda value: None if value is None else build(entity, value)
    return None


def _to_timedelta(duration_ms: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=duration_ms)


def _to_datetime(time_ms: int) -> datetime.datetime:
    # Also -1, which stands for no time where a message has no other way to say so.
    return _EPOCH + datetime.timedelta(milliseconds=time_ms)


def _to_nullable_datetime(time_ms: int) -> datetime.datetime | None:
    return None if time_ms < 0 else _to_datetime(time_ms)


def milliseconds(duration: datetime.timedelta) -> int:
    """Return what a message calls a duration, as it went over the wire."""
    return duration // datetime.timedelta(milliseconds=1)
