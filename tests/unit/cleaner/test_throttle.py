"""The rate of a throttle, by hand."""

import pytest

from siltstone.cleaner.throttle import Throttle
from tests.support.clock import ManualClock


class Reader:
    """Reads, waits as long as it is told, and tells how long it took."""

    def __init__(self, bytes_per_second: float) -> None:
        self._throttle = Throttle(bytes_per_second)
        self.clock = ManualClock()

    def read(self, byte_count: int, took_ms: int = 0) -> int:
        self.clock.advance_ms(took_ms)
        wait_ms = round(1_000 * self._throttle.take(byte_count, self.clock.now_ms() / 1_000))
        self.clock.advance_ms(wait_ms)
        return wait_ms


def test_a_reader_that_is_too_fast_waits() -> None:
    reader = Reader(bytes_per_second=1_000)
    reader.read(300)  # what may be made up for

    assert reader.read(500) == 500
    assert reader.read(500) == 500


def test_a_reader_that_is_slow_enough_never_waits() -> None:
    reader = Reader(bytes_per_second=1_000)

    assert [reader.read(500, took_ms=500) for _ in range(10)] == [0] * 10


def test_the_rate_holds_on_average() -> None:
    reader = Reader(bytes_per_second=1_000)
    start_ms = reader.clock.now_ms()

    for took_ms in (0, 300, 0, 100, 0) * 20:
        reader.read(400, took_ms)

    assert reader.clock.now_ms() - start_ms == pytest.approx(40_000, rel=0.01)


def test_time_that_was_not_used_is_not_saved_up_for_long() -> None:
    reader = Reader(bytes_per_second=1_000)
    reader.read(1_000)
    reader.clock.advance_ms(3_600_000)

    assert reader.read(100) == 0
    assert reader.read(300) == 100
    assert reader.read(300) == 300
