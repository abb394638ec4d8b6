"""Carry out plans on logs that this process owns: retention first, then passes by an engine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassCommitter
from siltstone.cleaner.commit import check_files, check_sources, discard_pass
from siltstone.cleaner.key_indexing.after_pass import index_after_pass
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.progress import CompactionProgress, PassProgress
from siltstone.cleaner.result import PassCounts, PassResult
from siltstone.cleaner.retention import RETENTION, RetentionPlan
from siltstone.cleaner.retention_commit import (
    CommittedRetention,
    check_removals,
    commit_retention,
)
from siltstone.cleaner.survey import Logs
from siltstone.clock import Clock
from siltstone.errors import CleaningAbortedError, SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog

Failure: TypeAlias = tuple[TopicPartition, SiltstoneError]
RunPlans: TypeAlias = Callable[
    [Sequence[CleaningPlan], Callable[[PassProgress], None] | None],
    AbstractContextManager[Iterator[PassOutcome]],
]


class PlannedWork(NamedTuple):
    """Plans, and what could not be planned."""

    plans: Sequence[CleaningPlan]
    retention: Sequence[RetentionPlan]
    failures: Sequence[Failure] = ()


class Cleaned(NamedTuple):
    """One pass that was run; without a manifest if it was not committed."""

    plan: CleaningPlan
    result: PassResult
    manifest: str | None

    @property
    def bytes_after(self) -> int:
        """The size of the cleaned part of the log afterwards."""
        unchanged_bytes = self.plan.bytes_of(self.result.unchanged_bases())
        return self.result.counts.bytes_written + unchanged_bytes


@dataclass(slots=True)
class Outcome:
    """What became of the work."""

    cleaned: list[Cleaned] = field(default_factory=list)
    removed: list[CommittedRetention] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def describe(self) -> list[dict[str, Any]]:
        """Return what was done, in the order in which it was done, as plain values."""
        return [
            *map(_describe_removed, self.removed),
            *map(_describe_cleaned, self.cleaned),
        ]


class Compaction:
    """Carries out one piece of work; `guard` is around whatever must not be broken off."""

    def __init__(
        self,
        logs: Logs,
        fs: FileSystem,
        clock: Clock,
        run: RunPlans,
        *,
        dry_run: bool,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._logs = logs
        self._fs = fs
        self._clock = clock
        self._run_plans = run
        self._dry_run = dry_run
        self._guard = guard

    def carry_out(self, work: PlannedWork, progress: CompactionProgress) -> Outcome:
        """Carry out everything; what fails for one partition stops no other."""
        outcome = Outcome(failures=list(work.failures))
        for retention in work.retention:
            try:
                outcome.removed.append(self._remove(retention))
            except SiltstoneError as error:
                outcome.failures.append((retention.partition, error))
        plans = []
        for plan in work.plans:
            try:
                self._check(plan)
            except SiltstoneError as error:
                outcome.failures.append((plan.partition, error))
            else:
                plans.append(plan)
        if plans:
            self._run(plans, outcome, progress)
        return outcome

    def _remove(self, plan: RetentionPlan) -> CommittedRetention:
        log = self._logs.get_log(plan.partition)
        if self._dry_run:
            check_removals(log, plan)
            return CommittedRetention(plan, log.size_bytes, 0.0, None)
        with self._guard():
            return commit_retention(self._fs, self._clock, log, plan)

    def _check(self, plan: CleaningPlan) -> None:
        """See before an engine starts that the log is still the one that was planned for."""
        log = self._logs.get_log(plan.partition)
        if plan.directory.resolve() != log.directory.resolve():
            raise CleaningAbortedError(str(plan.partition))
        # What is only tried has neither rolled a segment nor removed any.
        check = check_files if self._dry_run else check_sources
        check(log, plan)

    def _run(
        self, plans: Sequence[CleaningPlan], outcome: Outcome, progress: CompactionProgress
    ) -> None:
        with self._run_plans(plans, progress.listener) as passes:
            for one in passes:
                try:
                    outcome.cleaned.append(self._settle(one, progress))
                except SiltstoneError as error:
                    outcome.failures.append((one.plan.partition, error))
                progress.note_end(one.plan)
        for cleaned in outcome.cleaned:
            if cleaned.manifest is not None:
                log = self._logs.get_log(cleaned.plan.partition)
                index_after_pass(self._fs, log, cleaned.plan, cleaned.result)

    def _settle(self, one: PassOutcome, progress: CompactionProgress) -> Cleaned:
        result = one.get()
        log = self._logs.get_log(one.plan.partition)
        if self._dry_run:
            discard_pass(self._fs, log, result)
            return Cleaned(one.plan, result, None)
        progress.note_commit(one.plan)
        with self._guard():
            return self._commit(log, one.plan, result)

    def _commit(self, log: PartitionLog, plan: CleaningPlan, result: PassResult) -> Cleaned:
        checkpoints = CleanerCheckpoints(self._fs, log.directory.parent)
        committed = PassCommitter(self._fs, self._clock, checkpoints).commit(log, plan, result)
        return Cleaned(plan, committed.result, committed.manifest)


def _describe_cleaned(cleaned: Cleaned) -> dict[str, Any]:
    return {
        "topic": cleaned.plan.partition.topic,
        "partition": cleaned.plan.partition.partition,
        "kind": "compaction",
        **_counts(cleaned.result.counts),
        "segments_removed": 0,
        "bytes_before": cleaned.plan.source_bytes(),
        "bytes_after": cleaned.bytes_after,
        "seconds": round(cleaned.result.seconds, 6),
        "manifest": cleaned.manifest,
    }


def _describe_removed(removed: CommittedRetention) -> dict[str, Any]:
    return {
        "topic": removed.plan.partition.topic,
        "partition": removed.plan.partition.partition,
        "kind": RETENTION,
        "reason": removed.plan.reason,
        **_counts(PassCounts()),  # no record is looked at
        "segments_removed": len(removed.plan.removals),
        "log_start_offset": removed.plan.new_log_start_offset,
        "bytes_before": removed.bytes_before,
        "bytes_after": removed.bytes_after,
        "seconds": round(removed.seconds, 6),
        "manifest": removed.manifest,
    }


def _counts(counts: PassCounts) -> dict[str, int | None]:
    fields = counts.as_dict()
    del fields["bytes_read"], fields["bytes_written"]
    return fields
