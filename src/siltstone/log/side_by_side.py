"""Do the same to many partitions at a time: a disk makes eight things durable as fast as one."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_THREADS: Final = 8


def for_each(items: Iterable[T], work: Callable[[T], None]) -> None:
    """Do `work` with each item, in order where there are few; raise the first error."""
    rest = list(items)
    if len(rest) <= _THREADS:
        for item in rest:
            work(item)
        return
    with ThreadPoolExecutor(_THREADS, "side-by-side") as pool:
        futures = [pool.submit(work, item) for item in rest]
    for future in futures:
        future.result()
