"""Run a Spark action beside the caller, who takes in meanwhile what its tasks send."""

import itertools
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

from pyspark import SparkContext

from siltstone.errors import EngineError
from siltstone.spark.failures import SPARK_FAILURES, explain
from siltstone.spark.mailbox import Box

_WAIT_SECONDS: Final = 0.2

_group_numbers: Final = itertools.count()


class _End:
    """Comes after the last letter of a job."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def run_job(
    context: SparkContext,
    action: Callable[[], object],
    box: Box,
    on_wait: Callable[[], None] | None = None,
) -> Generator[Any, None, None]:
    """Run an action and yield the letters of its tasks as they come.

    Raise EngineError if Spark gives up. Whoever stops listening cancels the job. While there is
    nothing to yield, `on_wait` is called now and then.
    """
    group = f"siltstone-{next(_group_numbers)}"

    def run() -> None:
        try:
            context.setJobGroup(group, "clean", interruptOnCancel=True)
            action()
        except BaseException as error:  # noqa: BLE001 - raised where the letters are read
            box.letters.put(_End(error))
        else:
            box.letters.put(_End(None))

    thread = threading.Thread(target=run, name=group, daemon=True)
    thread.start()
    try:
        while not isinstance(letter := _wait_for_letter(box, on_wait), _End):
            yield letter
    except BaseException:
        context.cancelJobGroup(group)
        raise
    thread.join()
    if isinstance(letter.error, SPARK_FAILURES):
        raise EngineError(f"Spark gave up: {explain(letter.error)}") from letter.error
    if letter.error is not None:
        raise letter.error


def _wait_for_letter(box: Box, on_wait: Callable[[], None] | None) -> Any:
    while True:
        try:
            return box.letters.get(timeout=None if on_wait is None else _WAIT_SECONDS)
        except queue.Empty:
            assert on_wait is not None
            on_wait()
