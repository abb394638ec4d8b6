"""Carry out plans on logs that this process owns: retention first, then passes on Spark."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassCommitter
from siltstone.cleaner.commit import check_files, check_sources, discard_pass
from siltstone.cleaner.key_indexing.after_pass import index_after_pass
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.retention import RetentionPlan
from siltstone.cleaner.retention_commit import (
    CommittedRetention,
    check_removals,
    commit_retention,
)
from siltstone.cli.interrupts import interrupts_deferred
from siltstone.cli.output import OutputFormat
from siltstone.cli.progress import CompactionProgress, open_progress
from siltstone.clock import SystemClock
from siltstone.errors import SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.spark.engine import SparkEngine

Failure: TypeAlias = tuple[TopicPartition, SiltstoneError]


class Work(NamedTuple):
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


class Compaction:
    """One call of `silt compact`."""

    def __init__(
        self,
        manager: LogManager,
        engine: SparkEngine,
        output_format: OutputFormat,
        *,
        dry_run: bool,
    ) -> None:
        self._manager = manager
        self._engine = engine
        self._output_format = output_format
        self._dry_run = dry_run
        self._fs = FileSystem()
        self._clock = SystemClock()

    def carry_out(self, work: Work) -> Outcome:
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
            self._run(plans, outcome)
        return outcome

    def _remove(self, plan: RetentionPlan) -> CommittedRetention:
        log = self._manager.get_log(plan.partition)
        if self._dry_run:
            check_removals(log, plan)
            return CommittedRetention(plan, log.size_bytes, 0.0, None)
        with interrupts_deferred():
            return commit_retention(self._fs, self._clock, log, plan)

    def _check(self, plan: CleaningPlan) -> None:
        """See before Spark starts that the log is still the one that was planned for."""
        log = self._manager.get_log(plan.partition)
        # What is only tried has neither rolled a segment nor removed any.
        check = check_files if self._dry_run else check_sources
        check(log, plan)

    def _run(self, plans: Sequence[CleaningPlan], outcome: Outcome) -> None:
        engine = self._engine
        try:
            with open_progress(plans, self._output_format) as progress:
                progress.note_start()
                engine.start()
                progress.note_begin()
                with closing(engine.run_all(plans, progress.listener)) as passes:
                    for one in passes:
                        try:
                            outcome.cleaned.append(self._settle(one, progress))
                        except SiltstoneError as error:
                            outcome.failures.append((one.plan.partition, error))
                        progress.note_end(one.plan)
        finally:
            engine.close()
        for cleaned in outcome.cleaned:
            if cleaned.manifest is not None:
                log = self._manager.get_log(cleaned.plan.partition)
                index_after_pass(self._fs, log, cleaned.plan, cleaned.result)

    def _settle(self, one: PassOutcome, progress: CompactionProgress) -> Cleaned:
        result = one.get()
        log = self._manager.get_log(one.plan.partition)
        if self._dry_run:
            discard_pass(self._fs, log, result)
            return Cleaned(one.plan, result, None)
        progress.note_commit(one.plan)
        checkpoints = CleanerCheckpoints(self._fs, log.directory.parent)
        with interrupts_deferred():
            committer = PassCommitter(self._fs, self._clock, checkpoints)
            committed = committer.commit(log, one.plan, result)
        return Cleaned(one.plan, committed.result, committed.manifest)
