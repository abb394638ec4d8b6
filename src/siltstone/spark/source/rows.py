"""The records of one range as the batches that Spark takes: never a row at a time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from siltstone.log.log_reader import LogReader
from siltstone.log.reading import Isolation
from siltstone.spark.source.key_lookup import find_keys
from siltstone.spark.source.options import SourceOptions
from siltstone.spark.source.pushdown import NO_PUSHDOWN, Condition, Pushdown
from siltstone.spark.source.schema import SPARK_TIMESTAMP
from siltstone.spark.source.splits import LogRange
from siltstone.spark.source.stages import WinnerRange
from siltstone.table.request import View, ViewRequest
from siltstone.table.snapshot import open_snapshot
from siltstone.table.stages import read_share
from siltstone.table.views import read_view

_FEW_ROWS: Final = 1 << 13


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    """What every task of a read has to know, besides its range."""

    paths: tuple[Path, ...]
    view: View
    include_headers: bool
    include_tombstones: bool
    is_committed_only: bool
    key_prefix: bytes
    wanted_keys: tuple[bytes, ...] | None
    columns: pa.Schema | None  # None: all

    @classmethod
    def of(cls, options: SourceOptions, columns: pa.Schema | None = None) -> "RowRequest":
        """Take from the options what concerns rows."""
        return cls(
            paths=options.paths,
            view=options.view,
            include_headers=options.include_headers,
            include_tombstones=options.include_tombstones,
            is_committed_only=options.is_committed_only,
            key_prefix=options.key_prefix,
            wanted_keys=options.keys,
            columns=columns,
        )

    def keys(self, pushdown: Pushdown) -> tuple[bytes, ...] | None:
        """Return the only keys that can be in the answer; None if they may be any."""
        return self.with_keys(pushdown).keys()

    def with_keys(self, pushdown: Pushdown) -> Pushdown:
        """Add the keys that the read was asked for to those that filters leave."""
        if self.wanted_keys is None:
            return pushdown
        only = Condition("key", "in", self.wanted_keys)
        return Pushdown((*pushdown.conditions, only))

    def request(
        self, start_offset: int, end_offset: int, key_prefix: bytes | None = None
    ) -> ViewRequest:
        """Ask for a part of a partition."""
        return ViewRequest(
            view=self.view,
            start_offset=start_offset,
            end_offset=end_offset,
            isolation=Isolation.COMMITTED if self.is_committed_only else Isolation.HIGH_WATERMARK,
            include_tombstones=self.include_tombstones,
            include_headers=self.include_headers,
            # Rows with another key are not even copied.
            key_prefix=self.key_prefix if key_prefix is None else key_prefix,
        )


def iter_rows(
    rows: RowRequest, part: LogRange | WinnerRange, pushdown: Pushdown = NO_PUSHDOWN
) -> Iterator[pa.RecordBatch]:
    """Read what one task is to read, which ends where the plan says, whatever came since."""
    pushdown = rows.with_keys(pushdown)
    prefix = pushdown.find_key_prefix(rows.key_prefix)
    if prefix is None:
        return
    batches = (
        _iter_range(rows, part, prefix, pushdown.keys())
        if isinstance(part, LogRange)
        else _iter_winners(rows, part, prefix)
    )
    yield from to_spark_batches(rows, batches, pushdown)


def to_spark_batches(
    rows: RowRequest, batches: Iterable[pa.RecordBatch], pushdown: Pushdown = NO_PUSHDOWN
) -> Iterator[pa.RecordBatch]:
    """Give batches of a log the size, the types and the columns that Spark is to get."""
    for batch in _join_small(batches):
        found = pushdown.filter_rows(_with_spark_types(batch))
        if found.num_rows:
            yield found if rows.columns is None else _choose(found, rows.columns)


def _iter_range(
    rows: RowRequest, part: LogRange, prefix: bytes, keys: Sequence[bytes] | None
) -> Iterator[pa.RecordBatch]:
    reader = LogReader(rows.paths)
    request = rows.request(part.start_offset, part.end_offset, prefix)
    if keys is not None and rows.view is View.LATEST:
        found = find_keys(reader, part.topic_partition, request, keys)
        if found is not None:
            return iter([found])
    snapshot = open_snapshot(
        reader,
        part.topic_partition,
        start_offset=None if rows.view is View.LATEST else part.start_offset,
    )
    return read_view(snapshot, request).batches


def _iter_winners(rows: RowRequest, part: WinnerRange, prefix: bytes) -> Iterator[pa.RecordBatch]:
    share = part.share
    snapshot = open_snapshot(
        LogReader(rows.paths), part.topic_partition, start_offset=share.start_offset
    )
    request = rows.request(share.start_offset, share.end_offset, prefix)
    return read_share(snapshot, request, share.offsets)


def _join_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together: each costs the JVM something, however few its rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= _FEW_ROWS:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_batches(waiting)


def _with_spark_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give timestamps the unit that Spark's have."""
    at = batch.schema.get_field_index("timestamp")
    column = batch.column(at).cast(SPARK_TIMESTAMP)
    return batch.set_column(at, pa.field("timestamp", SPARK_TIMESTAMP), column)


def _choose(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    chosen = [batch.column(name) for name in columns.names]
    return pa.RecordBatch.from_arrays(chosen, schema=columns)
