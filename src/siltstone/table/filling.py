"""Plain records as Arrow columns, in one walk over the bytes of a chunk.

What most logs are made of goes this way. Compressed batches and headers take the longer one, over
a table of records: see `columns`.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from siltstone.ids import TopicPartition
from siltstone.records.layout import HEADER_SIZE, TIMESTAMP_TYPE_BIT
from siltstone.records.scan import Batches, Bytes
from siltstone.table import kernels
from siltstone.table.columns import SCHEMA

ALL_RECORDS: Final = np.empty(0, np.bool_)
ANY_OFFSET: Final = np.empty(0, np.int64)

_MIN_RECORD_BYTES: Final = 7  # length, attributes, two deltas, key, value, headers


class ColumnFiller:
    """Makes record batches of one partition; columns with one value are made once, and cut."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self._constants: tuple[pa.Array, pa.Array, pa.Array] = self._make_constants(0)

    def fill(
        self,
        data: Bytes,
        batches: Batches,
        *,
        stays: NDArray[np.bool_] = ALL_RECORDS,
        wanted: NDArray[np.int64] = ANY_OFFSET,
    ) -> pa.RecordBatch | None:
        """Make the columns of records that are marked, or at wanted offsets, or of all.

        Return None if the records make no sense.
        """
        sizes = batches["size_bytes"] - HEADER_SIZE
        counts = batches["record_count"].astype(np.int64)
        if (counts * _MIN_RECORD_BYTES > sizes).any():
            return None
        room = int(counts.sum()) if not len(stays) else int(np.count_nonzero(stays))
        if len(wanted):
            room = min(room, len(wanted))
        room_bytes = int(sizes.sum())
        keys, values = pa.allocate_buffer(room_bytes), pa.allocate_buffer(room_bytes)
        key_offsets = np.empty(room + 1, np.int32)
        value_offsets = np.empty(room + 1, np.int32)
        is_null = np.empty((2, room), np.bool_)
        offsets = np.empty(room, np.int64)
        timestamps_ms = np.empty(room, np.int64)
        count, refused = kernels.fill_columns(
            data,
            batches,
            stays,
            wanted,
            np.frombuffer(keys, np.uint8),
            key_offsets,
            np.frombuffer(values, np.uint8),
            value_offsets,
            is_null,
            offsets,
            timestamps_ms,
        )
        if refused >= 0:
            return None
        topic, number, create_time = self._cut_constants(count)
        timestamp_type = create_time
        if (batches["attributes"] & TIMESTAMP_TYPE_BIT).any():
            timestamp_type = _find_timestamp_types(batches, offsets[:count])
        return pa.record_batch(
            [
                _make_binary(key_offsets[: count + 1], keys, is_null[0, :count]),
                _make_binary(value_offsets[: count + 1], values, is_null[1, :count]),
                topic,
                number,
                pa.array(offsets[:count]),
                pa.array(timestamps_ms[:count]).view(pa.timestamp("ms", tz="UTC")),
                timestamp_type,
            ],
            schema=SCHEMA,
        )

    def _cut_constants(self, count: int) -> tuple[pa.Array, ...]:
        if count > len(self._constants[0]):
            self._constants = self._make_constants(2 * count)
        return tuple(column.slice(0, count) for column in self._constants)

    def _make_constants(self, count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
        return (
            pa.repeat(pa.scalar(self.partition.topic), count),
            pa.repeat(pa.scalar(self.partition.partition, pa.int32()), count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
        )


def _find_timestamp_types(batches: Batches, offsets: NDArray[np.int64]) -> pa.Array:
    own_batches = np.searchsorted(batches["last_offset"], offsets)
    types = (batches["attributes"][own_batches] & TIMESTAMP_TYPE_BIT) != 0
    return pa.array(types.astype(np.int32))


def _make_binary(ends: NDArray[np.int32], data: Any, is_null: NDArray[np.bool_]) -> pa.Array:
    size_bytes = int(ends[-1])
    if 2 * size_bytes < data.size:
        # Whoever keeps the batch would keep all of the room that was made.
        copied = pa.allocate_buffer(size_bytes)
        np.frombuffer(copied, np.uint8)[:] = np.frombuffer(data, np.uint8)[:size_bytes]
        data = copied
    validity = None
    if is_null.any():
        validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    buffers = [validity, pa.py_buffer(ends), data.slice(0, size_bytes)]
    return pa.Array.from_buffers(pa.binary(), len(is_null), buffers)
