"""How many requests of each API were served, and how long they took."""

import time
from typing import Final

# Upper bounds of the latency classes, in seconds.
BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class ApiMetrics:
    """The figures of one API; plain numbers, for they change with every request."""

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS) + 1)


class RequestMetrics:
    """The figures of all APIs, by their key."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}

    def begin(self) -> float:
        """Return when a request has come."""
        return time.monotonic()

    def end(self, api_key: int, started: float) -> None:
        """Count a request that was answered."""
        metrics = self.apis.get(api_key)
        if metrics is None:
            metrics = self.apis[api_key] = ApiMetrics()
        seconds = time.monotonic() - started
        metrics.count += 1
        metrics.seconds += seconds
        index = 0
        for bound in BUCKETS:
            if seconds <= bound:
                break
            index += 1
        metrics.buckets[index] += 1
