"""Zig-zag varints as Kafka's records use them: 32 bits in 5 bytes, 64 bits in 10."""

from typing import Final, TypeAlias

from siltstone.errors import MalformedDataError, TruncatedDataError

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10


def to_int32(value: int) -> int:
    """Keep the low 32 bits, as Java's int arithmetic does."""
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def to_int64(value: int) -> int:
    """Keep the low 64 bits, as Java's long arithmetic does."""
    return ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)


def encode_varint(value: int) -> bytes:
    """Encode a number of 32 bits; raise ValueError for one that has more."""
    if 0 <= value < _SMALL_COUNT:
        return _SMALL[value]
    if to_int32(value) != value:
        raise ValueError(f"{value} does not fit in 32 bits")
    return _encode(value)


def encode_varlong(value: int) -> bytes:
    """Encode a number of 64 bits; raise ValueError for one that has more."""
    if 0 <= value < _SMALL_COUNT:
        return _SMALL[value]
    if to_int64(value) != value:
        raise ValueError(f"{value} does not fit in 64 bits")
    return _encode(value)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it."""
    raw, end = _decode(buffer, position, MAX_VARINT_BYTES)
    return _unzigzag(raw & 0xFFFFFFFF), end


def decode_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it."""
    raw, end = _decode(buffer, position, MAX_VARLONG_BYTES)
    return _unzigzag(raw & 0xFFFFFFFFFFFFFFFF), end


def _encode(value: int) -> bytes:
    rest = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


# Most lengths and deltas are small.
_SMALL_COUNT: Final = 256
_SMALL: Final = tuple(_encode(value) for value in range(_SMALL_COUNT))


def _decode(buffer: Buffer, position: int, max_bytes: int) -> tuple[int, int]:
    raw = 0
    for count, byte in enumerate(buffer[position : position + max_bytes]):
        raw |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return raw, position + count + 1
    if len(buffer) - position < max_bytes:
        raise TruncatedDataError(position, "the bytes end inside of a varint")
    raise MalformedDataError(position, f"varint is longer than {max_bytes} bytes")


def _unzigzag(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)
