"""How tasks read and write: where, how fast, and what they tell about it on the way.

While a task runs Spark hears nothing from it. So a task writes now and then into a small file next
to its outputs how far it is; whoever waits for the job may look. Such a file goes with the outputs
that nobody uses.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from siltstone.cleaner.metered_storage import MeteredStorage
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.progress import PassProgress
from siltstone.cleaner.storage import PassStorage
from siltstone.cleaner.throttle import Throttle
from siltstone.log import filenames
from siltstone.log.filesystem import File, FileSystem

OpenStorage: TypeAlias = Callable[[Path], PassStorage]

_EXTENSION: Final = ".progress"
_REPORT_SECONDS: Final = 0.2
_COUNT_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class TaskIo:
    """What every task of a job must know about its files; travels with it."""

    open_storage: OpenStorage
    bytes_per_second: float | None = None  # of this task alone
    reports_progress: bool = False

    def open(self, plan: CleaningPlan, task: "TaskName") -> PassStorage:
        """Open the place where a plan's segments are."""
        storage = self.open_storage(plan.directory)
        if self.bytes_per_second is None and not self.reports_progress:
            return storage
        return MeteredStorage(storage, _TaskMeter(self, storage, plan, task))


@dataclass(frozen=True, slots=True)
class TaskName:
    """One attempt at a task; no two of a context are alike."""

    stage: int
    partition: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.stage}.{self.partition}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "TaskName":
        """Read a name back."""
        stage, partition, attempt = map(int, text.split("."))
        return cls(stage, partition, attempt)


def read_progress(fs: FileSystem, plan: CleaningPlan) -> PassProgress:
    """Look how far the tasks of a plan say they are."""
    done: dict[tuple[int, int], int] = {}
    prefix, suffix = filenames.pass_file_name(plan.pass_id, "\0", 0, _EXTENSION).split("\0")
    for name in fs.list_names(plan.directory):
        if name.startswith(prefix) and name.endswith(suffix):
            task = TaskName.parse(name.removeprefix(prefix).removesuffix(suffix))
            count = int.from_bytes(fs.read_file(plan.directory / name) or b"", "little")
            # Of several attempts at one task, the one that is ahead counts.
            key = task.stage, task.partition
            done[key] = max(count, done.get(key, 0))
    total = 2 * plan.source_bytes()
    return PassProgress(plan.pass_id, plan.partition, min(sum(done.values()), total), total)


class _TaskMeter:
    """Waits where a task is too fast, and writes down how far it is."""

    def __init__(
        self, io: TaskIo, storage: PassStorage, plan: CleaningPlan, task: TaskName
    ) -> None:
        self._throttle = None if io.bytes_per_second is None else Throttle(io.bytes_per_second)
        self._lock = threading.Lock()
        self._storage = storage
        self._name = filenames.pass_file_name(plan.pass_id, str(task), 0, _EXTENSION)
        self._file: File | None = None
        self._reports = io.reports_progress
        self._read_bytes = 0
        self._reported_seconds = time.monotonic()

    def add_read(self, byte_count: int) -> None:
        self._read_bytes += byte_count
        now_seconds = time.monotonic()
        if self._reports and now_seconds - self._reported_seconds >= _REPORT_SECONDS:
            self._reported_seconds = now_seconds
            self._report()
        self._wait(byte_count)

    def add_written(self, byte_count: int) -> None:
        self._wait(byte_count)

    def _wait(self, byte_count: int) -> None:
        if self._throttle is not None:
            with self._lock:  # One thread may read ahead while another writes.
                seconds = self._throttle.take(byte_count, time.monotonic())
            time.sleep(seconds)

    def _report(self) -> None:
        if self._file is None:
            self._file = self._storage.create(self._name)
        count = self._read_bytes.to_bytes(_COUNT_BYTES, "little")
        self._storage.write(self._file, 0, count)
