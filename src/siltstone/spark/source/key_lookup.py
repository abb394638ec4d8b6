"""`latest` of a few keys: looked up in the key indexes, instead of reading the log."""

from collections.abc import Sequence

import pyarrow as pa

from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.table.columns import SCHEMA, SCHEMA_WITH_HEADERS
from siltstone.table.lookup import PartitionLookup
from siltstone.table.positions import StoredRecord
from siltstone.table.request import ViewRequest


def find_keys(
    reader: LogReader, partition: TopicPartition, request: ViewRequest, keys: Sequence[bytes]
) -> pa.RecordBatch | None:
    """Return the last records of keys, by offset.

    None if one of them was written anew since the end of the view: what it was then takes a read.
    """
    lookup = PartitionLookup(reader, partition)
    found = [stored for key in keys if (stored := lookup.find(key)) is not None]
    assert request.end_offset is not None
    if any(stored.record.offset >= request.end_offset for stored in found):
        return None
    shown = [s for s in found if request.shows_tombstones or s.record.value is not None]
    shown.sort(key=lambda stored: stored.record.offset)
    schema = SCHEMA_WITH_HEADERS if request.include_headers else SCHEMA
    rows = [_make_row(partition, stored, request.include_headers) for stored in shown]
    return pa.RecordBatch.from_pylist(rows, schema)


def _make_row(
    partition: TopicPartition, stored: StoredRecord, with_headers: bool
) -> dict[str, object]:
    record = stored.record
    row: dict[str, object] = {
        "key": record.key,
        "value": record.value,
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": pa.scalar(record.timestamp_ms, SCHEMA.field("timestamp").type),
        "timestampType": int(stored.timestamp_type),
    }
    if with_headers:
        row["headers"] = [{"key": name, "value": value} for name, value in record.headers]
    return row
