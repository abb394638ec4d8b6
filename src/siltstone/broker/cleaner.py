"""The cleaner beside the broker: looks for logs that are due, has them cleaned, commits.

One thread decides and commits; the work itself is the engine's. A log that cannot be cleaned is
left alone for a while, longer after each failure, and stops no other.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

from siltstone.broker.compiler_memory import release_compiler
from siltstone.broker.config import BrokerConfig
from siltstone.broker.engine_process import Work
from siltstone.broker.pass_figures import PassFigures, recall_figures
from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassCommitter
from siltstone.cleaner.commit import check_sources, discard_run
from siltstone.cleaner.compaction import Compaction, Outcome, PlannedWork
from siltstone.cleaner.key_indexing.after_pass import index_after_pass
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.progress import CompactionProgress, PassProgress, Show
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.selection import Assessment
from siltstone.cleaner.survey import survey_logs
from siltstone.clock import Clock
from siltstone.errors import (
    CleaningAbortedError,
    EngineError,
    SiltstoneError,
    UnknownTopicError,
)
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_UNTHROTTLED: Final = 1e300
_LONGEST_WAIT_MS: Final = 3_600_000
_LOOKS_SKIPPED: Final = 10


class PassEngine(Protocol):
    """Runs plans, somewhere."""

    def run_all(
        self, work: Work, on_progress: Callable[[PassProgress], None] | None = None
    ) -> Iterator[PassOutcome]:
        """Run plans side by side and yield how each ended."""
        ...

    def close(self) -> None:
        """Stop, also in the middle of a run."""
        ...


@dataclass(frozen=True, slots=True)
class Uncleanable:
    """Why a log could not be cleaned, how often, and when it is tried again."""

    reason: str
    failure_count: int
    retry_ms: int


class Asked(NamedTuple):
    """Plans that somebody wants carried out, whether they are due or not."""

    work: PlannedWork
    dry_run: bool
    io_bytes_per_second: float | None  # None: as set
    show: Show
    outcome: "Future[Outcome]"


class Cleaner:
    """Cleans the logs of a manager, again and again."""

    def __init__(
        self,
        manager: LogManager,
        fs: FileSystem,
        clock: Clock,
        engine: PassEngine,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._manager = manager
        self._fs = fs
        self._clock = clock
        self._engine = engine
        self._config = config
        self._stopped = threading.Event()
        self._wanted = threading.Event()  # there is something to do before the back-off is over
        self._asked: SimpleQueue[Asked] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="cleaner", daemon=True)
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self.assessments: dict[TopicPartition, Assessment] = {}
        self.figures: dict[TopicPartition, PassFigures] = {}
        self.last_run_ms = 0
        self._idle: dict[TopicPartition, tuple[object, int]] = {}  # not due: as it was, and when

    def start(self) -> None:
        """Begin; nothing is started elsewhere until the first log is due."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still looks for logs that are due."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End; a pass that runs is given up, and its log is as it was."""
        self._stopped.set()
        self._wanted.set()
        self._engine.close()
        if self._thread.ident is not None:
            self._thread.join()
        while not self._asked.empty():
            outcome = self._asked.get().outcome
            if outcome.set_running_or_notify_cancel():
                outcome.set_exception(EngineError("the broker stops"))

    def carry_out(self, asked: Asked) -> None:
        """Carry out plans as soon as what runs is over; the outcome tells how it went."""
        self._asked.put(asked)
        self._wanted.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wanted.clear()
            cleaned = 0
            try:
                while not self._asked.empty() and not self._stopped.is_set():
                    self._carry_out(self._asked.get())
                if self._config().log_cleaner_enable:
                    cleaned = self.clean_due()
            except Exception:
                logger.exception("a bug: the cleaner failed, and is tried again")
            if not cleaned:
                self._wanted.wait(max(self._config().log_cleaner_backoff_ms, 1) / 1000)

    def _carry_out(self, asked: Asked) -> None:
        if not asked.outcome.set_running_or_notify_cancel():
            return
        progress = CompactionProgress(asked.work.plans, asked.show)

        @contextmanager
        def run(
            plans: Sequence[CleaningPlan], on_progress: Callable[[PassProgress], None] | None
        ) -> Iterator[Iterator[PassOutcome]]:
            rate = asked.io_bytes_per_second or self._io_bytes_per_second()
            progress.note_start()
            yield self._engine.run_all(Work(plans, rate, is_watched=True), on_progress)

        compaction = Compaction(self._manager, self._fs, self._clock, run, dry_run=asked.dry_run)
        try:
            outcome = compaction.carry_out(asked.work, progress)
            for cleaned in outcome.cleaned:
                if cleaned.manifest is not None:
                    self._note_pass(cleaned.plan, cleaned.result)
        except Exception as error:
            logger.exception("a bug: a compaction that was asked for failed")
            asked.outcome.set_exception(error)
        else:
            asked.outcome.set_result(outcome)

    def _io_bytes_per_second(self) -> float | None:
        rate = self._config().log_cleaner_io_max_bytes_per_second
        return None if rate >= _UNTHROTTLED else rate

    def clean_due(self) -> int:
        """Clean the filthiest logs that are due, as many as go together; return how many were."""
        now_ms = self._clock.now_ms()
        self.last_run_ms = now_ms
        plans = self._plan(now_ms)[: max(1, self._config().log_cleaner_threads)]
        runnable = [plan for plan in plans if self._can_run(plan)]
        if not runnable:
            return 0
        committed = 0
        for outcome in self._engine.run_all(Work(runnable, self._io_bytes_per_second())):
            if self._stopped.is_set():
                discard_run(self._fs, outcome.plan)
            else:
                committed += self._commit(outcome)
        return committed

    def _plan(self, now_ms: int) -> list[CleaningPlan]:
        compacted = {p: log for p, log in self._manager.logs.items() if log.config.is_compacted}
        changed = [p for p, log in compacted.items() if self._has_changed(log, now_ms)]
        survey = survey_logs(self._manager, changed, now_ms, fs=self._fs)
        assessed = {s.log.partition: s.assessment for s in survey.logs}
        known = {p: a for p, a in self.assessments.items() if p in compacted}
        self.assessments = known | assessed
        self.uncleanable = {p: u for p, u in self.uncleanable.items() if p in compacted}
        self.figures = {p: self.figures.get(p) or self._recall(log) for p, log in compacted.items()}
        for partition, assessment in assessed.items():
            if not assessment.is_eligible:
                self._idle[partition] = (_state_of(compacted[partition]), now_ms)
        for partition, error in survey.failures:
            self._failed(partition, error)
        return [plan for plan in survey.plans() if self._may_try(plan.partition, now_ms)]

    def _recall(self, log: PartitionLog) -> PassFigures:
        try:
            return recall_figures(self._fs, log)
        except (SiltstoneError, FileNotFoundError, KeyError) as error:
            logger.warning("%s: its last pass is not known: %s", log.partition, error)
            return PassFigures()

    def _has_changed(self, log: PartitionLog, now_ms: int) -> bool:
        """Say whether to look at a log: not if it was not due, and has no new segment since.

        To look is to read the headers of all that is clean. Time alone can make a log due, so
        after a while it is looked at all the same.
        """
        state, seen_ms = self._idle.pop(log.partition, (None, 0))
        wait_ms = max(_LOOKS_SKIPPED * self._config().log_cleaner_backoff_ms, 1)
        if state != _state_of(log) or not 0 <= now_ms - seen_ms < wait_ms:
            return True
        self._idle[log.partition] = (state, seen_ms)
        return False

    def _may_try(self, partition: TopicPartition, now_ms: int) -> bool:
        uncleanable = self.uncleanable.get(partition)
        return uncleanable is None or now_ms >= uncleanable.retry_ms

    def _can_run(self, plan: CleaningPlan) -> bool:
        try:
            check_sources(self._manager.get_log(plan.partition), plan)
        except (CleaningAbortedError, UnknownTopicError):
            return False  # It changed this moment; the next survey sees how.
        except SiltstoneError as error:
            self._failed(plan.partition, error)
            return False
        return True

    def _commit(self, outcome: PassOutcome) -> bool:
        plan = outcome.plan
        try:
            result = outcome.get()
            log = self._manager.get_log(plan.partition)
            checkpoints = CleanerCheckpoints(self._fs, log.directory.parent)
            PassCommitter(self._fs, self._clock, checkpoints).commit(log, plan, result)
        except (CleaningAbortedError, UnknownTopicError) as error:
            logger.info("%s: the pass is given up: %s", plan.partition, error)
            discard_run(self._fs, plan)
            return False
        except SiltstoneError as error:
            self.figures.setdefault(plan.partition, PassFigures()).failure_count += 1
            self._failed(plan.partition, error)
            discard_run(self._fs, plan)
            return False
        index_after_pass(self._fs, log, plan, result)
        self._note_pass(plan, result)
        return True

    def _note_pass(self, plan: CleaningPlan, result: PassResult) -> None:
        self.uncleanable.pop(plan.partition, None)
        figures = self.figures.setdefault(plan.partition, PassFigures())
        figures.note(plan, result, self._clock.now_ms())
        release_compiler()  # Its first key index has brought it in.

    def _failed(self, partition: TopicPartition, error: SiltstoneError) -> None:
        before = self.uncleanable.get(partition)
        count = 1 if before is None else before.failure_count + 1
        backoff_ms = max(self._config().log_cleaner_backoff_ms, 1)
        wait_ms = min(backoff_ms * 2 ** min(count, 20), _LONGEST_WAIT_MS)
        self.uncleanable[partition] = Uncleanable(str(error), count, self._clock.now_ms() + wait_ms)
        logger.warning(
            "%s cannot be cleaned, and is tried again in %d s: %s",
            partition,
            wait_ms // 1000,
            error,
        )


def _state_of(log: PartitionLog) -> object:
    """Return what decides, besides time, whether a pass is due."""
    active_base = log.segments.active.base_offset
    return (
        log.config,
        log.log_start_offset,
        active_base,
        min(log.last_stable_offset, active_base),
    )
