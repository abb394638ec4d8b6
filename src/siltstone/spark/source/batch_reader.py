"""Batch reads: offsets are fixed before the first task, and every attempt reads the same."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from siltstone.errors import UsageError
from siltstone.ids import TopicPartition
from siltstone.spark.source.bounds import check_range, resolve_end, resolve_start
from siltstone.spark.source.live_logs import LiveLogs
from siltstone.spark.source.options import SourceOptions
from siltstone.spark.source.pushdown import Pushdown, parse_filters
from siltstone.spark.source.rows import RowRequest, iter_rows
from siltstone.spark.source.splits import (
    LogRange,
    limit_records,
    measure,
    share_parts,
    split,
)
from siltstone.spark.source.stages import TaskCount, WinnerRange, is_staged, plan_stages
from siltstone.spark.source.worker import spare_collector
from siltstone.table.request import View, ViewBounds, resolve_bounds
from siltstone.table.snapshot import open_snapshot

Ranges: TypeAlias = Mapping[TopicPartition, tuple[int, int]]  # first offset, and the one after


class BatchReader(DataSourceReader):
    """Reads log directories; offsets that are not `fixed` are those when the query is planned."""

    def __init__(
        self,
        options: SourceOptions,
        columns: pa.Schema | None = None,
        fixed: Ranges | None = None,
    ) -> None:
        self._options = options
        self._rows = RowRequest.of(options, columns)
        self._fixed = fixed
        self._pushdown = Pushdown()
        self.pushFilters = _FilterPusher(self)  # type: ignore[method-assign]

    def push(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters in; Spark is to evaluate all of them once more."""
        self._pushdown = parse_filters(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks."""
        logs = LiveLogs(self._options.paths)
        offsets = self._plan_offsets(logs)
        ranges = plan_ranges(logs, offsets, self._options)
        planned = ranges if self._options.view is View.LOG else self._plan_views(logs, ranges)
        spare_collector()
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what was planned for one task; in that task."""
        if isinstance(partition, LogRange | WinnerRange):  # Spark asks for one if there is none.
            yield from iter_rows(self._rows, partition, self._pushdown)
        spare_collector()

    def _plan_views(self, logs: LiveLogs, wholes: Sequence[LogRange]) -> list[Any]:
        """Plan the tasks of a view that knows each key once; a large partition takes several."""
        if self._rows.keys(self._pushdown) is not None:
            return [*wholes]  # A few keys are looked up.
        tasks = TaskCount.of(self._options.min_partitions)
        total_bytes = sum(whole.size_bytes for whole in wholes)
        planned: list[LogRange | WinnerRange] = []
        for whole in wholes:
            if is_staged(whole.size_bytes, total_bytes, tasks):
                request = self._rows.request(whole.start_offset, whole.end_offset)
                planned += plan_stages(logs, whole, request, total_bytes, tasks)
            else:
                planned.append(whole)
        return planned

    def _plan_offsets(self, logs: LiveLogs) -> Ranges:
        options = self._options
        ranges = resolve_ranges(logs, options) if self._fixed is None else self._fixed
        found: dict[TopicPartition, tuple[int, int]] = {}
        for partition, (start, end) in ranges.items():
            if not self._pushdown.allows("topic", partition.topic):
                continue
            if not self._pushdown.allows("partition", partition.partition):
                continue
            if self._fixed is not None:
                start, end = _check(logs, options, partition, start, end)
            if options.view is View.LOG:
                # In the other views, what a filter hides still hides what came before it.
                start, end = self._pushdown.cut_offsets(start, end)
                start = max(start, self._find_earliest(logs, partition, end))
            found[partition] = start, end
        return found

    def _find_earliest(self, logs: LiveLogs, partition: TopicPartition, end: int) -> int:
        """Return the offset before which all records are older than the filters allow."""
        earliest_ms = self._pushdown.earliest_ms()
        if earliest_ms is None:
            return 0
        found = logs.get_log(partition).find_offset_by_timestamp(earliest_ms)
        return end if found is None else found.offset


class _FilterPusher:
    """The `pushFilters` of a reader that also works where Spark does not push filters down.

    Spark refuses a reader with a `pushFilters` of its own unless a setting allows it, which is off
    by default. It tells by the function behind the method.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


def resolve_ranges(logs: LiveLogs, options: SourceOptions) -> Ranges:
    """Find the offsets that a read asks for, in the logs as they are now."""
    selected = logs.select(options.selection)
    starts = resolve_start(logs, selected, options)
    ends = resolve_end(logs, selected, options)
    found: dict[TopicPartition, tuple[int, int]] = {}
    for partition in selected:
        start, end = starts[partition], ends[partition]
        if end < start:
            raise UsageError(f"{partition}: the read ends at {end}, before its start {start}")
        found[partition] = _check(logs, options, partition, start, end)
    return found


def find_view_bounds(options: SourceOptions) -> list[ViewBounds]:
    """Find between which offsets a read of now lies, and from which on it is consistent.

    Raise NotExactError if compaction has taken apart what is asked for.
    """
    logs = LiveLogs(options.paths)
    rows = RowRequest.of(options)
    found: list[ViewBounds] = []
    for partition, (start, end) in resolve_ranges(logs, options).items():
        # Only where the log lies and how far it was cleaned: no segment before the end is held.
        snapshot = open_snapshot(logs.reader(), partition, start_offset=end)
        found.append(resolve_bounds(snapshot, rows.request(start, end)))
    return found


def _check(
    logs: LiveLogs, options: SourceOptions, partition: TopicPartition, start: int, end: int
) -> tuple[int, int]:
    extent = logs.find_extent(partition, is_committed_only=options.is_committed_only)
    return check_range(partition, start, end, extent, fail_on_data_loss=options.fail_on_data_loss)


def plan_ranges(logs: LiveLogs, offsets: Ranges, options: SourceOptions) -> list[LogRange]:
    """Cut ranges of offsets into tasks; a view other than `log` takes a partition as a whole."""
    wholes = [
        measure(logs.get_log(partition), start, end)
        for partition, (start, end) in offsets.items()
        if start < end
    ]
    if options.view is not View.LOG:
        return wholes
    ranges: list[LogRange] = []
    for whole, count in zip(wholes, share_parts(wholes, options.min_partitions), strict=True):
        log = logs.get_log(whole.topic_partition)
        for part in split(log, whole, count):
            if options.max_records_per_partition is None:
                ranges.append(part)
            else:
                ranges.extend(limit_records(log, part, options.max_records_per_partition))
    return ranges
