"""Many plans carried out by one task each, in one job."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from pyspark import SparkContext

from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.errors import EngineError
from siltstone.spark.jobs import run_job
from siltstone.spark.mailbox import Mailbox
from siltstone.spark.task_io import TaskIo
from siltstone.spark.tasks import FusedTask


def run_fused(
    context: SparkContext,
    mailbox: Mailbox,
    plans: Sequence[CleaningPlan],
    io: TaskIo,
    on_wait: Callable[[], None] | None = None,
) -> Generator[PassOutcome, None, None]:
    """Carry out plans and yield each outcome as soon as it is there."""
    unfinished = {plan.pass_id: plan for plan in plans}
    try:
        with mailbox.open_box() as box:
            has_idle_cores = 2 * len(plans) <= context.defaultParallelism
            task = FusedTask(io, box.address, thread_count=1 + has_idle_cores)
            rdd = context.parallelize(plans, len(plans))
            with closing(run_job(context, lambda: rdd.foreach(task), box, on_wait)) as outcomes:
                for outcome in outcomes:
                    del unfinished[outcome.plan.pass_id]
                    yield outcome
    except EngineError as error:
        if len(plans) == 1:
            yield PassOutcome(plans[0], error=error)
            return
        # A job that fails takes all its tasks along and says not who is to blame.
        for plan in unfinished.values():
            yield from run_fused(context, mailbox, [plan], io, on_wait)
