"""Keep reading and writing at a rate: `log.cleaner.io.max.bytes.per.second`."""

from typing import Final

_SAVED_SECONDS: Final = 0.3
"""How much unused time may be made up for: Kafka looks at its rate this often. A run of bytes that
takes longer by itself may take as long as it should."""


class Throttle:
    """Says how long to wait after each run of bytes, so that the rate holds on average."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._due_seconds = 0.0  # when what was taken so far is paid for

    def take(self, byte_count: int, now_seconds: float) -> float:
        """Count bytes that were read or written, and return for how many seconds to wait now."""
        cost_seconds = byte_count / self._bytes_per_second
        start = max(self._due_seconds, now_seconds - max(_SAVED_SECONDS, cost_seconds))
        self._due_seconds = start + cost_seconds
        return max(self._due_seconds - now_seconds, 0.0)
