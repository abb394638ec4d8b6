"""Disks on which attempts fail or hang; workers get this module by value: they cannot import it."""

import time
from pathlib import Path

from pyspark import TaskContext

from siltstone.cleaner.storage import DirectoryStorage
from siltstone.log.filesystem import File


class FlakyStorage(DirectoryStorage):
    """Fails the first `failures` attempts at every task, after half of a write."""

    def __init__(self, directory: Path, failures: int) -> None:
        super().__init__(directory)
        self._failures = failures

    def write(self, file: File, position: int, data: bytes | memoryview) -> None:
        """Write bytes, or half of them."""
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() < self._failures:
            super().write(file, position, memoryview(data)[: len(data) // 2])
            raise RuntimeError(f"injected into attempt {task.attemptNumber()}")
        super().write(file, position, data)


def open_flaky_at(broken: Path, directory: Path) -> FlakyStorage:
    """Open a storage that fails every attempt in one directory, and none in others."""
    return FlakyStorage(directory, failures=99 if directory == broken else 0)


class HangingStorage(DirectoryStorage):
    """Hangs in every first attempt, after half of a write, until somebody kills it."""

    def write(self, file: File, position: int, data: bytes | memoryview) -> None:
        """Write bytes, or half of them."""
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0:
            super().write(file, position, memoryview(data)[: len(data) // 2])
            while True:
                time.sleep(0.1)
        super().write(file, position, data)


def open_hanging_at(hanging: Path, directory: Path) -> DirectoryStorage:
    """Open a storage that hangs in one directory, and works in others."""
    return HangingStorage(directory) if directory == hanging else DirectoryStorage(directory)


def open_elsewhere(elsewhere: Path, directory: Path) -> DirectoryStorage:
    """Open another directory than the one that was asked for."""
    return DirectoryStorage(elsewhere)
