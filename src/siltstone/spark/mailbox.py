"""What tasks tell the driver while a job still runs: a Spark accumulator that delivers at once.

Spark adds what a task has accumulated when the task ends, and for the tasks of a job's last stage
exactly once, however many attempts there were. So a letter from such a task is its result.
"""

import itertools
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from pyspark import Accumulator, AccumulatorParam, SparkContext

Letter: TypeAlias = tuple[int, Any]  # the number of the box that it is for, and what it says
Letters: TypeAlias = tuple[Letter, ...]


class Mailbox:
    """Sorts the letters of all jobs of one context into boxes."""

    def __init__(self, context: SparkContext) -> None:
        self._numbers = itertools.count()
        self._boxes: dict[int, queue.SimpleQueue[Any]] = {}
        # One for all jobs: Spark never lets go of an accumulator.
        self._accumulator = context.accumulator((), _Receiving(self._deliver))

    @contextmanager
    def open_box(self) -> "Iterator[Box]":
        """Give out a box; letters that come after the end are thrown away."""
        number = next(self._numbers)
        letters = self._boxes[number] = queue.SimpleQueue()
        try:
            yield Box(letters, Address(number, self._accumulator))
        finally:
            del self._boxes[number]

    def _deliver(self, letter: Letter) -> None:
        number, content = letter
        box = self._boxes.get(number)
        if box is not None:
            box.put(content)


class Address:
    """Where a task sends its letters; travels with the task."""

    def __init__(self, number: int, accumulator: Accumulator[Letters]) -> None:
        self._number = number
        self._accumulator = accumulator

    def send(self, content: Any) -> None:
        """Send a letter; it leaves when the task has ended well."""
        self._accumulator.add(((self._number, content),))


class Box:
    """The letters of one job, in the order in which its tasks ended."""

    def __init__(self, letters: "queue.SimpleQueue[Any]", address: Address) -> None:
        self.letters = letters
        self.address = address


class _Sending(AccumulatorParam[Letters]):
    """The end that is with a task: letters pile up until the task has ended."""

    def zero(self, value: Letters) -> Letters:
        return ()

    def addInPlace(self, value1: Letters, value2: Letters) -> Letters:  # noqa: N802
        return value1 + value2


class _Receiving(_Sending):
    """The end that is with the driver: letters are delivered, none is kept."""

    def __init__(self, deliver: Callable[[Letter], None]) -> None:
        self._deliver = deliver

    def addInPlace(self, value1: Letters, value2: Letters) -> Letters:  # noqa: N802
        for letter in value2:
            self._deliver(letter)
        return ()

    def __reduce__(self) -> tuple[type[_Sending], tuple[()]]:
        return _Sending, ()
