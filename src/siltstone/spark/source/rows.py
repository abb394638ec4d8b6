"""The records of one range as the batches that Spark takes: never a row at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from siltstone.log.log_reader import LogReader
from siltstone.log.reading import Isolation
from siltstone.spark.source.options import SourceOptions
from siltstone.spark.source.pushdown import NO_PUSHDOWN, Pushdown
from siltstone.spark.source.splits import LogRange
from siltstone.table.request import View, ViewRequest
from siltstone.table.snapshot import open_snapshot
from siltstone.table.views import read_view

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
HEADERS_COLUMN: Final = ", headers array<struct<key:string,value:binary>>"

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    """What every task of a read has to know, besides its range."""

    paths: tuple[Path, ...]
    view: View
    include_headers: bool
    include_tombstones: bool
    is_committed_only: bool
    key_prefix: bytes

    @classmethod
    def of(cls, options: SourceOptions) -> "RowRequest":
        """Take from the options what concerns rows."""
        return cls(
            paths=options.paths,
            view=options.view,
            include_headers=options.include_headers,
            include_tombstones=options.include_tombstones,
            is_committed_only=options.is_committed_only,
            key_prefix=options.key_prefix,
        )


def iter_rows(
    request: RowRequest, part: LogRange, pushdown: Pushdown = NO_PUSHDOWN
) -> Iterator[pa.RecordBatch]:
    """Read a range, which ends where the plan says, whatever has been appended since."""
    prefix = pushdown.find_key_prefix(request.key_prefix)
    if prefix is None:
        return
    snapshot = open_snapshot(
        LogReader(request.paths),
        part.topic_partition,
        start_offset=None if request.view is View.LATEST else part.start_offset,
    )
    result = read_view(
        snapshot,
        ViewRequest(
            view=request.view,
            start_offset=part.start_offset,
            end_offset=part.end_offset,
            isolation=Isolation.COMMITTED
            if request.is_committed_only
            else Isolation.HIGH_WATERMARK,
            include_tombstones=request.include_tombstones,
            include_headers=request.include_headers,
            # Rows with another key are not even copied.
            key_prefix=prefix,
        ),
    )
    for batch in result.batches:
        found = pushdown.filter_rows(_with_spark_types(batch))
        if found.num_rows:
            yield found


def _with_spark_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give timestamps the unit that Spark's have."""
    at = batch.schema.get_field_index("timestamp")
    column = batch.column(at).cast(_TIMESTAMP)
    return batch.set_column(at, pa.field("timestamp", _TIMESTAMP), column)
