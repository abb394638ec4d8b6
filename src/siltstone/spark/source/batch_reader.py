"""Batch reads: offsets are fixed when the query is planned, and every attempt reads the same."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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
from siltstone.spark.source.stages import WinnerRange, count_cores, is_staged, plan_stages
from siltstone.table.request import View


class BatchReader(DataSourceReader):
    """Reads what lies in the log directories when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._rows = RowRequest.of(options)
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
        if self._options.view is View.LOG:
            return plan_ranges(logs, offsets, self._options)
        return self._plan_views(logs, plan_ranges(logs, offsets, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range; in a task."""
        if isinstance(
            partition, LogRange | WinnerRange
        ):  # Spark asks for one if there is none, with no value.
            yield from iter_rows(self._rows, partition, self._pushdown)

    def _plan_views(self, logs: LiveLogs, wholes: Sequence[LogRange]) -> list[Any]:
        """Plan the tasks of a view that knows each key once; a large partition takes several."""
        task_count = self._options.min_partitions or count_cores()
        total_bytes = sum(whole.size_bytes for whole in wholes)
        planned: list[LogRange | WinnerRange] = []
        for whole in wholes:
            if is_staged(whole.size_bytes, total_bytes, task_count):
                request = self._rows.request(whole.start_offset, whole.end_offset)
                share = -(-whole.size_bytes * task_count // total_bytes)
                planned += plan_stages(logs, whole, request, share)
            else:
                planned.append(whole)
        return planned

    def _plan_offsets(self, logs: LiveLogs) -> dict[TopicPartition, tuple[int, int]]:
        options = self._options
        selected = [
            partition
            for partition in logs.select(options.selection)
            if self._pushdown.allows("topic", partition.topic)
        ]
        starts = resolve_start(logs, selected, options)
        ends = resolve_end(logs, selected, options)
        found: dict[TopicPartition, tuple[int, int]] = {}
        for partition in selected:
            if not self._pushdown.allows("partition", partition.partition):
                continue
            extent = logs.find_extent(partition, is_committed_only=options.is_committed_only)
            start, end = starts[partition], ends[partition]
            if end < start:
                raise UsageError(f"{partition}: the read ends at {end}, before its start {start}")
            start, end = check_range(
                partition, start, end, extent, fail_on_data_loss=options.fail_on_data_loss
            )
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


def plan_ranges(
    logs: LiveLogs, offsets: dict[TopicPartition, tuple[int, int]], options: SourceOptions
) -> list[LogRange]:
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
