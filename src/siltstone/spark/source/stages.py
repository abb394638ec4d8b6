"""When `latest` and `changes` of a partition are read by many tasks, and how they are planned.

The data source of Python plans where the driver is and cannot start jobs of its own, so the first
stage runs there, in threads. What it finds goes to the tasks: see `table.stages`.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from siltstone.ids import TopicPartition
from siltstone.spark.source.live_logs import LiveLogs
from siltstone.spark.source.splits import SPLIT_BYTES, LogRange, count_cores
from siltstone.table.request import View, ViewRequest
from siltstone.table.snapshot import open_snapshot
from siltstone.table.stages import WinnerShare, find_winners, share_out

MIN_STAGED_BYTES: Final = 64 << 20
"""Below this, one task is done before many have begun."""

MAX_FUSED_BYTES: Final = 4 << 30
"""What one task takes on: with small records, about as many keys as fit a worker's memory."""

_MIN_SHARE_RECORDS: Final = 5_000


@dataclass(frozen=True)
class WinnerRange(InputPartition):
    """What one task of the last stage reads."""

    topic: str
    partition: int
    share: WinnerShare

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose records these are."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks a read should have in all, and whether the user said so."""

    wanted: int
    is_asked: bool

    @classmethod
    def of(cls, min_partitions: int | None) -> "TaskCount":
        """Take what the user asks for, or else what this machine can do at a time."""
        return cls(min_partitions or count_cores(), min_partitions is not None)


def is_staged(size_bytes: int, total_bytes: int, tasks: TaskCount) -> bool:
    """Say whether a partition is to be read in stages, among those that have `total_bytes`.

    One task for each partition does the least work, and none of it in the driver. With fewer
    partitions than tasks that can run, or one that is far larger than the others, tasks are idle.
    """
    if size_bytes > MAX_FUSED_BYTES:
        return True
    is_large = tasks.is_asked or size_bytes >= MIN_STAGED_BYTES
    return is_large and size_bytes * tasks.wanted > 1.5 * total_bytes


def plan_stages(
    logs: LiveLogs, whole: LogRange, request: ViewRequest, total_bytes: int, tasks: TaskCount
) -> list[WinnerRange]:
    """Find the records of a view of a partition, and share them out."""
    start = None if request.view is View.LATEST else whole.start_offset
    snapshot = open_snapshot(logs.reader(), whole.topic_partition, start_offset=start)
    winners = find_winners(snapshot, request, count_cores())
    share_count = -(-whole.size_bytes * tasks.wanted // total_bytes)
    found_bytes = whole.size_bytes * len(winners.offsets) // max(1, whole.offset_count)
    share_count = max(share_count, -(-found_bytes // SPLIT_BYTES))
    if not tasks.is_asked:
        share_count = min(share_count, 1 + len(winners.offsets) // _MIN_SHARE_RECORDS)
    return [
        WinnerRange(whole.topic, whole.partition, share)
        for share in share_out(winners, share_count)
    ]
