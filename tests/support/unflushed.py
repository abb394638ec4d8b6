"""What a disk would have after a loss of power.

    content of a file    as of its last fsync, and any part of what was written since: later writes
                         without earlier ones, half a write, or zeros where only the length arrived
    names in a directory as of its last fsync, and any of the changes since, whole or not at all

Real disks are kinder than that. What survives here survives on all of them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that came to a file; numbers tell the order of all changes of a disk."""

    number: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A new length of a file."""

    number: int
    size_bytes: int


@dataclass(eq=False, slots=True)
class Content:
    """A file: what an fsync has seen, and what happened since."""

    durable: bytes = b""
    pending: list[Write | Resize] = field(default_factory=list)

    def settle(self) -> None:
        self.durable = _apply(self.durable, self.pending)
        self.pending = []


@dataclass(frozen=True, slots=True)
class Naming:
    """A change of names: one comes, one goes, or both at once."""

    number: int
    node: "Content | Names"
    gone: str | None = None
    come: str | None = None


@dataclass(eq=False, slots=True)
class Names:
    """A directory: the names that an fsync has seen, what happened since, and the names now."""

    durable: "dict[str, Content | Names]" = field(default_factory=dict)
    pending: list[Naming] = field(default_factory=list)
    live: "dict[str, Content | Names]" = field(default_factory=dict)

    def change(self, naming: Naming) -> None:
        _rename(self.live, naming)
        self.pending.append(naming)

    def settle(self) -> None:
        self.durable = dict(self.live)
        self.pending = []


class Survivors:
    """Decides what is left of unflushed changes: nothing."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def settle(self, names: Names) -> None:
        left = dict(names.durable)
        for naming in names.pending:
            if self.has(naming):
                _rename(left, naming)
        names.durable, names.live, names.pending = dict(left), left, []
        for _, node in sorted(left.items()):
            if isinstance(node, Names):
                self.settle(node)
            else:
                node.pending = [kept for change in node.pending for kept in self.part_of(change)]
                node.settle()

    def has(self, naming: Naming) -> bool:
        return False

    def part_of(self, change: Write | Resize) -> list[Write | Resize]:
        return []

    def half_of(self, write: Write) -> Write:
        count = self.chance.randint(0, len(write.data))
        return Write(write.number, write.position, write.data[:count])


class SurvivorsInOrder(Survivors):
    """All changes up to a moment; of a write at that moment a part."""

    def __init__(self, chance: random.Random, last: int) -> None:
        super().__init__(chance)
        self.last = last

    def has(self, naming: Naming) -> bool:
        return naming.number <= self.last

    def part_of(self, change: Write | Resize) -> list[Write | Resize]:
        if change.number == self.last and isinstance(change, Write):
            return [self.half_of(change)]
        return [change] if change.number <= self.last else []


class SurvivorsAtRandom(Survivors):
    """Any of the changes, whatever came before them."""

    def has(self, naming: Naming) -> bool:
        return self.chance.random() < 0.5

    def part_of(self, change: Write | Resize) -> list[Write | Resize]:
        luck = self.chance.random()
        if luck < 0.5:
            return [change]
        if isinstance(change, Write):
            if luck < 0.65:
                return [self.half_of(change)]
            if luck < 0.75:  # The new length has arrived, the bytes have not.
                return [Write(change.number, change.position, bytes(len(change.data)))]
        return []


def _apply(content: bytes, changes: Sequence[Write | Resize]) -> bytes:
    if not changes:
        return content
    result = bytearray(content)
    for change in changes:
        if isinstance(change, Resize):
            del result[change.size_bytes :]
            result.extend(bytes(change.size_bytes - len(result)))
        else:
            result.extend(bytes(max(change.position - len(result), 0)))
            result[change.position : change.position + len(change.data)] = change.data
    return bytes(result)


def _rename(names: dict[str, Content | Names], naming: Naming) -> None:
    if naming.gone is not None and names.get(naming.gone) is naming.node:
        del names[naming.gone]
    if naming.come is not None:
        names[naming.come] = naming.node


def read_tree(path: Path) -> Names:
    names = Names()
    for child in path.iterdir():
        names.live[child.name] = read_tree(child) if child.is_dir() else Content(child.read_bytes())
    names.settle()
    return names


def write_tree(path: Path, names: Names) -> None:
    for name, node in names.live.items():
        if isinstance(node, Names):
            (path / name).mkdir()
            write_tree(path / name, node)
        else:
            (path / name).write_bytes(node.durable)
