"""CRC-32C, compiled by numba: of bytes, in three lanes; and of two runs, from the CRCs of both."""

import platform
from collections.abc import Callable
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from siltstone.records.intrinsics import load_u64, prefetch


@intrinsic
def _crc_step_sse42(typing_context: Any, crc: Any, word: Any) -> Any:
    """Feed 8 bytes to the processor's own CRC-32C."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        u64 = ir.IntType(64)
        function = builder.module.declare_intrinsic(
            "llvm.x86.sse42.crc32.64.64", (), ir.FunctionType(u64, [u64, u64])
        )
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), generate


_CRC_POLYNOMIAL: Final = 0x82F63B78  # reflected, as the bits of a CRC-32C are


def _make_crc_tables() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Tables for eight bytes a step: table k advances a byte over k zero bytes."""
    tables = np.zeros((8, 256), np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        for byte in range(256):
            crc = int(tables[k - 1, byte])
            tables[k, byte] = int(tables[0, crc & 0xFF]) ^ (crc >> 8)
    return tables


_CRC_TABLES: Final = _make_crc_tables()

_LINE_BYTES: Final = 64  # of a cache
# Of each of three runs whose CRCs are taken side by side: long ones, then short ones for the rest.
_LONG_BYTES: Final = 1344
_SHORT_BYTES: Final = 256
_AHEAD_BYTES: Final = 3 * _LONG_BYTES


def _make_carry_tables(byte_count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Tables that carry a CRC over so many zero bytes: table k takes its byte k.

    A CRC is linear over bits, so that what becomes of each bit says what becomes of all.
    """
    one_byte = _CRC_TABLES[0].tolist()
    tables = np.zeros((4, 256), np.uint64)
    for bit in range(32):
        crc = 1 << bit
        for _ in range(byte_count):
            crc = one_byte[crc & 0xFF] ^ (crc >> 8)
        has_bit = (np.arange(256) >> (bit % 8) & 1).astype(np.bool_)
        tables[bit // 8, has_bit] ^= np.uint64(crc)
    return tables


_CARRY_TABLES: Final = np.stack([_make_carry_tables(_LONG_BYTES), _make_carry_tables(_SHORT_BYTES)])


@njit(cache=True, nogil=True)
def _crc_step_portable(crc: int, word: int) -> int:
    mixed = crc ^ word
    result = np.uint64(0)
    for k in range(8):
        byte = (mixed >> np.uint64(8 * k)) & np.uint64(0xFF)
        result ^= _CRC_TABLES[7 - k, byte]
    return result


def _has_sse42() -> bool:
    return platform.machine() == "x86_64" and bool(llvm.get_host_cpu_features().get("sse4.2"))


_crc_step: Callable[..., Any] = _crc_step_sse42 if _has_sse42() else _crc_step_portable


def _make_lanes(lane_bytes: int) -> Callable[..., Any]:
    """Compile the loop over three runs of so many bytes each.

    Each step waits for the one before, so that three runs side by side take little longer than one.
    """
    level = int(lane_bytes == _SHORT_BYTES)

    @njit(cache=True, nogil=True)
    def carry(crc: int) -> int:
        """Carry a CRC over the zero bytes of one lane."""
        result = np.uint64(0)
        for k in range(4):
            result ^= _CARRY_TABLES[level, k, (crc >> np.uint64(8 * k)) & np.uint64(0xFF)]
        return result

    @njit(cache=True, nogil=True)
    def extend_by_lanes(crc: int, data: Any, position: int, end: int) -> tuple[int, int]:
        while position + 3 * lane_bytes <= end:
            second = np.uint64(0)
            third = np.uint64(0)
            ahead = position + _AHEAD_BYTES
            for _ in range(lane_bytes // _LINE_BYTES):
                # The processor does not see by itself what comes after the three runs. In the order
                # of memory: the same lines in the order of the lanes take a third longer.
                for _ in range(3):
                    prefetch(data, ahead)
                    ahead += _LINE_BYTES
                for _ in range(_LINE_BYTES // 8):
                    crc = _crc_step(crc, load_u64(data, position))
                    second = _crc_step(second, load_u64(data, position + lane_bytes))
                    third = _crc_step(third, load_u64(data, position + 2 * lane_bytes))
                    position += 8
            crc = carry(carry(crc) ^ second) ^ third
            position += 2 * lane_bytes
        return crc, position

    return extend_by_lanes


_extend_long, _extend_short = _make_lanes(_LONG_BYTES), _make_lanes(_SHORT_BYTES)


@njit(cache=True, nogil=True)
def crc32c(data: Any, start: int, end: int) -> int:
    """Return the CRC-32C of `data[start:end]`. Twin: the `crc32c` package."""
    return extend_crc(np.uint64(0), data, start, end)


@njit(cache=True, nogil=True)
def extend_crc(crc: int, data: Any, start: int, end: int) -> int:
    """Return the CRC of bytes that have this one, followed by `data[start:end]`."""
    crc, position = _extend_long(crc ^ np.uint64(0xFFFFFFFF), data, start, end)
    crc, position = _extend_short(crc, data, position, end)
    while position + 8 <= end:
        crc = _crc_step(crc, load_u64(data, position))
        position += 8
    while position < end:
        index = (crc ^ np.uint64(data[position])) & np.uint64(0xFF)
        crc = _CRC_TABLES[0, index] ^ (crc >> np.uint64(8))
        position += 1
    return crc ^ np.uint64(0xFFFFFFFF)


def _make_powers() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Tables for `join_crcs`: entry b of table k carries over b * 256^k zero bytes."""

    def times(a: int, b: int) -> int:
        product = 0
        for bit in range(31, -1, -1):
            if a >> bit & 1:
                product ^= b
            b = (b >> 1) ^ (_CRC_POLYNOMIAL if b & 1 else 0)
        return product

    powers = np.zeros((4, 256), np.uint64)
    step = 1 << 23  # one byte; the highest bit is the constant term
    for k in range(4):
        power = 1 << 31
        for byte in range(256):
            powers[k, byte] = power
            power = times(step, power)
        step = power
    return powers


_POWERS: Final = _make_powers()


@njit(cache=True, nogil=True)
def _times(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of the CRC."""
    product = np.uint64(0)
    for shift in range(31, -1, -1):
        if (a >> np.uint64(shift)) & np.uint64(1):
            product ^= b
        b = (b >> np.uint64(1)) ^ ((b & np.uint64(1)) * np.uint64(_CRC_POLYNOMIAL))
    return product


@njit(cache=True, nogil=True)
def join_crcs(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC of two runs of bytes, one after the other, from the CRCs of both.

    That of the first is carried over as many zero bytes as the second has, which is a product.
    """
    for k in range(4):
        byte = (second_bytes >> (8 * k)) & 0xFF
        if byte:
            first = _times(_POWERS[k, byte], first)
    return first ^ second
