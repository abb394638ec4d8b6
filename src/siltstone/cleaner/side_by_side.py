"""The same work on many items, by several threads, as if by one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Threads:
    """Does work in so many threads; with one, in that of the caller.

    Kernels, codecs and reads let go of Python's lock, and they are what takes time.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count, "pass") if count > 1 else None

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
        coming: deque[Future[_Out]] = deque()
        try:
            yield from self._take_ahead(work, items, coming)
            while coming:
                yield coming.popleft().result()
        finally:
            # Nobody may go on with what the caller has given up.
            for future in coming:
                future.cancel() or future.exception()

    def _take_ahead(
        self, work: Callable[[_In], _Out], items: Iterable[_In], coming: deque[Future[_Out]]
    ) -> Iterator[_Out]:
        assert self._pool is not None
        iterator = iter(items)
        while True:
            try:
                item = next(iterator)
            except StopIteration:
                return
            except Exception:
                # What is wrong with an item before this one comes first.
                while coming:
                    yield coming.popleft().result()
                raise
            coming.append(self._pool.submit(work, item))
            if len(coming) > self._count:
                yield coming.popleft().result()
