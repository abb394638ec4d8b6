"""The same work on many items, by several threads, as if by one."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Threads:
    """Does work in so many threads, that of the caller among them.

    Kernels, codecs and reads let go of Python's lock, and they are what takes time.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count - 1, "pass") if count > 1 else None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, work: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
        """Yield what becomes of each item, in order, and the first error in its place.

        No more than a few items are taken ahead.
        """
        if self._pool is None:
            yield from map(work, items)
            return
        jobs: deque[_Job[_In, _Out]] = deque()
        iterator = iter(items)
        try:
            while True:
                try:
                    item = next(iterator)
                except StopIteration:
                    break
                except Exception:
                    # What is wrong with an item before this one comes first.
                    while jobs:
                        yield _finish_first(jobs)
                    raise
                jobs.append(_Job(work, item))
                self._pool.submit(jobs[-1].run)
                if len(jobs) > self._count:
                    yield _finish_first(jobs)
            while jobs:
                yield _finish_first(jobs)
        finally:
            # Nobody may go on with what the caller has given up.
            for job in jobs:
                job.give_up()


class _Job(Generic[_In, _Out]):
    """Work on one item, done by whoever comes first."""

    def __init__(self, work: Callable[[_In], _Out], item: _In) -> None:
        self._work = work
        self._item = item
        self._taken = threading.Lock()
        self._done = threading.Event()
        self._outcome: list[_Out] = []
        self._error: BaseException | None = None

    def run(self) -> bool:
        """Do the work, unless somebody else does; say which."""
        if not self._taken.acquire(blocking=False):
            return False
        try:
            self._outcome.append(self._work(self._item))
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is asked for
            self._error = error
        self._done.set()
        return True

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def get(self) -> _Out:
        """Wait for the work to be done, and return what came of it."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def give_up(self) -> None:
        """See to it that nobody works on it any more."""
        if not self._taken.acquire(blocking=False):
            self._done.wait()


def _finish_first(jobs: deque[_Job[_In, _Out]]) -> _Out:
    """Return what came of the first job; while another thread has it, do some of the others."""
    first = jobs[0]
    while not first.is_done and any(job.run() for job in jobs):
        pass
    outcome = first.get()
    jobs.popleft()
    return outcome
