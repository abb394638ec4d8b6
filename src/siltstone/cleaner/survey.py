"""Look over the logs of some directories: which are due for a pass, and why the others are not."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.retention import RetentionPlan, plan_retention
from siltstone.cleaner.selection import Assessment, filthiest_first
from siltstone.cleaner.waiting import Waiting
from siltstone.errors import StorageError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog


class Logs(Protocol):
    """Where logs come from: an owner's, or a reader's."""

    def get_log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition."""
        ...


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One log, the verdict on it, the plan if it is eligible, and what retention takes before."""

    log: PartitionLog
    assessment: Assessment
    waiting: Waiting
    plan: CleaningPlan | None
    retention: RetentionPlan | None


@dataclass(frozen=True, slots=True)
class Survey:
    """The verdict on every log that could be looked at, and the errors of the others."""

    logs: tuple[Surveyed, ...]
    failures: tuple[tuple[TopicPartition, StorageError], ...]

    def retention_plans(self) -> list[RetentionPlan]:
        """Return what retention takes, to be carried out before the passes."""
        return [s.retention for s in self.logs if s.retention is not None]

    def plans(self) -> list[CleaningPlan]:
        """Return the plans, filthiest log first."""
        by_partition = {s.log.partition: s.plan for s in self.logs if s.plan is not None}
        order = filthiest_first([s.assessment for s in self.logs])
        return [by_partition[assessment.partition] for assessment in order]


def survey_logs(
    logs: Logs,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    *,
    ignores_ratio: bool = False,
    as_if_rolled: bool = False,
    has_retention: Callable[[str], bool] = lambda topic: True,
    fs: FileSystem | None = None,
) -> Survey:
    """Assess logs and plan a pass for each that is eligible; a damaged one stops no other.

    Retention is planned for the topics that have one; the others' old segments stay.
    """
    fs = fs or FileSystem()
    surveyed = []
    failures = []
    for partition in partitions:
        try:
            log = logs.get_log(partition)
            checkpoint = CleanerCheckpoints(fs, log.directory.parent).find(partition)
            retention = plan_retention(log, now_ms) if has_retention(partition.topic) else None
            assessment, waiting = assess_log(
                log,
                checkpoint,
                now_ms,
                ignores_ratio=ignores_ratio,
                retention=retention,
                as_if_rolled=as_if_rolled,
            )
            is_eligible = assessment.is_eligible
            plan = plan_pass(log, assessment, now_ms, retention) if is_eligible else None
        except StorageError as error:
            failures.append((partition, error))
            continue
        surveyed.append(Surveyed(log, assessment, waiting, plan, retention))
    return Survey(tuple(surveyed), tuple(failures))
