"""Carries out plans on Spark: a task each, many side by side in one job; a large one in stages.

Tasks write new files under names of their attempt, next to the segments they were made from. When
a job is over, the files of the attempts whose outcome counts are named in the results; all others
of the pass are deleted here.
"""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final, TypeAlias

from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.progress import PassProgress
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.storage import DirectoryStorage
from siltstone.errors import CleaningAbortedError, EngineError, SiltstoneError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.spark.forms import Stages, is_staged, slice_size
from siltstone.spark.fused import run_fused
from siltstone.spark.leftovers import Leftovers
from siltstone.spark.session import DEFAULT_MASTER, Session, Started
from siltstone.spark.staged import StagedRun
from siltstone.spark.task_io import OpenStorage, TaskIo, read_progress

OnProgress: TypeAlias = Callable[[PassProgress], None]

_WATCHED_BYTES: Final = 64 << 20  # A smaller plan is over before anybody has looked.


class SparkEngine:
    """Carries out plans as Spark jobs; Spark starts with the first of them and stays.

    `conf` are settings of Spark, over the engine's own; a `session` that is given is used in the
    place of one with these. All tasks together read and write at most `io_bytes_per_second`. The
    workers must see the partition directories under the same paths as the driver.
    """

    def __init__(
        self,
        master: str = DEFAULT_MASTER,
        conf: Mapping[str, str] | None = None,
        *,
        stages: Stages = Stages.AUTO,
        slice_bytes: int | None = None,
        io_bytes_per_second: float | None = None,
        open_storage: OpenStorage = DirectoryStorage,
        session: Session | None = None,
    ) -> None:
        self._session = session or Session(master, conf or {})
        self._stages = stages
        self._slice_bytes = slice_bytes
        self._io_bytes_per_second = io_bytes_per_second
        self._open_storage = open_storage
        self._fs = FileSystem()
        self._leftovers = Leftovers(self._fs)

    def start(self) -> None:
        """Start Spark now rather than with the first plan; raise EngineError if it cannot."""
        self._session.start()

    def start_soon(self) -> None:
        """Start Spark and its workers while the caller goes on; a failure shows with the plans."""

        def start() -> None:
            with suppress(SiltstoneError):
                self._session.warm_up()

        threading.Thread(target=start, name="spark-start", daemon=True).start()

    def close(self) -> None:
        """Stop Spark."""
        self._session.close()
        self._leftovers.sweep_again()

    def run(self, plan: CleaningPlan) -> PassResult:
        """Write the cleaned files that the plan asks for; leave the live log alone."""
        (outcome,) = self.run_all([plan])
        return outcome.get()

    def run_all(
        self, plans: Sequence[CleaningPlan], on_progress: OnProgress | None = None
    ) -> Generator[PassOutcome, None, None]:
        """Carry out plans of different partitions side by side; yield each as soon as it ended.

        An error of one plan is its outcome, and stops no other. `on_progress` is told now and then
        how far the large ones are, as long as the caller waits for an outcome.
        """
        self._leftovers.sweep_again()
        unfinished = {plan.pass_id: plan for plan in plans}

        def watch() -> None:
            assert on_progress is not None
            for plan in unfinished.values():
                if plan.source_bytes() >= _WATCHED_BYTES or self._io_bytes_per_second is not None:
                    on_progress(read_progress(self._fs, plan))

        on_wait = None if on_progress is None else watch
        try:
            with closing(self._run_all(plans, on_wait)) as outcomes:
                for outcome in outcomes:
                    del unfinished[outcome.plan.pass_id]
                    self._leftovers.sweep(outcome.plan, outcome.result)
                    yield _blamed(outcome)
        finally:
            # The caller has had enough, or Ctrl-C was pressed.
            for plan in unfinished.values():
                self._leftovers.sweep(plan)

    def _run_all(
        self, plans: Sequence[CleaningPlan], on_wait: Callable[[], None] | None
    ) -> Generator[PassOutcome, None, None]:
        if not plans:
            return
        try:
            started = self._session.start()
        except EngineError as error:
            yield from (PassOutcome(plan, error=error) for plan in plans)
            return
        sizes = [plan.source_bytes() for plan in plans]
        core_count = started[0].defaultParallelism
        staged = [
            plan
            for plan, size in zip(plans, sizes, strict=True)
            if is_staged(size, sizes, core_count, self._stages)
        ]
        fused = [plan for plan in plans if plan not in staged]
        if fused:
            io = self._task_io(min(core_count, len(fused)), on_wait)
            yield from run_fused(*started, fused, io, on_wait)
        for plan in staged:
            yield self._run_staged(started, plan, on_wait)

    def _run_staged(
        self, started: Started, plan: CleaningPlan, on_wait: Callable[[], None] | None
    ) -> PassOutcome:
        core_count = started[0].defaultParallelism
        slice_bytes = self._slice_bytes or slice_size(plan.source_bytes(), core_count)
        try:
            run = StagedRun(*started, plan, self._task_io(core_count, on_wait), on_wait)
            return PassOutcome(plan, run.run(slice_bytes))
        except SiltstoneError as error:
            return PassOutcome(plan, error=error)

    def _task_io(self, running_count: int, on_wait: Callable[[], None] | None) -> TaskIo:
        """Give each of the tasks that run at a time an equal part of the rate."""
        rate = self._io_bytes_per_second
        return TaskIo(
            self._open_storage,
            None if rate is None else rate / running_count,
            reports_progress=on_wait is not None,
        )


def _blamed(outcome: PassOutcome) -> PassOutcome:
    """Say that the log changed, if that is why a worker did not find a segment."""
    plan = outcome.plan
    if isinstance(outcome.error, EngineError) and not all(
        filenames.log_path(plan.directory, source.base_offset).exists() for source in plan.sources
    ):
        return PassOutcome(plan, error=CleaningAbortedError(str(plan.partition)))
    return outcome
