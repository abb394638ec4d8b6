"""Loops over lz4 batches, compiled by numba: unpack and pack. Twins: the plain ways of `unpacking`.

As in `records.kernels`, a kernel never raises and reads only between the positions it was given.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.cleaner.kernels import write_i32
from siltstone.records.crc_kernels import crc32c
from siltstone.records.intrinsics import copy_bytes
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
)
from siltstone.records.lz4_kernels import (
    FULL,
    REFUSED,
    decode_frame,
    encode_frame,
    frame_room,
    make_table,
)

# Why a kernel stopped.
AT_END: Final = 0
LEFT: Final = 1  # the next batch is not one for this kernel
NO_ROOM: Final = 2  # for the next batch

_LZ4: Final = 3


@njit(cache=True, nogil=True)
def unpack_lz4(
    data: Any, table: Any, numbers: Any, slot: int, out: Any, end: int, enough: int, limit: int
) -> tuple[int, int, int]:
    """Unpack batches `numbers[slot:]` to `out[end:]`, until there are `enough` bytes.

    Their rows in `table` say where they lie in `data`, and then where they lie in `out`. None may
    unfold to more than `limit` bytes. Return (slot to go on with, end, why).
    """
    while slot < numbers.size and end < enough:
        row = table[numbers[slot]]
        if row.attributes & CODEC_MASK != _LZ4:
            return slot, end, LEFT
        if out.size - end < HEADER_SIZE:
            return slot, end, NO_ROOM
        start = row.position
        stop = start + row.size_bytes
        copy_bytes(out, end, data, start, HEADER_SIZE)
        after = end + HEADER_SIZE
        # A header without records has no compressed stream either.
        if stop - start > HEADER_SIZE:
            after = decode_frame(data, start + HEADER_SIZE, stop, out, after, limit)
        if after == REFUSED:
            return slot, end, LEFT
        if after == FULL:
            return slot, end, NO_ROOM
        row.position = end
        row.size_bytes = after - end
        end = after
        slot += 1
    return slot, end, AT_END


@njit(cache=True, nogil=True)
def pack_lz4(
    data: Any, sizes: Any, slot: int, start: int, packed_sizes: Any
) -> tuple[int, int, Any]:
    """Pack plain batches of `sizes[slot:]` that lie in `data[start:]`, up to one of another codec.

    Return (slot to go on with, its start, the packed batches, which are signed).
    """
    stop = slot
    position = start
    room = np.int64(0)
    while stop < sizes.size and data[position + ATTRIBUTES_POSITION + 1] & CODEC_MASK == _LZ4:
        room += HEADER_SIZE + frame_room(sizes[stop] - HEADER_SIZE)
        position += sizes[stop]
        stop += 1
    out = np.empty(room, np.uint8)
    table = make_table()
    at = np.int64(0)
    while slot < stop:
        end = start + sizes[slot]
        copy_bytes(out, at, data, start, HEADER_SIZE)
        after = encode_frame(data, start + HEADER_SIZE, end, out, at + HEADER_SIZE, table)
        write_i32(out, at + LENGTH_POSITION, after - at - LOG_OVERHEAD)
        crc = crc32c(out, at + ATTRIBUTES_POSITION, after)
        write_i32(out, at + CRC_POSITION, np.int64(crc))
        packed_sizes[slot] = after - at
        at = after
        start = end
        slot += 1
    return slot, start, out[:at]
