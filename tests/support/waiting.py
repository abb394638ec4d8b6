"""Wait for something that another process does."""

import time
from collections.abc import Callable
from typing import Final

_PATIENCE_SECONDS: Final = 120


def wait_until(is_so: Callable[[], bool]) -> None:
    """Ask until it is so; fail if it never is."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.02)
