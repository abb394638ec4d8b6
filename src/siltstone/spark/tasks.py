"""What runs in the Python workers of Spark: frozen values in, frozen values out.

An error that is ours concerns one partition and would come again: it is an outcome like any other.
Whatever else goes wrong may have to do with the machine, and is raised for Spark to try again.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import TaskContext

from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.errors import EngineError, SiltstoneError
from siltstone.spark.mailbox import Address
from siltstone.spark.task_io import TaskIo, TaskName


@dataclass(frozen=True, slots=True)
class FusedTask:
    """Carries out a whole plan, and sends what became of it."""

    io: TaskIo
    address: Address
    thread_count: int  # More than one, if there are idle cores for each of these tasks.

    def __call__(self, plan: CleaningPlan) -> None:
        """Run in a worker."""
        task = this_task()
        engine = LocalEngine(
            str(task), lambda _: self.io.open(plan, task), thread_count=self.thread_count
        )
        try:
            with absence_explained(plan):
                result = engine.run(plan)
        except SiltstoneError as error:
            self.address.send(PassOutcome(plan, error=error))
        else:
            self.address.send(PassOutcome(plan, result))


def this_task() -> TaskName:
    """Name this attempt at a task."""
    task = TaskContext.get()
    assert task is not None, "not inside of a Spark task"
    return TaskName(task.stageId(), task.partitionId(), task.taskAttemptId())


@contextmanager
def absence_explained(plan: CleaningPlan) -> Iterator[None]:
    """Turn the absence of a segment into an error that says what to do about it."""
    try:
        yield
    except FileNotFoundError as error:
        raise EngineError(
            f"{plan.partition}: there is no {error.filename} on {socket.gethostname()}: "
            "workers must see the log directory under the driver's path"
        ) from error
