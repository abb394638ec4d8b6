"""Files and directories that are out of use but stay on disk for a while.

A reader that got hold of one may still need it; and whoever deleted by mistake can copy it back.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from siltstone.errors import LogDirOfflineError
from siltstone.log.filesystem import FileSystem


class DelayedDeletion:
    """Paths that wait for their removal; forgotten with the process, loading a log removes them."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._changing = threading.Lock()  # A timer deletes beside those who add.
        self._waiting: list[tuple[int, tuple[Path, ...]]] = []

    def add(self, paths: Sequence[Path], due_ms: int) -> None:
        """Delete paths once the clock has reached `due_ms`."""
        with self._changing:
            self._waiting.append((due_ms, tuple(paths)))

    def delete_due(self, now_ms: int) -> int:
        """Delete what is due and return how many paths that were.

        Raise LogDirOfflineError for the first that the disk refused, when all had their turn.
        """
        with self._changing:
            due = [path for due_ms, paths in self._waiting if due_ms <= now_ms for path in paths]
            self._waiting = [entry for entry in self._waiting if entry[0] > now_ms]
        failure = None
        for path in due:
            try:
                if path.is_dir():
                    self._fs.remove_dir(path)
                else:
                    self._fs.unlink(path)
            except LogDirOfflineError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return len(due)
