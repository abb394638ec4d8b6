"""Carries out plans on Spark: a task each, many side by side in one job; a large one in stages.

Tasks write new files under names of their attempt, next to the segments they were made from. When
a job is over, the files of the attempts whose outcome counts are named in the results; all others
of the pass are deleted here.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing

from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.storage import DirectoryStorage
from siltstone.errors import EngineError, SiltstoneError
from siltstone.log.filesystem import FileSystem
from siltstone.spark.forms import Stages, is_staged, slice_size
from siltstone.spark.jobs import run_job
from siltstone.spark.leftovers import Leftovers
from siltstone.spark.session import DEFAULT_MASTER, Session
from siltstone.spark.staged import StagedRun
from siltstone.spark.tasks import FusedTask, OpenStorage


class SparkEngine:
    """Carries out plans as Spark jobs; Spark starts with the first of them and stays.

    `conf` are settings of Spark, over the engine's own; a `session` that is given is used in the
    place of one with these. The workers must see the partition directories under the same paths
    as the driver.
    """

    def __init__(
        self,
        master: str = DEFAULT_MASTER,
        conf: Mapping[str, str] | None = None,
        *,
        stages: Stages = Stages.AUTO,
        slice_bytes: int | None = None,
        open_storage: OpenStorage = DirectoryStorage,
        session: Session | None = None,
    ) -> None:
        self._session = session or Session(master, conf or {})
        self._stages = stages
        self._slice_bytes = slice_bytes
        self._open_storage = open_storage
        self._leftovers = Leftovers(FileSystem())

    def start(self) -> None:
        """Start Spark now rather than with the first plan."""
        self._session.start()

    def close(self) -> None:
        """Stop Spark."""
        self._session.close()
        self._leftovers.sweep_again()

    def run(self, plan: CleaningPlan) -> PassResult:
        """Write the cleaned files that the plan asks for; leave the live log alone."""
        (outcome,) = self.run_all([plan])
        return outcome.get()

    def run_all(self, plans: Sequence[CleaningPlan]) -> Generator[PassOutcome, None, None]:
        """Carry out plans of different partitions side by side; yield each as soon as it ended.

        An error of one plan is its outcome, and stops no other.
        """
        self._leftovers.sweep_again()
        unfinished = {plan.pass_id: plan for plan in plans}
        try:
            with closing(self._run_all(plans)) as outcomes:
                for outcome in outcomes:
                    del unfinished[outcome.plan.pass_id]
                    self._leftovers.sweep(outcome.plan, outcome.result)
                    yield outcome
        finally:
            # The caller has had enough, or Ctrl-C was pressed.
            for plan in unfinished.values():
                self._leftovers.sweep(plan)

    def _run_all(self, plans: Sequence[CleaningPlan]) -> Generator[PassOutcome, None, None]:
        if not plans:
            return
        try:
            context, mailbox = self._session.start()
        except EngineError as error:
            yield from (PassOutcome(plan, error=error) for plan in plans)
            return
        sizes = [plan.source_bytes() for plan in plans]
        core_count = context.defaultParallelism
        staged = [
            plan
            for plan, size in zip(plans, sizes, strict=True)
            if is_staged(size, sizes, core_count, self._stages)
        ]
        yield from self._run_fused([plan for plan in plans if plan not in staged])
        for plan in staged:
            slice_bytes = self._slice_bytes or slice_size(plan.source_bytes(), core_count)
            try:
                run = StagedRun(context, mailbox, plan, self._open_storage)
                outcome = PassOutcome(plan, run.run(slice_bytes))
            except SiltstoneError as error:
                outcome = PassOutcome(plan, error=error)
            yield outcome

    def _run_fused(self, plans: Sequence[CleaningPlan]) -> Generator[PassOutcome, None, None]:
        unfinished = {plan.pass_id: plan for plan in plans}
        try:
            with closing(self._run_job(plans)) as outcomes:
                for outcome in outcomes:
                    del unfinished[outcome.plan.pass_id]
                    yield outcome
        except EngineError as error:
            if len(plans) == 1:
                yield PassOutcome(plans[0], error=error)
                return
            # A job that fails takes all its tasks along and says not who is to blame.
            for plan in unfinished.values():
                yield from self._run_fused([plan])

    def _run_job(self, plans: Sequence[CleaningPlan]) -> Generator[PassOutcome, None, None]:
        context, mailbox = self._session.start()
        if plans:
            with mailbox.open_box() as box:
                task = FusedTask(box.address, self._open_storage)
                rdd = context.parallelize(plans, len(plans))
                yield from run_job(context, lambda: rdd.foreach(task), box)
