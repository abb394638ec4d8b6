"""Loops over records on their way into Arrow columns, compiled by numba.

As in `records.kernels`, a kernel never raises, and reads only what `scan` has found to be sound.
"""

from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

from siltstone.records.kernels import read_varint

_MAX_VARINT_BYTES: Final = 5


@intrinsic
def copy_bytes(
    typing_context: Any, source: Any, start: Any, target: Any, at: Any, count: Any
) -> Any:
    """Copy bytes from one array to another with `memcpy`: a loop takes three times as long."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        read = context.make_array(signature.args[0])(context, builder, arguments[0])
        written = context.make_array(signature.args[2])(context, builder, arguments[2])
        raw_memcpy(  # type: ignore[no-untyped-call]
            builder,
            builder.gep(written.data, [arguments[3]]),
            builder.gep(read.data, [arguments[1]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate


@njit(cache=True, nogil=True)
def locate_values(data: Any, records: Any, positions: Any) -> None:
    """Find where the value of each record begins; a null one would begin there."""
    for i in range(records.size):
        record = records[i]
        at = record.key_position + max(record.key_length, 0)
        _, positions[i] = read_varint(data, at, np.int64(data.size), _MAX_VARINT_BYTES)


@njit(cache=True, nogil=True)
def copy_spans(data: Any, positions: Any, lengths: Any, offsets: Any, out: Any) -> None:
    """Copy spans of bytes one after the other; `offsets` gets where each begins, and the end.

    A length below zero stands for null. The caller has made room for the sum of the others.
    """
    at = np.int64(0)
    for i in range(positions.size):
        offsets[i] = at
        start = positions[i]
        length = np.int64(lengths[i])
        if length > 0:
            copy_bytes(data, start, out, at, length)
            at += length
    offsets[positions.size] = at


@njit(cache=True, nogil=True)
def locate_headers(data: Any, records: Any, value_positions: Any, spans: Any) -> None:
    """Fill a row of `spans` for each header: position and length of its name, and of its value.

    The caller has made room for the sum of the header counts.
    """
    end = np.int64(data.size)
    row = 0
    for i in range(records.size):
        at = value_positions[i] + max(np.int64(records[i].value_length), 0)
        count, at = read_varint(data, at, end, _MAX_VARINT_BYTES)
        for _ in range(count):
            length, at = read_varint(data, at, end, _MAX_VARINT_BYTES)
            spans[row, 0] = at
            spans[row, 1] = length
            at += length
            length, at = read_varint(data, at, end, _MAX_VARINT_BYTES)
            spans[row, 2] = at
            spans[row, 3] = length
            at += max(length, 0)
            row += 1


@njit(cache=True, nogil=True)
def mark_prefixed(data: Any, records: Any, prefix: Any, stays: Any) -> None:
    """Take the mark of every record away whose key does not begin with `prefix`."""
    for i in range(records.size):
        if stays[i]:
            if records[i].key_length < prefix.size:
                stays[i] = False
            else:
                start = records[i].key_position
                for j in range(prefix.size):
                    if data[start + j] != prefix[j]:
                        stays[i] = False
                        break
