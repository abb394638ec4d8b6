"""Time as a value that is handed in, so that tests and plans decide what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the wall-clock time."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
