"""Carries out plans on Spark: one task per partition, many partitions in one job.

Tasks write new files under names of their attempt, next to the segments they were made from. When
a job is over, the files of the attempts whose outcome counts are named in the results; all others
of the pass are deleted here.
"""

from collections.abc import Iterator, Mapping, Sequence

from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.storage import DirectoryStorage
from siltstone.errors import EngineError
from siltstone.log.filesystem import FileSystem
from siltstone.spark.jobs import run_job
from siltstone.spark.leftovers import Leftovers
from siltstone.spark.session import DEFAULT_MASTER, Session
from siltstone.spark.tasks import FusedTask, OpenStorage


class SparkEngine:
    """Carries out plans as Spark jobs; Spark starts with the first of them and stays.

    `conf` are settings of Spark, over the engine's own. The workers must see the partition
    directories under the same paths as the driver.
    """

    def __init__(
        self,
        master: str = DEFAULT_MASTER,
        conf: Mapping[str, str] | None = None,
        *,
        open_storage: OpenStorage = DirectoryStorage,
    ) -> None:
        self._session = Session(master, conf or {})
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

    def run_all(self, plans: Sequence[CleaningPlan]) -> Iterator[PassOutcome]:
        """Carry out plans of different partitions side by side; yield each as soon as it ended.

        An error of one plan is its outcome, and stops no other.
        """
        self._leftovers.sweep_again()
        unfinished = {plan.pass_id: plan for plan in plans}
        try:
            try:
                for outcome in self._run_fused(plans):
                    del unfinished[outcome.plan.pass_id]
                    yield self._swept(outcome)
            except EngineError as error:
                if len(plans) == 1:
                    yield self._swept(PassOutcome(plans[0], error=error))
                    return
                # A job that fails takes all its tasks along and says not who is to blame.
                for plan in list(unfinished.values()):
                    yield from self.run_all([plan])
                    del unfinished[plan.pass_id]
        finally:
            # The caller has had enough, or Ctrl-C was pressed.
            for plan in unfinished.values():
                self._leftovers.sweep(plan)

    def _run_fused(self, plans: Sequence[CleaningPlan]) -> Iterator[PassOutcome]:
        context, mailbox = self._session.start()
        with mailbox.open_box() as box:
            task = FusedTask(box.address, self._open_storage)
            rdd = context.parallelize(plans, max(len(plans), 1))
            yield from run_job(context, lambda: rdd.foreach(task), box)

    def _swept(self, outcome: PassOutcome) -> PassOutcome:
        self._leftovers.sweep(outcome.plan, outcome.result)
        return outcome
