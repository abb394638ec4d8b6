"""A disk on which attempts fail; workers get this module by value, since they cannot import it."""

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
