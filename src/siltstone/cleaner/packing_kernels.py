"""Loops over lz4 and zstd batches, compiled by numba: unpack, pack. Twins: the ways of `unpacking`.

As in `records.kernels`, a kernel never raises and reads only between the positions it was given.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.cleaner.kernels import write_i32
from siltstone.records import lz4_kernels, zstd_kernels
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
from siltstone.records.lz4_kernels import FULL, REFUSED, make_table

# Why a kernel stopped.
AT_END: Final = 0
LEFT: Final = 1  # the next batch is not one for this kernel
NO_ROOM: Final = 2  # for the next batch

_LZ4: Final = 3
_ZSTD: Final = 4


@njit(cache=True, nogil=True)
def _is_known(codec: int, zstd: Any) -> bool:
    return codec == _LZ4 or (codec == _ZSTD and zstd_kernels.has_library(zstd))


@njit(cache=True, nogil=True)
def unpack_batches(
    data: Any,
    table: Any,
    numbers: Any,
    slot: int,
    zstd: Any,
    out: Any,
    end: int,
    enough: int,
    limit: int,
) -> tuple[int, int, int]:
    """Unpack batches `numbers[slot:]` to `out[end:]`, until there are `enough` bytes.

    Their rows in `table` say where they lie in `data`, and then where they lie in `out`. None may
    unfold to more than `limit` bytes. Return (slot to go on with, end, why).
    """
    while slot < numbers.size and end < enough:
        row = table[numbers[slot]]
        codec = row.attributes & CODEC_MASK
        if not _is_known(codec, zstd):
            return slot, end, LEFT
        if out.size - end < HEADER_SIZE:
            return slot, end, NO_ROOM
        start = row.position
        stop = start + row.size_bytes
        copy_bytes(out, end, data, start, HEADER_SIZE)
        start += HEADER_SIZE
        after = end + HEADER_SIZE
        # A header without records has no compressed stream either.
        if start < stop and codec == _LZ4:
            after = lz4_kernels.decode_frame(data, start, stop, out, after, limit)
        elif start < stop:
            after = zstd_kernels.decode_frames(zstd, data, start, stop, out, after, limit)
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
def pack_batches(
    data: Any, sizes: Any, slot: int, start: int, zstd: Any, packed_sizes: Any
) -> tuple[int, int, Any]:
    """Pack plain batches of `sizes[slot:]` that lie in `data[start:]`, up to one of another codec.

    Return (slot to go on with, its start, the packed batches, which are signed).
    """
    stop = slot
    position = start
    room = np.int64(0)
    while stop < sizes.size and _is_known(
        np.int64(data[position + ATTRIBUTES_POSITION + 1]) & CODEC_MASK, zstd
    ):
        size = sizes[stop] - HEADER_SIZE
        room += HEADER_SIZE + max(lz4_kernels.frame_room(size), zstd_kernels.frame_room(size))
        position += sizes[stop]
        stop += 1
    out = np.empty(room, np.uint8)
    table = make_table()
    at = np.int64(0)
    while slot < stop:
        end = start + sizes[slot]
        payload = start + HEADER_SIZE
        copy_bytes(out, at, data, start, HEADER_SIZE)
        if data[start + ATTRIBUTES_POSITION + 1] & CODEC_MASK == _LZ4:
            after = lz4_kernels.encode_frame(data, payload, end, out, at + HEADER_SIZE, table)
        else:
            own_room = zstd_kernels.frame_room(end - payload)
            after = zstd_kernels.encode_frame(
                zstd, data, payload, end, out, at + HEADER_SIZE, own_room
            )
            if after == REFUSED:
                break
        write_i32(out, at + LENGTH_POSITION, after - at - LOG_OVERHEAD)
        crc = crc32c(out, at + ATTRIBUTES_POSITION, after)
        write_i32(out, at + CRC_POSITION, np.int64(crc))
        packed_sizes[slot] = after - at
        at = after
        start = end
        slot += 1
    return slot, start, out[:at]
