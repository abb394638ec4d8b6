"""What runs in the Python workers of Spark: frozen values in, frozen values out.

An error that is ours concerns one partition and would come again: it is an outcome like any other.
Whatever else goes wrong may have to do with the machine, and is raised for Spark to try again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pyspark import TaskContext

from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.storage import PassStorage
from siltstone.errors import SiltstoneError
from siltstone.spark.mailbox import Address

OpenStorage: TypeAlias = Callable[[Path], PassStorage]


@dataclass(frozen=True, slots=True)
class FusedTask:
    """Carries out a whole plan, and sends what became of it."""

    address: Address
    open_storage: OpenStorage

    def __call__(self, plan: CleaningPlan) -> None:
        """Run in a worker."""
        try:
            result = LocalEngine(attempt_name(), self.open_storage).run(plan)
        except SiltstoneError as error:
            self.address.send(PassOutcome(plan, error=error))
        else:
            self.address.send(PassOutcome(plan, result))


def attempt_name() -> str:
    """Name this attempt at a task: no two of one context share it."""
    task = TaskContext.get()
    assert task is not None, "not inside of a Spark task"
    return f"{task.stageId()}.{task.attemptNumber()}.{task.taskAttemptId()}"
