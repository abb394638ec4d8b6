"""The CRC-32C of two runs of bytes, one after the other, from the CRCs of both."""

from typing import Any

import numpy as np

from siltstone.records.crc_kernels import join_crcs


def combine_crcs(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC of both runs; `second_bytes` is the length of the second, below 4 GiB."""
    # As numpy's own type, or numba would take it for a signed one.
    one: Any = np.uint64(first)
    other: Any = np.uint64(second)
    return int(join_crcs(one, other, second_bytes))
