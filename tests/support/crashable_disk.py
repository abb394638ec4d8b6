"""A disk that may also lose power: it knows what was flushed.

When only the process ends, the files stay as it left them. When the power goes too,
`lose_unflushed_writes` makes of them what may be left then; see `unflushed`.
"""

import random
import shutil
import weakref
from pathlib import Path

from siltstone.log.filesystem import File
from tests.support.crashing_disk import CrashingFileSystem
from tests.support.unflushed import (
    Content,
    Names,
    Naming,
    Resize,
    Survivors,
    SurvivorsAtRandom,
    SurvivorsInOrder,
    Write,
    read_tree,
    write_tree,
)


class CrashableDisk(CrashingFileSystem):
    """A directory as a disk of its own, that may lose what was not flushed.

    What lies there when the disk is made counts as flushed. Nothing is really flushed, because the
    process that runs the tests goes on; that makes it fast.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self._top = read_tree(root)
        self._contents: weakref.WeakKeyDictionary[File, Content] = weakref.WeakKeyDictionary()
        self._count = 0

    def lose_unflushed_writes(self, seed: int) -> None:
        """End all processes and cut the power; `seed` decides what is left of unflushed changes.

        0: nothing. Odd: all up to some moment. Even: any of them.
        """
        chance = random.Random(seed)
        if seed == 0:
            survivors: Survivors = Survivors(chance)
        elif seed % 2:
            survivors = SurvivorsInOrder(chance, chance.randint(0, self._count))
        else:
            survivors = SurvivorsAtRandom(chance)
        survivors.settle(self._top)
        self._write_tree()
        self.restart()

    def flush_everything(self) -> None:
        """Count all that lies on the disk now as flushed, whoever has written it."""
        self._top = read_tree(self.root)
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
        write_tree(self.root, self._top)
        self._contents = weakref.WeakKeyDictionary()

    def _directory(self, path: Path) -> Names:
        node = self._top
        for part in path.relative_to(self.root).parts:
            child = node.live.get(part)
            if not isinstance(child, Names):
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
            content = Content()
            directory.change(Naming(self._next_number(), content, come=path.name))
        elif content is None:  # Made behind the disk's back: as good as flushed.
            content = Content(path.read_bytes())
            directory.live[path.name] = directory.durable[path.name] = content
        assert isinstance(content, Content), path
        self._contents[file] = content
        return file

    def _write(self, file: File, position: int, data: bytes) -> None:
        super()._write(file, position, data)
        self._contents[file].pending.append(Write(self._next_number(), position, data))

    def _truncate(self, file: File, size_bytes: int) -> None:
        super()._truncate(file, size_bytes)
        self._contents[file].pending.append(Resize(self._next_number(), size_bytes))

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
        naming = Naming(self._next_number(), node, gone=source.name, come=target.name)
        directory.change(naming)

    def _unlink(self, path: Path) -> None:
        super()._unlink(path)
        self._forget(path)

    def _mkdir(self, path: Path) -> None:
        super()._mkdir(path)
        self._directory(path.parent).change(Naming(self._next_number(), Names(), come=path.name))

    def _rmdir(self, path: Path) -> None:
        super()._rmdir(path)
        self._forget(path)

    def _forget(self, path: Path) -> None:
        directory = self._directory(path.parent)
        node = directory.live.get(path.name)
        if node is not None:  # A lock file, for one, is made behind the disk's back.
            directory.change(Naming(self._next_number(), node, gone=path.name))
