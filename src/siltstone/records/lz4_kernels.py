"""The lz4 frames that we and Kafka write, compiled by numba: many a call, without Python's lock.

A codec that is called for each batch takes the lock as often, and threads wait for it longer than
for the codec. As in `kernels`, a kernel never raises, and touches only bytes between the positions
it was given and the room it was promised.

Frames are of independent blocks of 64 KiB, without checksums and sizes. Any other, and any that is
not sound, is refused; `compression`, the twin, can read it or says what is wrong. Blocks are the
same, byte for byte, as those of the lz4 library at its default: it does not matter who encodes.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from siltstone.records.intrinsics import copy_bytes, load_u64

BLOCK_BYTES: Final = 64 * 1024
# What a block may write behind its end, or before it turns out that it does not shrink.
SLACK_BYTES: Final = 512

# Why a kernel stopped, if it was not at the position after what it wrote.
REFUSED: Final = -1  # no frame of ours, or not a sound one
FULL: Final = -2  # no room for the next block

_HEADER: Final = int.from_bytes(bytes.fromhex("04224d18604082"), "little")
_HEADER_BYTES: Final = 7
_LENGTH_BYTES: Final = 4
_STORED_BIT: Final = 1 << 31

# Of the format: a match has 4 bytes at least, the last 5 bytes are literals, and no match begins
# in the last 12.
_MIN_MATCH: Final = 4
_LAST_LITERALS: Final = 5
_MATCH_FREE_BYTES: Final = 12
_LONG: Final = 15  # A length of so many or more goes on in bytes of its own.

# Of the library: how it finds matches, and how soon it takes larger steps where there are none.
_HASH_FACTOR: Final = 2654435761
_HASH_BITS: Final = 13
_SKIP_TRIGGER: Final = 6


@intrinsic
def _store_u64(typing_context: Any, data: Any, position: Any, word: Any) -> Any:
    """Store 8 bytes at a position of a byte array, whatever its alignment."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        builder.store(arguments[2], builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


@intrinsic
def _count_low_zeros(typing_context: Any, word: Any) -> Any:
    """Count the zero bits below the lowest one; the word is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True)
def _read_length(data: Any, position: int, end: int) -> tuple[int, int]:
    """Read the bytes in which a length goes on; return (their sum, position after or -1)."""
    length = np.int64(0)
    while position < end:
        byte = np.int64(data[position])
        position += 1
        length += byte
        if byte != 255:
            return length, position
    return 0, -1


@njit(cache=True, nogil=True)
def _repeat(out: Any, at: int, distance: int, count: int) -> None:
    """Append a match, which may reach into itself; up to 16 bytes more are written."""
    source = at - distance
    end = at + count
    if distance >= 16:
        while at < end:
            first: Any = load_u64(out, source)
            second = load_u64(out, source + 8)
            _store_u64(out, at, first)
            _store_u64(out, at + 8, second)
            source += 16
            at += 16
        return
    if distance < 8:
        for i in range(8):
            out[at + i] = out[source + i]
        # A pattern repeats at every multiple of its length too.
        source = at + 8 - (8 + distance - 1) // distance * distance
        at += 8
    while at < end:
        _store_u64(out, at, load_u64(out, source))
        source += 8
        at += 8


@njit(cache=True, nogil=True)
def decode_block(data: Any, position: int, end: int, out: Any, start: int) -> int:
    """Decode a block in `data[position:end]` to `out[start:]`; return the position after it.

    Or REFUSED. There is room for BLOCK_BYTES and SLACK_BYTES. What the library refuses is refused.
    """
    limit = start + BLOCK_BYTES
    at = np.int64(start)
    while position < end:
        token = np.int64(data[position])
        position += 1
        # As most are: short, and far from both ends, so that more may be copied than there is.
        while end - position >= 32 and limit - at >= 64:
            literals = token >> 4
            count = token & 15
            if literals == _LONG or count == _LONG:
                break
            _store_u64(out, at, load_u64(data, position))
            _store_u64(out, at + 8, load_u64(data, position + 8))
            word = load_u64(data, position + literals)
            distance = np.int64(word & np.uint64(0xFFFF))
            source = at + literals - distance
            if distance < 8 or source < start:
                break
            at += literals
            for i in range(0, 24, 8):
                _store_u64(out, at + i, load_u64(out, source + i))
            at += count + _MIN_MATCH
            position += literals + 3
            token = np.int64(word >> np.uint64(16) & np.uint64(0xFF))
        count = token >> 4
        if count == _LONG:
            more, position = _read_length(data, position, end)
            if position < 0:
                return REFUSED
            count += more
        if count > end - position or count > limit - at:
            return REFUSED
        if count <= 16 and end - position >= 16:
            _store_u64(out, at, load_u64(data, position))
            _store_u64(out, at + 8, load_u64(data, position + 8))
        else:
            copy_bytes(out, at, data, position, count)
        position += count
        at += count
        if position == end:
            return at

        if end - position < 2 or at > limit - _MATCH_FREE_BYTES:
            return REFUSED
        distance = np.int64(data[position]) | np.int64(data[position + 1]) << 8
        position += 2
        count = (token & 15) + _MIN_MATCH
        if count == _LONG + _MIN_MATCH:
            more, position = _read_length(data, position, end)
            if position < 0:
                return REFUSED
            count += more
        if (
            distance == 0
            or distance > at - start
            or end - position < 1 + _LAST_LITERALS
            or count > limit - _LAST_LITERALS - at
        ):
            return REFUSED
        _repeat(out, at, distance, count)
        at += count
    return REFUSED


@njit(cache=True, nogil=True)
def _read_u32(data: Any, position: int) -> int:
    return (
        np.int64(data[position])
        | np.int64(data[position + 1]) << 8
        | np.int64(data[position + 2]) << 16
        | np.int64(data[position + 3]) << 24
    )


@njit(cache=True, nogil=True)
def decode_frame(data: Any, position: int, end: int, out: Any, start: int, limit: int) -> int:
    """Decode a frame in `data[position:end]` to `out[start:]`; return the position after it.

    Or REFUSED, also if it decodes to more than `limit` bytes, or FULL.
    Twin: `compression.decompress`.
    """
    if end - position < _HEADER_BYTES + _LENGTH_BYTES:
        return REFUSED
    if load_u64(data, position) & np.uint64((1 << 8 * _HEADER_BYTES) - 1) != np.uint64(_HEADER):
        return REFUSED
    position += _HEADER_BYTES
    at = np.int64(start)
    while end - position >= _LENGTH_BYTES:
        length = _read_u32(data, position)
        position += _LENGTH_BYTES
        if length == 0:
            return at if position == end and at - start <= limit else REFUSED
        stored = length & _STORED_BIT != 0
        length &= _STORED_BIT - 1
        if length > end - position or at - start > limit or (stored and length > BLOCK_BYTES):
            return REFUSED
        if out.size - at < BLOCK_BYTES + SLACK_BYTES:
            return FULL
        if stored:
            copy_bytes(out, at, data, position, length)
            at += length
        else:
            at = decode_block(data, position, position + length, out, at)
            if at < 0:
                return REFUSED
        position += length
    return REFUSED


@njit(cache=True, nogil=True)
def _hash(data: Any, position: int) -> int:
    word = np.uint32(load_u64(data, position))
    return np.uint32(word * np.uint32(_HASH_FACTOR)) >> np.uint32(32 - _HASH_BITS)


@njit(cache=True, nogil=True)
def _is_match(data: Any, one: int, other: int) -> bool:
    is_equal: bool = np.uint32(load_u64(data, one)) == np.uint32(load_u64(data, other))
    return is_equal


@njit(cache=True, nogil=True)
def _count_equal(data: Any, one: int, other: int, end: int) -> int:
    """Count the bytes in which two positions go on alike; the later one stays before `end`."""
    start = one
    while one + 8 <= end:
        difference: Any = load_u64(data, one) ^ load_u64(data, other)
        if difference:
            return one - start + np.int64(_count_low_zeros(difference) >> np.uint64(3))
        one += 8
        other += 8
    while one < end and data[one] == data[other]:
        one += 1
        other += 1
    return one - start


@njit(cache=True, nogil=True)
def _write_length(out: Any, at: int, length: int) -> int:
    """Write the bytes in which a length goes on; return the position after."""
    while length >= 255:
        out[at] = np.uint8(255)
        length -= 255
        at += 1
    out[at] = np.uint8(length)
    return at + 1


@njit(cache=True, nogil=True)
def _write_literals(out: Any, at: int, data: Any, start: int, end: int) -> int:
    """Write a token and the literals in `data[start:end]`; return the position after."""
    count = end - start
    if count < _LONG:
        out[at] = np.uint8(count << 4)
        at += 1
    else:
        out[at] = np.uint8(_LONG << 4)
        at = _write_length(out, at + 1, count - _LONG)
    copy_bytes(out, at, data, start, count)
    return at + count


@njit(cache=True, nogil=True)
def encode_block(data: Any, start: int, end: int, out: Any, at: int, table: Any) -> int:
    """Encode `data[start:end]`, BLOCK_BYTES at most, to `out[at:]`; return the position after it.

    There is room for as many bytes and SLACK_BYTES. `table` is one of `make_table`.
    Twin: LZ4_compress_default.
    """
    anchor = np.int64(start)  # of the literals that are not written yet
    if end - start > _MATCH_FREE_BYTES:
        table[:] = 0
        last_start = end - _MATCH_FREE_BYTES + 1
        match_end = end - _LAST_LITERALS
        position = np.int64(start + 1)
        hashed = _hash(data, position)
        while True:
            following = position
            step = np.int64(1)
            tries = np.int64(1 << _SKIP_TRIGGER)
            while True:
                position = following
                following += step
                step = tries >> _SKIP_TRIGGER
                tries += 1
                if following > last_start:
                    return _write_literals(out, at, data, anchor, end)
                match = start + np.int64(table[hashed])
                table[hashed] = np.uint16(position - start)
                hashed = _hash(data, following)
                if _is_match(data, match, position):
                    break
            while position > anchor and match > start and data[position - 1] == data[match - 1]:
                position -= 1
                match -= 1
            token = at
            at = _write_literals(out, at, data, anchor, position)
            while True:
                distance = position - match
                out[at] = np.uint8(distance & 0xFF)
                out[at + 1] = np.uint8(distance >> 8)
                at += 2
                count = _count_equal(data, position + _MIN_MATCH, match + _MIN_MATCH, match_end)
                position += count + _MIN_MATCH
                if count < _LONG:
                    out[token] |= np.uint8(count)
                else:
                    out[token] |= np.uint8(_LONG)
                    at = _write_length(out, at, count - _LONG)
                anchor = position
                if position >= last_start:
                    return _write_literals(out, at, data, anchor, end)
                table[_hash(data, position - 2)] = np.uint16(position - 2 - start)
                hashed = _hash(data, position)
                match = start + np.int64(table[hashed])
                table[hashed] = np.uint16(position - start)
                if not _is_match(data, match, position):
                    break
                token = at
                out[token] = np.uint8(0)
                at += 1
            position += 1
            hashed = _hash(data, position)
    return _write_literals(out, at, data, anchor, end)


@njit(cache=True, nogil=True)
def make_table() -> Any:
    """Return where blocks remember what they have seen."""
    return np.empty(1 << _HASH_BITS, np.uint16)


@njit(cache=True, nogil=True)
def _write_u32(out: Any, position: int, value: int) -> None:
    for i in range(4):
        out[position + i] = np.uint8(value >> 8 * i & 0xFF)


@njit(cache=True, nogil=True)
def frame_room(size_bytes: int) -> int:
    """Return what a frame of so many bytes takes at most, while it is encoded."""
    block_count = (size_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES
    return size_bytes + _HEADER_BYTES + (block_count + 1) * _LENGTH_BYTES + SLACK_BYTES


@njit(cache=True, nogil=True)
def encode_frame(data: Any, start: int, end: int, out: Any, at: int, table: Any) -> int:
    """Encode `data[start:end]` as a frame to `out[at:]`; return the position after it.

    There is room for `frame_room` of it. Twin: `compression.compress`.
    """
    for i in range(_HEADER_BYTES):
        out[at + i] = np.uint8(_HEADER >> 8 * i & 0xFF)
    at += _HEADER_BYTES
    while start < end:
        size = min(end - start, BLOCK_BYTES)
        block = at + _LENGTH_BYTES
        length = encode_block(data, start, start + size, out, block, table) - block
        if length < size:
            _write_u32(out, at, length)
        else:
            length = size
            copy_bytes(out, block, data, start, size)
            _write_u32(out, at, length | _STORED_BIT)
        at = block + length
        start += size
    _write_u32(out, at, 0)
    return at + _LENGTH_BYTES
