"""`latest` and `changes` as a job of three stages, in which the driver only plans offsets.

A data source of Python cannot start jobs: what `format("siltstone")` does for a large partition, it
does with the keys of all of it on the driver's machine. Here each task has those of one slice, or
of one range of hashes, and Spark's shuffle carries them: see `table.key_slices`.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from siltstone.errors import UsageError
from siltstone.log.log_reader import LogReader
from siltstone.spark.source.batch_reader import Ranges, find_view_bounds
from siltstone.spark.source.live_logs import LiveLogs
from siltstone.spark.source.options import parse_source_options
from siltstone.spark.source.rows import RowRequest, to_spark_batches
from siltstone.spark.source.schema import choose_columns, make_schema
from siltstone.spark.source.splits import SPLIT_BYTES, limit_records, measure, split
from siltstone.spark.source.worker import spare_collector
from siltstone.table.key_slices import (
    MAX_SLICE_OFFSETS,
    KeySlice,
    index_slice,
    list_winners,
    resolve_range,
)
from siltstone.table.request import View, ViewBounds, ViewRequest
from siltstone.table.snapshot import LogSnapshot, open_snapshot
from siltstone.table.stages import read_share

Batches: TypeAlias = Iterator[pa.RecordBatch]
Stage: TypeAlias = Callable[[Batches], Batches]

_BLOCK_COLUMNS: Final = "target int, slice int, block binary"
_BLOCK_SCHEMA: Final = pa.schema(
    [("target", pa.int32()), ("slice", pa.int32()), ("block", pa.binary())]
)


def read_in_stages(spark: SparkSession, path: str | os.PathLike[str], **options: str) -> DataFrame:
    """Read `view=latest` or `view=changes` with the keys spread over the tasks of a job.

    The options are those of the format, `minPartitions` the least number of tasks in each stage.
    The session must have been given to `register`. Offsets are those of now.
    """
    parsed = parse_source_options({"path": os.fspath(path), **options}, is_streaming=False)
    if parsed.view is View.LOG:
        raise UsageError("view=log has no keys to find: read it with format('siltstone')")
    if parsed.keys is not None:
        raise UsageError("keys are looked up: read them with format('siltstone')")
    bounds = find_view_bounds(parsed)
    slices = _cut(LiveLogs(parsed.paths), bounds, parsed.min_partitions or 1)
    schema = make_schema(with_headers=parsed.include_headers, bounds=bounds)
    columns = choose_columns(schema, with_headers=parsed.include_headers)
    stages = _Stages(
        RowRequest.of(parsed, columns),
        {part.partition: (part.start_offset, part.end_offset) for part in bounds},
        tuple(slices),
    )
    count = max(1, len(slices))
    with warnings.catch_warnings():
        # Spark wants a pandas that it knows here, although nothing of this goes through pandas.
        warnings.simplefilter("ignore", FutureWarning)
        return (
            spark.range(0, len(slices), 1, count)
            .mapInArrow(_as_function(stages.index), _BLOCK_COLUMNS)
            .repartitionById(count, "target")
            .mapInArrow(_as_function(stages.resolve), _BLOCK_COLUMNS)
            .repartitionById(count, "target")
            .mapInArrow(_as_function(stages.read), schema)
        )


@dataclass(frozen=True, slots=True)
class _Stages:
    """What the tasks of all stages know."""

    rows: RowRequest
    ranges: Ranges  # of whole partitions
    slices: tuple[KeySlice, ...]

    def index(self, batches: Batches) -> Batches:
        """Send the keys of slices to the tasks of their ranges."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self.slices[number]
                blocks = index_slice(self._open(part), self._request(part), part, len(self.slices))
                for target, block in enumerate(blocks):
                    yield _make_row(target, number, block.tobytes())

    def resolve(self, batches: Batches) -> Batches:
        """Send what is left of slices in one range of hashes to the tasks that read them."""
        count = len(self.slices)
        blocks = [(number, block) for _, number, block in _iter_rows(batches)]
        if blocks:
            for number, survivors in enumerate(resolve_range(blocks, count, count)):
                yield _make_row(number, number, survivors.tobytes())

    def read(self, batches: Batches) -> Batches:
        """Read what is left of a slice."""
        blocks = [(number, block) for _, number, block in _iter_rows(batches)]
        if blocks:
            part = self.slices[blocks[0][0]]
            request = self._request(part)
            offsets = list_winners(request, part, (block for _, block in blocks))
            if len(offsets):
                yield from to_spark_batches(
                    self.rows, read_share(self._open(part), request, offsets)
                )

    def _open(self, part: KeySlice) -> LogSnapshot:
        reader = LogReader(self.rows.paths)
        return open_snapshot(reader, part.partition, start_offset=part.start_offset)

    def _request(self, part: KeySlice) -> ViewRequest:
        return self.rows.request(*self.ranges[part.partition])


def _cut(logs: LiveLogs, bounds: list[ViewBounds], min_count: int) -> list[KeySlice]:
    """Cut partitions into slices of one task each."""
    slices: list[KeySlice] = []
    wholes = [
        (logs.get_log(part.partition), part)
        for part in bounds
        if part.start_offset < part.end_offset
    ]
    ranges = [measure(log, part.start_offset, part.end_offset) for log, part in wholes]
    total_bytes = max(1, sum(whole.size_bytes for whole in ranges))
    for (log, _), whole in zip(wholes, ranges, strict=True):
        count = max(
            -(-whole.size_bytes // SPLIT_BYTES), -(-whole.size_bytes * min_count // total_bytes)
        )
        parts = [
            limited
            for part in split(log, whole, count)
            for limited in limit_records(log, part, MAX_SLICE_OFFSETS)
        ]
        hash_key = os.urandom(16)
        slices += [
            KeySlice(
                log.partition,
                part.start_offset,
                part.end_offset,
                is_last=part is parts[-1],
                hash_key=hash_key,
            )
            for part in parts
        ]
    return slices


def _as_function(stage: Stage) -> Stage:
    """Make a plain function of a stage: Spark looks at its signature."""

    def run(batches: Batches) -> Batches:
        yield from stage(batches)
        spare_collector()

    return run


def _make_row(target: int, number: int, block: bytes) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([target], pa.int32()),
            pa.array([number], pa.int32()),
            pa.array([block], pa.binary()),
        ],
        schema=_BLOCK_SCHEMA,
    )


def _iter_rows(batches: Batches) -> Iterator[tuple[int, int, bytes]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in _BLOCK_SCHEMA.names)
        yield from zip(*columns, strict=True)
