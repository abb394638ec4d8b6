"""Processes that others have started, and whether they are still there."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_PATIENCE_SECONDS = 120


def iter_children(pid: int) -> Iterator[int]:
    """Go through the processes that a process has started, and those that they have."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # It has ended meanwhile.
        if parent == pid:
            yield (child := int(stat.parent.name))
            yield from iter_children(child)


def is_alive(pid: int) -> bool:
    """Say whether a process is there, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_ends(pids: Iterable[int]) -> None:
    """Wait until none of the processes is there any more."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for pid in pids:
        while is_alive(pid):
            assert time.monotonic() < deadline, f"process {pid} does not end"
            time.sleep(0.02)
