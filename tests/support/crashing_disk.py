"""A disk that stops the world or refuses, at the step that a test chooses.

`CrashingFileSystem` counts every change of the disk. A first run without a fault tells the steps,
so that none is forgotten; then the test runs once for each of them:

    for crash in every_crash(steps):
        disk.arm(crash)
        with pytest.raises(SimulatedCrash):
            act()
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import TypeVar
from unittest import mock

from siltstone.log import filenames
from siltstone.log.filesystem import File, FileSystem
from siltstone.records.layout import HEADER_SIZE, LOG_OVERHEAD

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process has ended here."""


class StepKind(StrEnum):
    """What a step does to the disk."""

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    FSYNC = "fsync"
    FSYNC_DIR = "fsync_dir"
    RENAME = "rename"
    UNLINK = "unlink"
    MKDIR = "mkdir"
    RMDIR = "rmdir"


# The system call behind each kind of step: what fails when a disk refuses.
_SYSTEM_CALLS = {
    StepKind.CREATE: "open",
    StepKind.WRITE: "pwritev",
    StepKind.TRUNCATE: "ftruncate",
    StepKind.FSYNC: "fsync",
    StepKind.FSYNC_DIR: "fsync",
    StepKind.RENAME: "rename",
    StepKind.UNLINK: "unlink",
    StepKind.MKDIR: "mkdir",
    StepKind.RMDIR: "rmdir",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the disk, as it was counted."""

    kind: StepKind
    name: str
    size_bytes: int = 0  # of a write


class When(Enum):
    """On which side of its step a crash falls."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Crash:
    """The process ends at a step; `kept_bytes` of a write are in the file, if not None."""

    step: int
    when: When = When.BEFORE
    kept_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The disk refuses a step with an error of the system; if it `lasts`, all later ones as well.

    The later ones only in the same log directory: another one is another disk.
    """

    step: int
    error_number: int
    kept_bytes: int = 0  # of a write: a full disk takes what still fits
    lasts: bool = False


def every_crash(steps: Sequence[Step], *, within_writes: bool = True) -> Iterator[Crash]:
    """Yield a crash before each step, within each write, and after the last step.

    After one step is before the next: nothing on disk tells the two apart.
    """
    for number, step in enumerate(steps):
        yield Crash(number)
        if within_writes:
            for kept_bytes in _cut_points(step):
                yield Crash(number, kept_bytes=kept_bytes)
    if steps:
        yield Crash(len(steps) - 1, When.AFTER)


def every_refusal(
    steps: Sequence[Step], error_number: int, *, lasts: bool = False
) -> Iterator[Refusal]:
    """Yield a refusal of each step, and of the second half of each write."""
    for number, step in enumerate(steps):
        yield Refusal(number, error_number, lasts=lasts)
        if step.size_bytes > 1:
            yield Refusal(number, error_number, kept_bytes=step.size_bytes // 2, lasts=lasts)


def _cut_points(step: Step) -> list[int]:
    """Choose where a write is cut: one byte, almost all, and around the borders of a batch."""
    points = {1, step.size_bytes // 2, step.size_bytes - 1}
    if filenames.LOG in step.name:
        points |= {LOG_OVERHEAD - 1, LOG_OVERHEAD, 30, HEADER_SIZE - 1, HEADER_SIZE}
    return sorted(point for point in points if 0 < point < step.size_bytes)


class CrashingFileSystem(FileSystem):
    """The real disk, with its changes counted in `steps`, and a fault at one of them."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.has_crashed = False
        self._fault: Crash | Refusal | None = None
        self._refused: Refusal | None = None  # while a step is being refused
        self._dead: str | None = None  # the log directory that refuses for good

    def arm(self, fault: Crash | Refusal | None = None) -> None:
        """Count from zero again, with this fault to come."""
        self.steps = []
        self._fault = fault
        self._dead = None

    @property
    def refused_in(self) -> str | None:
        """The log directory, by its name, in which a step was refused."""
        return self._dead

    def restart(self) -> None:
        """Let a new process at the disk, which is sound from now on."""
        self.has_crashed = False
        self.arm()

    # What FileSystem promises, step by step

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        if create and not path.exists():
            return self._step(StepKind.CREATE, path, lambda: self._open(path, True, writable))
        return self._open(path, create, writable)

    def write(self, file: File, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        data = b"".join(buffers)

        def write(count: int = len(data)) -> None:
            self._write(file, position, data[:count])

        self._step(StepKind.WRITE, file.path, write, size_bytes=len(data), keep=write)

    def truncate(self, file: File, size_bytes: int) -> None:
        self._step(StepKind.TRUNCATE, file.path, lambda: self._truncate(file, size_bytes))

    def fsync(self, file: File) -> None:
        self._step(StepKind.FSYNC, file.path, lambda: self._fsync(file))

    def fsync_dir(self, path: Path) -> None:
        self._step(StepKind.FSYNC_DIR, path, lambda: self._fsync_dir(path))

    def rename(self, source: Path, target: Path) -> None:
        if not source.exists():
            raise FileNotFoundError(source)
        self._step(StepKind.RENAME, source, lambda: self._rename(source, target))

    def unlink(self, path: Path) -> None:
        if path.exists():
            self._step(StepKind.UNLINK, path, lambda: self._unlink(path))

    def mkdir(self, path: Path) -> None:
        if path.exists():
            return
        self.mkdir(path.parent)
        self._step(StepKind.MKDIR, path, lambda: self._mkdir(path))

    def remove_dir(self, path: Path) -> None:
        if not path.exists():
            return
        # Name by name, as the system does it: a crash may leave half a directory.
        for name in self.list_names(path):
            child = path / name
            if child.is_dir():
                self.remove_dir(child)
            else:
                self.unlink(child)
        self._step(StepKind.RMDIR, path, lambda: self._rmdir(path))

    # The steps themselves

    def _step(
        self,
        kind: StepKind,
        path: Path,
        act: Callable[[], T],
        *,
        size_bytes: int = 0,
        keep: Callable[[int], None] | None = None,
    ) -> T:
        if self.has_crashed:
            raise SimulatedCrash(f"{kind} of {path.name} by a process that has ended")
        number = len(self.steps)
        self.steps.append(Step(kind, path.name, size_bytes))
        fault = self._fault
        if isinstance(fault, Crash) and fault.step == number:
            if fault.kept_bytes is not None and keep is not None:
                keep(fault.kept_bytes)
            elif fault.when is When.AFTER:
                act()
            self.has_crashed = True
            raise SimulatedCrash(f"{fault} at {self.steps[-1]}")
        if isinstance(fault, Refusal):
            if number == fault.step:
                self._dead = self._log_dir(path)
                if fault.kept_bytes and keep is not None:
                    keep(fault.kept_bytes)
            if number == fault.step or (fault.lasts and self._log_dir(path) == self._dead):
                with self._refusing(kind, fault):
                    return act()
        return act()

    def _log_dir(self, path: Path) -> str:
        return path.anchor  # One disk for all.

    @contextlib.contextmanager
    def _refusing(self, kind: StepKind, refusal: Refusal) -> Iterator[None]:
        error = OSError(refusal.error_number, os.strerror(refusal.error_number))
        self._refused = refusal
        try:
            with mock.patch.object(os, _SYSTEM_CALLS[kind], side_effect=error):
                yield
        finally:
            self._refused = None

    def _open(self, path: Path, create: bool, writable: bool) -> File:
        return super().open(path, create=create, writable=writable)

    def _write(self, file: File, position: int, data: bytes) -> None:
        super().write(file, position, [data])

    def _truncate(self, file: File, size_bytes: int) -> None:
        super().truncate(file, size_bytes)

    def _fsync(self, file: File) -> None:
        super().fsync(file)

    def _fsync_dir(self, path: Path) -> None:
        super().fsync_dir(path)

    def _rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)

    def _unlink(self, path: Path) -> None:
        super().unlink(path)

    def _mkdir(self, path: Path) -> None:
        super().mkdir(path)

    def _rmdir(self, path: Path) -> None:
        super().remove_dir(path)
