"""A clock that stands still until a test moves it."""

START_MS = 1_700_000_000_000


class ManualClock:
    """Tells the time that the test has set."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance_ms(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
