"""The fields of messages that are stored or nested: Kafka's types, read with bounds, and written.

What members send about themselves is opaque to the wire, so nobody has looked at it before: every
length is checked against the bytes that are there.
"""

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from siltstone.errors import DecodeError, MalformedDataError

T = TypeVar("T")

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_NO_ID: Final = uuid.UUID(int=0)
_MAX_VARINT_BYTES: Final = 5


class FieldReader:
    """Walks over a message; every misfit raises DecodeError."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self._data = memoryview(data)
        self.position = position

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self.position >= len(self._data)

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int(_SHORT.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack(self._take(8))[0])

    def topic_id(self) -> uuid.UUID | None:
        found = uuid.UUID(bytes=bytes(self._take(16)))
        return None if found == _NO_ID else found

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedDataError(self.position, "a number of more than 5 bytes")

    def string(self) -> str:
        return self._required(self.nullable_string())

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._text(size)

    def compact_string(self) -> str:
        return self._required(self.compact_nullable_string())

    def compact_nullable_string(self) -> str | None:
        size = self.uvarint() - 1
        return None if size < 0 else self._text(size)

    def binary(self) -> bytes:
        return self._required(self.nullable_binary())

    def nullable_binary(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else bytes(self._take(size))

    def compact_binary(self) -> bytes:
        return bytes(self._take(self.uvarint() - 1))

    def array(self, read_item: Callable[[], T]) -> list[T]:
        return self._items(self.int32(), read_item)

    def compact_array(self, read_item: Callable[[], T]) -> list[T]:
        return self._items(self.uvarint() - 1, read_item)

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields, as bytes that a reader of their own can take."""
        return {
            self.uvarint(): bytes(self._take(self.uvarint()))
            for _ in range(self._checked(self.uvarint()))
        }

    def _items(self, count: int, read_item: Callable[[], T]) -> list[T]:
        return [read_item() for _ in range(self._checked(count))]

    def _checked(self, count: int) -> int:
        left = len(self._data) - self.position
        if not 0 <= count <= left:
            raise MalformedDataError(self.position, f"{count} items in {left} bytes")
        return count

    def _required(self, value: T | None) -> T:
        if value is None:
            raise MalformedDataError(self.position, "null where a value must be")
        return value

    def _text(self, size: int) -> str:
        data = bytes(self._take(size))
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedDataError(self.position, "not UTF-8") from error

    def _take(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise DecodeError(self.position, f"{size} bytes wanted, {len(self._data)} are there")
        part = self._data[self.position : end]
        self.position = end
        return part


class FieldWriter:
    """Puts a message together."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def done(self) -> bytes:
        """Return the message."""
        return b"".join(self._parts)

    def int8(self, value: int) -> None:
        self._parts.append(value.to_bytes(1, "big", signed=True))

    def int16(self, value: int) -> None:
        self._parts.append(_SHORT.pack(value))

    def int32(self, value: int) -> None:
        self._parts.append(_INT.pack(value))

    def int64(self, value: int) -> None:
        self._parts.append(_LONG.pack(value))

    def topic_id(self, value: uuid.UUID | None) -> None:
        self._parts.append((value or _NO_ID).bytes)

    def uvarint(self, value: int) -> None:
        out = bytearray()
        while value > 0x7F:
            out.append(0x80 | (value & 0x7F))
            value >>= 7
        out.append(value)
        self._parts.append(bytes(out))

    def string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
            return
        data = value.encode()
        self.int16(len(data))
        self._parts.append(data)

    def compact_string(self, value: str | None) -> None:
        self.compact_binary(None if value is None else value.encode())

    def binary(self, value: bytes | None) -> None:
        if value is None:
            self.int32(-1)
            return
        self.int32(len(value))
        self._parts.append(value)

    def compact_binary(self, value: bytes | None) -> None:
        if value is None:
            self.uvarint(0)
            return
        self.uvarint(len(value) + 1)
        self._parts.append(value)

    def array(self, items: Sequence[T], write_item: Callable[[T], None]) -> None:
        self.int32(len(items))
        for item in items:
            write_item(item)

    def compact_array(self, items: Sequence[T], write_item: Callable[[T], None]) -> None:
        self.uvarint(len(items) + 1)
        for item in items:
            write_item(item)

    def tags(self, fields: dict[int, bytes] | None = None) -> None:
        """Write the tagged fields, in the order of their numbers."""
        self.uvarint(len(fields or {}))
        for tag, data in sorted((fields or {}).items()):
            self.uvarint(tag)
            self.uvarint(len(data))
            self._parts.append(data)
