"""Where requests wait that cannot be answered yet: until something happens, or until a deadline.

Everything here runs on the event loop. Who parks a request watches the places where the news may
come from; an append there, or the end of a topic, looks after all that watch it.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol


class Watched(Protocol):
    """A place that news come from."""

    watchers: "dict[Parked, None]"


class Parked:
    """A request that waits; `gathered_bytes` counts what has arrived for it."""

    __slots__ = ("_places", "_timer", "future", "gathered_bytes", "needs_bytes")

    def __init__(self, needs_bytes: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.needs_bytes = needs_bytes
        self.gathered_bytes = 0
        self._places: tuple[Watched, ...] = ()
        self._timer: asyncio.TimerHandle | None = None

    def park(self, places: Iterable[Watched], wait_seconds: float) -> None:
        """Begin to wait."""
        self._places = tuple(places)
        for place in self._places:
            place.watchers[self] = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_seconds, self.wake)

    def arrived(self, size_bytes: int) -> None:
        """Learn that bytes have come; wake up once they are enough."""
        self.gathered_bytes += size_bytes
        if self.gathered_bytes >= self.needs_bytes:
            self.wake()

    def wake(self) -> None:
        """End the waiting; whoever waits looks again."""
        if not self.future.done():
            self.future.set_result(None)

    def leave(self) -> None:
        """Let go of everything, also when the connection is gone."""
        for place in self._places:
            place.watchers.pop(self, None)
        self._places = ()
        if self._timer is not None:
            self._timer.cancel()


class Purgatory:
    """Counts who waits, so that it can be seen, and ends all waiting when the broker stops."""

    def __init__(self) -> None:
        self._parked: Final[dict[Parked, None]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._parked)

    async def wait(self, places: Iterable[Watched], needs_bytes: int, deadline: float) -> bool:
        """Wait for news from a place, and say whether there may be any before the deadline."""
        loop = asyncio.get_running_loop()
        left_seconds = deadline - loop.time()
        if left_seconds <= 0 or self._is_closed:
            return False
        parked = Parked(needs_bytes)
        self._parked[parked] = None
        try:
            parked.park(places, left_seconds)
            await parked.future
        finally:
            parked.leave()
            del self._parked[parked]
        return loop.time() < deadline and not self._is_closed

    def close(self) -> None:
        """Wake up everybody: nothing will come any more."""
        self._is_closed = True
        for parked in list(self._parked):
            parked.wake()
