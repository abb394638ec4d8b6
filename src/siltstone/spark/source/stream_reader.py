"""Streaming reads: offsets per partition, in the form that Spark's Kafka source keeps them."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from siltstone.ids import TopicPartition
from siltstone.spark.source.batch_reader import plan_ranges
from siltstone.spark.source.bounds import check_range, lose_partition, resolve_start
from siltstone.spark.source.live_logs import LiveLogs
from siltstone.spark.source.options import (
    PartitionOffsets,
    SourceOptions,
    format_offsets,
    read_offsets,
)
from siltstone.spark.source.rows import RowRequest, iter_rows
from siltstone.spark.source.splits import LogRange
from siltstone.spark.source.worker import spare_collector


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the partitions that are asked for, and those that are added to them."""

    def __init__(self, options: SourceOptions, columns: pa.Schema | None = None) -> None:
        self._options = options
        self._rows = RowRequest.of(options, columns)
        self._planner: _Planner | None = None  # Not sent to tasks: it has files open.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        return format_offsets(self._plan().find_initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends."""
        return format_offsets(self._plan().find_next(read_offsets(start), limit))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch may read, if the trigger does not say otherwise."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the logs end."""
        return format_offsets(self._plan().find_ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where the query ends."""
        self._plan().stop_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of one batch."""
        return self._plan().plan_tasks(read_offsets(start), read_offsets(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range; in a task."""
        assert isinstance(partition, LogRange)
        yield from iter_rows(self._rows, partition)
        spare_collector()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def _plan(self) -> "_Planner":
        if self._planner is None:
            self._planner = _Planner(self._options)
        return self._planner


class _Planner:
    """The part of a stream reader that lives in the driver, from batch to batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs = LiveLogs(options.paths)
        self._final: PartitionOffsets | None = None
        self._last_batch_at = time.monotonic()

    def find_initial(self) -> PartitionOffsets:
        selected = self._logs.select(self._options.selection)
        return resolve_start(self._logs, selected, self._options)

    def find_ends(self) -> PartitionOffsets:
        committed = self._options.is_committed_only
        return {
            partition: self._logs.find_extent(partition, is_committed_only=committed).end_offset
            for partition in self._logs.select(self._options.selection)
        }

    def stop_here(self) -> None:
        self._final = self.find_ends()

    def find_next(self, start: Mapping[TopicPartition, int], limit: ReadLimit) -> PartitionOffsets:
        ends = self.find_ends() if self._final is None else dict(self._final)
        for partition in start:
            if partition not in ends:
                lose_partition(partition, fail_on_data_loss=self._options.fail_on_data_loss)
        begins = {partition: self._begin(partition, start) for partition in ends}
        # A log that lost its end must not take the query back: that is for `plan_tasks` to say.
        ends = {partition: max(end, begins[partition]) for partition, end in ends.items()}
        if self._is_too_little(begins, ends, limit):
            return dict(start)
        self._last_batch_at = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            return _limit(begins, ends, limit.max_rows)
        return ends

    def plan_tasks(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> list[Any]:
        options = self._options
        present = set(self._logs.select(options.selection))
        offsets: dict[TopicPartition, tuple[int, int]] = {}
        for partition, end_offset in end.items():
            if partition not in present:
                lose_partition(partition, fail_on_data_loss=options.fail_on_data_loss)
                continue
            extent = self._logs.find_extent(partition, is_committed_only=options.is_committed_only)
            offsets[partition] = check_range(
                partition,
                self._begin(partition, start),
                end_offset,
                extent,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        return plan_ranges(self._logs, offsets, options)

    def _begin(self, partition: TopicPartition, start: Mapping[TopicPartition, int]) -> int:
        """Return where to go on; with a partition that was added, at its first record."""
        if partition in start:
            return start[partition]
        return self._logs.get_log(partition).log_start_offset

    def _is_too_little(
        self, begins: PartitionOffsets, ends: PartitionOffsets, limit: ReadLimit
    ) -> bool:
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._final is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        count = sum(ends[partition] - begins[partition] for partition in ends)
        return count < minimum and waited_ms < self._options.max_trigger_delay_ms


def _limit(begins: PartitionOffsets, ends: PartitionOffsets, max_count: int) -> PartitionOffsets:
    """Give each partition a part of the limit by how much it has, as Spark's Kafka source does."""
    total = sum(ends[partition] - begins[partition] for partition in ends)
    if total <= max_count:
        return ends
    limited: PartitionOffsets = {}
    for partition, end in ends.items():
        share = max_count * ((end - begins[partition]) / total)
        # Rounded up if it is less than one, so that no partition waits for ever.
        count = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(end, begins[partition] + count)
    return limited
