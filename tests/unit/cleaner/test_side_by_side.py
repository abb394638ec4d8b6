"""The same work by several threads, as if by one."""

import threading
from collections.abc import Iterator

import pytest

from siltstone.cleaner.side_by_side import Threads


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[Threads]:
    threads = Threads(request.param)
    yield threads
    threads.close()


def test_results_come_in_the_order_of_the_items(threads: Threads) -> None:
    assert list(threads.map(lambda number: number * number, range(100))) == [
        number * number for number in range(100)
    ]


def test_two_threads_work_at_the_same_time() -> None:
    threads = Threads(2)
    meeting = threading.Barrier(2, timeout=120)

    assert sorted(threads.map(lambda _: meeting.wait(), range(2))) == [0, 1]
    threads.close()


def test_the_error_of_an_item_comes_after_the_results_before_it(threads: Threads) -> None:
    def work(number: int) -> int:
        if number >= 3:
            raise ValueError(number)
        return number

    found = threads.map(work, range(10))

    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(found)


def test_what_is_wrong_with_an_item_comes_before_the_end_of_the_items(threads: Threads) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more items")

    def work(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        list(threads.map(work, items()))


def test_items_are_taken_a_few_ahead_only(threads: Threads) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    found = threads.map(lambda number: number, items())
    next(found)

    assert len(taken) <= 6
    found.close()  # type: ignore[attr-defined]
