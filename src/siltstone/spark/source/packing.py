"""Rows of Spark as batches that a leader can append: Arrow's buffers in, bytes out."""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from siltstone.errors import UsageError
from siltstone.records.batch import BatchHeader
from siltstone.records.builder import encode_batch
from siltstone.records.layout import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from siltstone.spark.source import kernels

Binary: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]
Columns: TypeAlias = tuple[Binary, Binary, tuple[Any, ...]]
Rows: TypeAlias = NDArray[np.int64]

_BATCH_BYTES: Final = 128 << 10  # payload; a larger record is a batch of its own
_HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Packer:
    """Packs rows into batches, with one buffer for all of them."""

    def __init__(self, timestamp_ms: int) -> None:
        self._timestamp_ms = timestamp_ms
        self._buffer = np.empty(2 * _BATCH_BYTES, np.uint8)

    def iter_batches(self, columns: Columns, rows: Rows) -> Iterator[tuple[int, bytes]]:
        """Yield (record count, batch) with these rows, in their order; each at offset 0."""
        first = 0
        while first < rows.size:
            stop, size = kernels.pack_records(columns, rows, first, _BATCH_BYTES, self._buffer)
            if stop == first:
                self._buffer = np.empty(size, np.uint8)
                continue
            yield stop - first, self._encode(stop - first, self._buffer[:size].tobytes())
            first = stop

    def _encode(self, count: int, payload: bytes) -> bytes:
        header = BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=count - 1,
            base_timestamp_ms=self._timestamp_ms,
            max_timestamp_ms=self._timestamp_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=count,
        )
        return encode_batch(header, payload)


def take_columns(batch: pa.RecordBatch, *, with_headers: bool) -> Columns:
    """Return what of a batch goes into records, as arrays over its buffers."""
    keys = _binary(_find(batch, "key", pa.binary()))
    values = _binary(_find(batch, "value", pa.binary()))
    headers = _find(batch, "headers", _HEADERS_TYPE) if with_headers else None
    if headers is None:
        none = _binary(pa.array([], pa.binary()))
        return keys, values, (np.zeros(batch.num_rows + 1, np.int64), *none, *none)
    # An absent list is an empty one, and its place in the buffers may hold anything.
    headers = headers.fill_null([]) if headers.null_count else headers
    pairs = headers.values
    if pairs.field(0).null_count:
        raise UsageError("a header has no key: a record's header needs one")
    lists = np.frombuffer(headers.buffers()[1], np.int32)[
        headers.offset : headers.offset + len(headers) + 1
    ]
    names = _binary(pairs.field(0).cast(pa.binary()))
    return keys, values, (lists.astype(np.int64), *names, *_binary(pairs.field(1)))


def _find(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    at = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows, kind) if at < 0 else batch.column(at).cast(kind)


def _binary(column: pa.Array) -> Binary:
    count = len(column)
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[column.offset : column.offset + count + 1]
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    data.flags.writeable = False  # Of some buffers it is: the kernels know only one kind of array.
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return data, offsets.astype(np.int64), valid
