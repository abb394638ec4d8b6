"""The loop of a verification over record bytes, compiled by numba."""

from typing import Any

import numpy as np
from numba import njit

from siltstone.cleaner.hash_kernels import siphash128


@njit(cache=True, nogil=True)
def hash_records(payload: Any, records: Any, key0: int, key1: int, keys: Any, digests: Any) -> None:
    """Hash the keys, and all that must not change of the records of one payload.

    That is timestamp, key, value and headers. The caller has made room; positions in `records`
    have been checked by the kernel that filled it.
    """
    for i in range(records.size):
        record = records[i]
        start = record.key_position
        end = record.position + record.size_bytes
        length = max(record.key_length, 0)
        low, _ = siphash128(payload, start, length, key0, key1)
        keys[i] = low
        low, _ = siphash128(
            payload,
            start,
            end - start,
            key0 ^ np.uint64(record.timestamp_ms),
            key1 ^ np.uint64(record.key_length),
        )
        digests[i] = low
