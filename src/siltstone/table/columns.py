"""Records as Arrow columns, in the order and with the names of Spark's Kafka source."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from siltstone.ids import TopicPartition
from siltstone.records.scan import Bytes, Records
from siltstone.table import kernels
from siltstone.table.flat_records import FlatRecords

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS_TYPE))


def make_record_batch(
    partition: TopicPartition, flat: FlatRecords, stays: NDArray[np.bool_], *, with_headers: bool
) -> pa.RecordBatch:
    """Make the columns of the records that are marked in `stays`."""
    data = flat.data
    records, timestamp_types = flat.records, flat.timestamp_types
    if not stays.all():
        records, timestamp_types = records[stays], timestamp_types[stays]
    count = len(records)
    value_positions = np.empty(count, np.int64)
    kernels.locate_values(data, records, value_positions)
    columns: list[pa.Array] = [
        _make_binary(data, records["key_position"], records["key_length"], pa.binary()),
        _make_binary(data, value_positions, records["value_length"], pa.binary()),
        pa.repeat(pa.scalar(partition.topic), count),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        pa.array(records["offset"]),
        pa.array(records["timestamp_ms"]).view(pa.timestamp("ms", tz="UTC")),
        pa.array(timestamp_types),
    ]
    if not with_headers:
        return pa.record_batch(columns, schema=SCHEMA)
    columns.append(_make_headers(data, records, value_positions))
    return pa.record_batch(columns, schema=SCHEMA_WITH_HEADERS)


def _make_binary(
    data: Bytes, positions: NDArray[np.int64], lengths: NDArray[Any], kind: pa.DataType
) -> pa.Array:
    positions = np.ascontiguousarray(positions)
    lengths = np.ascontiguousarray(lengths, np.int64)
    valid = lengths >= 0
    # From Arrow's pool, which has memory that was used before: fresh pages cost more than the copy.
    out = pa.allocate_buffer(int(np.maximum(lengths, 0).sum()))
    offsets = np.empty(len(positions) + 1, np.int32)
    kernels.copy_spans(data, positions, lengths, offsets, np.frombuffer(out, np.uint8))
    validity = None
    if not valid.all():
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), out]
    return pa.Array.from_buffers(kind, len(positions), buffers)


def _make_headers(data: Bytes, records: Records, value_positions: NDArray[np.int64]) -> pa.Array:
    counts = records["header_count"].astype(np.int64)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    spans = np.empty((int(offsets[-1]), 4), np.int64)
    kernels.locate_headers(data, records, value_positions, spans)
    names = _make_binary(data, spans[:, 0], spans[:, 1], pa.binary())
    values = _make_binary(data, spans[:, 2], spans[:, 3], pa.binary())
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:  # A name that is not UTF-8, which no client should write.
        names = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=HEADERS_TYPE)
