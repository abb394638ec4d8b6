"""Check the array lengths of a request before it is decoded.

kio's native reader makes room for as many items as an array says it has. A few bytes that claim
billions would end the process: memory that cannot be had is no exception there. So every array is
looked at first: it cannot have more items than there are bytes left, and be null only where that
means something, which kio does not mind either. Nothing else is checked, and nothing is decoded.
"""

import dataclasses
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from siltstone.errors import DecodeError, MalformedDataError

# Takes the frame and a position in it, and returns the position behind what it stands for.
Skip: TypeAlias = Callable[[memoryview, int], int]

_SIZES: Final = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "bool": 1,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_MAX_TAGS: Final = 100  # No message has more than ten.
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")


def check_frame(request_type: type, frame: memoryview, position: int) -> None:
    """Raise DecodeError if an array in a request's body cannot be as long as it says."""
    try:
        skipper(request_type)(frame, position)
    except (IndexError, struct.error) as error:
        raise DecodeError(len(frame), "the request ends too early") from error


@cache
def skipper(entity_type: type) -> Skip:
    """Return what skips a message, or a part of one."""
    hints = get_type_hints(entity_type)
    is_flexible: bool = entity_type.__flexible__  # type: ignore[attr-defined]
    steps: list[Skip] = []
    fixed_bytes = 0
    for field in dataclasses.fields(entity_type):
        hint = _without_none(hints[field.name])
        if "tag" in field.metadata:
            # Its size stands in front of it. An array in it would be out of our sight.
            assert get_origin(hint) is not tuple, field
            continue
        kafka_type = field.metadata.get("kafka_type")
        if get_origin(hint) is not tuple and kafka_type in _SIZES:
            fixed_bytes += _SIZES[kafka_type]
            continue
        if fixed_bytes:
            steps.append(_fixed(fixed_bytes))
            fixed_bytes = 0
        steps.append(_step(hints[field.name], kafka_type, is_flexible))
    if fixed_bytes:
        steps.append(_fixed(fixed_bytes))
    if is_flexible:
        steps.append(skip_tags)
    return _sequence(steps)


def _step(hint: Any, kafka_type: str | None, is_flexible: bool) -> Skip:
    is_optional = hint is not _without_none(hint)
    hint = _without_none(hint)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        if dataclasses.is_dataclass(item):
            assert isinstance(item, type)
            return _array(skipper(item), is_flexible, is_optional)
        assert kafka_type is not None
        if kafka_type in _SIZES:
            return _array(_fixed(_SIZES[kafka_type]), is_flexible, is_optional)
        return _array(_step(item, kafka_type, is_flexible), is_flexible, is_optional)
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return _nullable(skipper(hint)) if is_optional else skipper(hint)
    assert kafka_type in ("string", "bytes", "records"), kafka_type
    if is_flexible:
        return _skip_compact
    return _skip_short if kafka_type == "string" else _skip_long


def _without_none(hint: Any) -> Any:
    parts = [part for part in get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 and get_origin(hint) is not tuple else hint


def _sequence(steps: list[Skip]) -> Skip:
    if len(steps) == 1:
        return steps[0]

    def skip(frame: memoryview, position: int) -> int:
        for step in steps:
            position = step(frame, position)
        return position

    return skip


def _fixed(size_bytes: int) -> Skip:
    return lambda frame, position: position + size_bytes


def _array(skip_item: Skip, is_flexible: bool, is_optional: bool) -> Skip:
    fewest = -1 if is_optional else 0

    def skip(frame: memoryview, position: int) -> int:
        if is_flexible:
            count, position = read_varint(frame, position)
            count -= 1
        else:
            (count,) = _INT.unpack_from(frame, position)
            position += 4
        if not fewest <= count <= len(frame) - position:
            raise MalformedDataError(
                position, f"an array of {count} in {len(frame) - position} bytes"
            )
        for _ in range(count):
            position = skip_item(frame, position)
            if position > len(frame):
                raise IndexError
        return position

    return skip


def _nullable(skip_entity: Skip) -> Skip:
    def skip(frame: memoryview, position: int) -> int:
        is_there = frame[position] < 0x80  # -1 stands for none
        return skip_entity(frame, position + 1) if is_there else position + 1

    return skip


def _skip_compact(frame: memoryview, position: int) -> int:
    size, position = read_varint(frame, position)
    return position + size - 1 if size else position


def _skip_short(frame: memoryview, position: int) -> int:
    size: int = _SHORT.unpack_from(frame, position)[0]
    return position + 2 + max(size, 0)


def _skip_long(frame: memoryview, position: int) -> int:
    size: int = _INT.unpack_from(frame, position)[0]
    return position + 4 + max(size, 0)


def skip_tags(frame: memoryview, position: int) -> int:
    """Return the position behind fields that nobody here knows."""
    count = frame[position]
    if not count:
        return position + 1
    count, position = read_varint(frame, position)
    if count > _MAX_TAGS:
        raise MalformedDataError(position, f"{count} tagged fields")
    for _ in range(count):
        _, position = read_varint(frame, position)
        size, position = read_varint(frame, position)
        position += size
    return position


def read_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """Read a number of one to five bytes; return it, and the position behind it."""
    value = frame[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise MalformedDataError(position, "a number of more than 5 bytes")
