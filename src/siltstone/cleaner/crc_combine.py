"""The CRC-32C of two runs of bytes, one after the other, from the CRCs of both.

A CRC is linear over bits: that of the whole is that of the first run, carried over as many zero
bytes as the second has, plus that of the second. Carrying over is a matrix of 32 x 32 bits, and
carrying twice as far its square.
"""

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # reflected, as the bits of a CRC-32C are
_BITS: Final = 32


def combine_crcs(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC of both runs; `second_bytes` is the length of the second."""
    # One zero bit: shift, and add the polynomial if a bit falls out.
    matrix = [_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1))]
    left = 8 * second_bytes
    while left:
        if left & 1:
            first = _times(matrix, first)
        matrix = [_times(matrix, column) for column in matrix]
        left >>= 1
    return first ^ second


def _times(matrix: list[int], vector: int) -> int:
    product = 0
    for bit in range(_BITS):
        if vector >> bit & 1:
            product ^= matrix[bit]
    return product
