"""A disk that stops the world, refuses, or loses power, at the step that a test chooses.

`CrashingFileSystem` counts every change of the disk. A first run without a fault tells the steps,
so that none is forgotten; then the test runs once for each of them:

    for crash in every_crash(steps):
        disk.arm(crash)
        with pytest.raises(SimulatedCrash):
            act()

`CrashableDisk` knows besides what was flushed. When only the process ends, the files stay as it
left them. When the power goes too, `lose_unflushed_writes` makes of them what may be left then:

    content of a file    as of its last fsync, and any part of what was written since: later writes
                         without earlier ones, half a write, or zeros where only the length arrived
    names in a directory as of its last fsync, and any of the changes since, whole or not at all

Real disks are kinder than that. What survives here survives on all of them.
"""

import contextlib
import os
import random
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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


# What a disk would have after a loss of power


@dataclass(frozen=True, slots=True)
class _Write:
    number: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Resize:
    number: int
    size_bytes: int


@dataclass(eq=False, slots=True)
class _Content:
    """A file: what an fsync has seen, and what happened since."""

    durable: bytes = b""
    pending: list[_Write | _Resize] = field(default_factory=list)

    def settle(self) -> None:
        self.durable = _apply(self.durable, self.pending)
        self.pending = []


@dataclass(frozen=True, slots=True)
class _Naming:
    """A change of names: one comes, one goes, or both at once."""

    number: int
    node: "_Content | _Names"
    gone: str | None = None
    come: str | None = None


@dataclass(eq=False, slots=True)
class _Names:
    """A directory: the names that an fsync has seen, what happened since, and the names now."""

    durable: "dict[str, _Content | _Names]" = field(default_factory=dict)
    pending: list[_Naming] = field(default_factory=list)
    live: "dict[str, _Content | _Names]" = field(default_factory=dict)

    def change(self, naming: _Naming) -> None:
        _rename(self.live, naming)
        self.pending.append(naming)

    def settle(self) -> None:
        self.durable = dict(self.live)
        self.pending = []


class CrashableDisk(CrashingFileSystem):
    """A directory as a disk of its own, that may lose what was not flushed.

    What lies there when the disk is made counts as flushed. Nothing is really flushed, because the
    process that runs the tests goes on; that makes it fast.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self._top = _read_tree(root)
        self._contents: weakref.WeakKeyDictionary[File, _Content] = weakref.WeakKeyDictionary()
        self._count = 0

    def lose_unflushed_writes(self, seed: int) -> None:
        """End all processes and cut the power; `seed` decides what is left of unflushed changes.

        0: nothing. Odd: all up to some moment. Even: any of them.
        """
        chance = random.Random(seed)
        if seed == 0:
            survivors: _Survivors = _Survivors(chance)
        elif seed % 2:
            survivors = _SurvivorsInOrder(chance, chance.randint(0, self._count))
        else:
            survivors = _SurvivorsAtRandom(chance)
        survivors.settle(self._top)
        self._write_tree()
        self.restart()

    def flush_everything(self) -> None:
        """Count all that lies on the disk now as flushed, whoever has written it."""
        self._top = _read_tree(self.root)
        self._contents = weakref.WeakKeyDictionary()

    def _log_dir(self, path: Path) -> str:
        parts = path.relative_to(self.root).parts
        return parts[0] if parts else ""

    def _write_tree(self) -> None:
        for child in self.root.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
            else:
                child.unlink()
        _write_names(self.root, self._top)
        self._contents = weakref.WeakKeyDictionary()

    def _directory(self, path: Path) -> _Names:
        node = self._top
        for part in path.relative_to(self.root).parts:
            child = node.live.get(part)
            if not isinstance(child, _Names):
                raise AssertionError(f"{path} was not made through this disk")
            node = child
        return node

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    def _open(self, path: Path, create: bool, writable: bool) -> File:
        is_new = not path.exists()
        file = super()._open(path, create, writable)
        directory = self._directory(path.parent)
        content = directory.live.get(path.name)
        if content is None and is_new:
            content = _Content()
            directory.change(_Naming(self._next_number(), content, come=path.name))
        elif content is None:  # Made behind the disk's back: as good as flushed.
            content = _Content(path.read_bytes())
            directory.live[path.name] = directory.durable[path.name] = content
        assert isinstance(content, _Content), path
        self._contents[file] = content
        return file

    def _write(self, file: File, position: int, data: bytes) -> None:
        super()._write(file, position, data)
        self._contents[file].pending.append(_Write(self._next_number(), position, data))

    def _truncate(self, file: File, size_bytes: int) -> None:
        super()._truncate(file, size_bytes)
        self._contents[file].pending.append(_Resize(self._next_number(), size_bytes))

    def _fsync(self, file: File) -> None:
        if self._refused is not None:
            super()._fsync(file)
        self._contents[file].settle()

    def _fsync_dir(self, path: Path) -> None:
        if self._refused is not None:
            super()._fsync_dir(path)
        self._directory(path).settle()

    def _rename(self, source: Path, target: Path) -> None:
        super()._rename(source, target)
        assert source.parent == target.parent, "a rename within one directory is all that is known"
        directory = self._directory(source.parent)
        node = directory.live[source.name]
        naming = _Naming(self._next_number(), node, gone=source.name, come=target.name)
        directory.change(naming)

    def _unlink(self, path: Path) -> None:
        super()._unlink(path)
        self._forget(path)

    def _mkdir(self, path: Path) -> None:
        super()._mkdir(path)
        self._directory(path.parent).change(_Naming(self._next_number(), _Names(), come=path.name))

    def _rmdir(self, path: Path) -> None:
        super()._rmdir(path)
        self._forget(path)

    def _forget(self, path: Path) -> None:
        directory = self._directory(path.parent)
        node = directory.live.get(path.name)
        if node is not None:  # A lock file, for one, is made behind the disk's back.
            directory.change(_Naming(self._next_number(), node, gone=path.name))


class _Survivors:
    """Decides what is left of unflushed changes: nothing."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def settle(self, names: _Names) -> None:
        left = dict(names.durable)
        for naming in names.pending:
            if self.has(naming):
                _rename(left, naming)
        names.durable, names.live, names.pending = dict(left), left, []
        for _, node in sorted(left.items()):
            if isinstance(node, _Names):
                self.settle(node)
            else:
                node.pending = [kept for change in node.pending for kept in self.part_of(change)]
                node.settle()

    def has(self, naming: _Naming) -> bool:
        return False

    def part_of(self, change: _Write | _Resize) -> list[_Write | _Resize]:
        return []

    def half_of(self, write: _Write) -> _Write:
        count = self.chance.randint(0, len(write.data))
        return _Write(write.number, write.position, write.data[:count])


class _SurvivorsInOrder(_Survivors):
    """All changes up to a moment; of a write at that moment a part."""

    def __init__(self, chance: random.Random, last: int) -> None:
        super().__init__(chance)
        self.last = last

    def has(self, naming: _Naming) -> bool:
        return naming.number <= self.last

    def part_of(self, change: _Write | _Resize) -> list[_Write | _Resize]:
        if change.number == self.last and isinstance(change, _Write):
            return [self.half_of(change)]
        return [change] if change.number <= self.last else []


class _SurvivorsAtRandom(_Survivors):
    """Any of the changes, whatever came before them."""

    def has(self, naming: _Naming) -> bool:
        return self.chance.random() < 0.5

    def part_of(self, change: _Write | _Resize) -> list[_Write | _Resize]:
        luck = self.chance.random()
        if luck < 0.5:
            return [change]
        if isinstance(change, _Write):
            if luck < 0.65:
                return [self.half_of(change)]
            if luck < 0.75:  # The new length has arrived, the bytes have not.
                return [_Write(change.number, change.position, bytes(len(change.data)))]
        return []


def _apply(content: bytes, changes: Sequence[_Write | _Resize]) -> bytes:
    if not changes:
        return content
    result = bytearray(content)
    for change in changes:
        if isinstance(change, _Resize):
            del result[change.size_bytes :]
            result.extend(bytes(change.size_bytes - len(result)))
        else:
            result.extend(bytes(max(change.position - len(result), 0)))
            result[change.position : change.position + len(change.data)] = change.data
    return bytes(result)


def _rename(names: dict[str, _Content | _Names], naming: _Naming) -> None:
    if naming.gone is not None and names.get(naming.gone) is naming.node:
        del names[naming.gone]
    if naming.come is not None:
        names[naming.come] = naming.node


def _read_tree(path: Path) -> _Names:
    names = _Names()
    for child in path.iterdir():
        names.live[child.name] = (
            _read_tree(child) if child.is_dir() else _Content(child.read_bytes())
        )
    names.settle()
    return names


def _write_names(path: Path, names: _Names) -> None:
    for name, node in names.live.items():
        if isinstance(node, _Names):
            (path / name).mkdir()
            _write_names(path / name, node)
        else:
            (path / name).write_bytes(node.durable)
