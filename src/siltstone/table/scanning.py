"""A view over several partitions of a topic, and its columns as Python values."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.log.reading import Isolation
from siltstone.table.columns import SCHEMA, SCHEMA_WITH_HEADERS
from siltstone.table.request import View, ViewBounds, ViewRequest
from siltstone.table.snapshot import open_snapshot
from siltstone.table.views import ViewResult, read_view

BOUNDS_METADATA = b"siltstone.bounds"

Row = tuple[bytes | None, bytes | None, int, int]


@dataclass(frozen=True)
class TableView:
    """The views of some partitions, one after the other; to be taken once."""

    results: tuple[ViewResult, ...]
    schema: pa.Schema

    @property
    def bounds(self) -> list[ViewBounds]:
        """Where each partition was read."""
        return [result.bounds for result in self.results]

    def iter_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of all partitions."""
        return itertools.chain.from_iterable(result.batches for result in self.results)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the records as a stream, with the bounds in the metadata of its schema."""
        metadata = {BOUNDS_METADATA: json.dumps([describe(b) for b in self.bounds]).encode()}
        return pa.RecordBatchReader.from_batches(
            self.schema.with_metadata(metadata), self.iter_batches()
        )

    def iter_columns(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and values, none of them null."""
        for batch in self.iter_batches():
            yield cut_binary(batch.column("key")), cut_binary(batch.column("value"))

    def iter_changes(self) -> Iterator[list[Row]]:
        """Yield rows of key, value, partition and offset."""
        for batch in self.iter_batches():
            names = ("key", "value", "partition", "offset")
            yield list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))


def read_table(
    reader: LogReader,
    topic: str,
    request: ViewRequest | None,
    partitions: Sequence[int],
    end_offsets: Mapping[int, int] | None = None,
) -> TableView:
    """Read a view of partitions; all are held as they are now, before the first is read.

    `end_offsets` are those of single partitions, in place of the request's.
    """
    request = request or ViewRequest()
    ends = end_offsets or {}
    start = None if request.view is View.LATEST else request.start_offset
    snapshots = [
        open_snapshot(reader, TopicPartition(topic, number), start_offset=start)
        for number in partitions
    ]
    schema = SCHEMA_WITH_HEADERS if request.include_headers else SCHEMA
    results = (
        read_view(
            snapshot,
            replace(request, end_offset=ends.get(snapshot.partition.partition, request.end_offset)),
        )
        for snapshot in snapshots
    )
    return TableView(tuple(results), schema)


def read_changes(reader: LogReader, topic: str, partition: int, start_offset: int) -> TableView:
    """Read every committed record from an offset on."""
    request = ViewRequest(view=View.LOG, start_offset=start_offset, isolation=Isolation.COMMITTED)
    return read_table(reader, topic, request, [partition])


def describe(bounds: ViewBounds) -> dict[str, Any]:
    """Describe bounds for JSON."""
    return {
        "topic": bounds.partition.topic,
        "partition": bounds.partition.partition,
        "log_start_offset": bounds.log_start_offset,
        "start_offset": bounds.start_offset,
        "end_offset": bounds.end_offset,
        "consistent_from": bounds.consistent_from,
    }


def cut_binary(column: pa.Array) -> list[bytes]:
    """Turn a column without nulls and without a slice offset into bytes: faster than Arrow does."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1)
    length = int(ends[1]) if len(column) else 0
    if length and (np.diff(ends) == length).all():
        # All equally long, as keys often are: numpy cuts them twice as fast as a loop does.
        equal: list[bytes] = np.frombuffer(data, f"V{length}", len(column)).tolist()
        return equal
    whole = b"" if data is None else data.to_pybytes()
    return [whole[start:end] for start, end in itertools.pairwise(ends.tolist())]
