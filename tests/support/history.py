"""What clients wrote and read, and whether one log can explain it.

In the spirit of Elle and Jepsen's Kafka checks, and small: every value is written once, so that a
read names the write it came from. A write's outcome is what its client was told. Nobody was told
of an *unknown* one, as when the client was killed: it may be in the log or not, but only once.

Compaction takes a record away when a later one has its key. So a value need not be there, nor in a
consumer's polls, if a later committed value of its key is; what is in the log at the end was never
superseded, and every consumer that passed it must have seen it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple


class Outcome(Enum):
    """What the client was told about the transaction of a write."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()


class Write(NamedTuple):
    """A value that a client wrote, which nobody else ever writes."""

    partition: int
    key: bytes
    value: bytes
    outcome: Outcome


class Read(NamedTuple):
    """A record that a consumer of committed records got."""

    offset: int
    key: bytes
    value: bytes


class Kind(Enum):
    """What no log can explain."""

    LOST_WRITE = "a committed value is gone, and no later one has its key"
    DUPLICATE_WRITE = "a value is at two offsets"
    ABORTED_READ = "a value of an aborted transaction was read"
    UNWRITTEN_READ = "a value was read that nobody wrote there"
    CHANGED_READ = "an offset had two values"
    NON_MONOTONIC_POLL = "a consumer went back without being told to"
    SKIPPED_RECORD = "a consumer passed a record without seeing it, which compaction has left"


class Anomaly(NamedTuple):
    """One thing that must not be."""

    kind: Kind
    partition: int
    detail: str


@dataclass
class History:
    """All that happened to one topic."""

    writes: list[Write] = field(default_factory=list)
    # Per partition the runs of reads of single consumers; one that seeks begins a new run.
    polls: dict[int, list[Sequence[Read]]] = field(default_factory=dict)
    # Per partition what is in the log at the end, read in one go.
    contents: dict[int, Sequence[Read]] = field(default_factory=dict)

    def check(self) -> list[Anomaly]:
        """Return everything that no log can explain."""
        partitions = {w.partition for w in self.writes} | {*self.polls} | {*self.contents}
        return [
            Anomaly(kind, number, detail)
            for number in sorted(partitions)
            for kind, detail in self._check_partition(number)
        ]

    def _check_partition(self, number: int) -> Iterator[tuple[Kind, str]]:
        writes = {w.value: w for w in self.writes if w.partition == number}
        contents = self.contents.get(number, ())
        runs = [*self.polls.get(number, ()), contents]
        for run in runs:
            yield from _check_order(run)
        for run in runs[:-1]:
            yield from _check_gaps(run, contents)
        yield from _check_values(writes, runs)
        yield from _check_losses(writes, contents, runs)


def _check_order(run: Sequence[Read]) -> Iterator[tuple[Kind, str]]:
    for before, after in pairwise(run):
        if after.offset <= before.offset:
            yield Kind.NON_MONOTONIC_POLL, f"offset {after.offset} after {before.offset}"


def _check_gaps(run: Sequence[Read], contents: Sequence[Read]) -> Iterator[tuple[Kind, str]]:
    if not run:
        return
    seen = {read.offset for read in run}
    for read in contents:
        if min(seen) <= read.offset <= max(seen) and read.offset not in seen:
            yield Kind.SKIPPED_RECORD, f"offset {read.offset}, {read.value!r}"


def _check_values(
    writes: Mapping[bytes, Write], runs: Iterable[Sequence[Read]]
) -> Iterator[tuple[Kind, str]]:
    by_offset: dict[int, bytes] = {}
    by_value: dict[bytes, int] = {}
    for read in (read for run in runs for read in run):
        if by_offset.setdefault(read.offset, read.value) != read.value:
            yield Kind.CHANGED_READ, f"{read.offset}: {by_offset[read.offset]!r}, {read.value!r}"
            continue
        if by_value.setdefault(read.value, read.offset) != read.offset:
            yield Kind.DUPLICATE_WRITE, f"{read.value!r}: {by_value[read.value]}, {read.offset}"
        write = writes.get(read.value)
        if write is None or write.key != read.key:
            yield Kind.UNWRITTEN_READ, f"{read.value!r} at {read.offset}"
        elif write.outcome is Outcome.ABORTED:
            yield Kind.ABORTED_READ, f"{read.value!r} at {read.offset}"


def _check_losses(
    writes: Mapping[bytes, Write], contents: Sequence[Read], runs: Iterable[Sequence[Read]]
) -> Iterator[tuple[Kind, str]]:
    present = {read.value for read in contents}
    last = {read.key: read.offset for read in contents}
    offsets = {read.value: read.offset for run in runs for read in run}
    for write in writes.values():
        if write.outcome is not Outcome.COMMITTED or write.value in present:
            continue
        # Where it was, if anybody saw it; else anything of its key may have come after it.
        was_at = offsets.get(write.value, -1)
        if last.get(write.key, -1) <= was_at:
            yield Kind.LOST_WRITE, repr(write.value)
