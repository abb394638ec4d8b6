"""What the kernels fill in, and how they say why they stopped; without their compiler."""

from typing import Final

import numpy as np

BATCH_DTYPE: Final = np.dtype(
    [
        ("position", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp_ms", np.int64),
        ("max_timestamp_ms", np.int64),
        ("producer_id", np.int64),
        ("size_bytes", np.int32),
        ("leader_epoch", np.int32),
        ("base_sequence", np.int32),
        ("record_count", np.int32),
        ("producer_epoch", np.int16),
        ("attributes", np.int16),
    ],
    align=True,
)

RECORD_DTYPE: Final = np.dtype(
    [
        ("position", np.int64),  # of the length varint, in the batch's (decompressed) payload
        ("offset", np.int64),
        ("timestamp_ms", np.int64),
        ("key_position", np.int64),
        ("size_bytes", np.int32),  # length varint included
        ("key_length", np.int32),  # -1: null
        ("value_length", np.int32),  # -1: null
        ("header_count", np.int32),
    ],
    align=True,
)

# Why a kernel stopped.
AT_END: Final = 0  # the bytes are used up
INCOMPLETE: Final = 1  # the next batch ends after the bytes
REFUSED: Final = 2  # the bytes at the stop position are no sound batch
FULL: Final = 3  # the arrays have no room for the next batch
