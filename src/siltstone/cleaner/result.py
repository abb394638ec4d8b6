"""What an engine hands back: the files it wrote, and what became of every record."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file of a cleaned segment, under the name of the attempt that wrote it."""

    name: str
    extension: str
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class OutputSegment:
    """A cleaned segment: its log, both indexes, and the transaction index if there is one."""

    base_offset: int
    files: tuple[OutputFile, ...]


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of a segment group; no outputs and `is_unchanged`: the source stays as it is."""

    base_offsets: tuple[int, ...]
    outputs: tuple[OutputSegment, ...]
    is_unchanged: bool


@dataclass(slots=True)
class PassCounts:
    """What became of every record, by the first reason that fits."""

    records_read: int = 0
    records_kept: int = 0
    superseded: int = 0
    keyless_removed: int = 0
    aborted_removed: int = 0
    tombstones_kept: int = 0
    tombstones_removed: int = 0
    markers_kept: int = 0
    markers_removed: int = 0
    batches_emptied: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    earliest_horizon_ms: int | None = None  # of the tombstones and markers that wait

    def note_horizon(self, horizon_ms: int) -> None:
        """Remember when the next tombstone or marker is due."""
        if self.earliest_horizon_ms is None or horizon_ms < self.earliest_horizon_ms:
            self.earliest_horizon_ms = horizon_ms

    def as_dict(self) -> dict[str, int | None]:
        """Return the counts by name."""
        return asdict(self)

    @classmethod
    def total(cls, parts: Iterable["PassCounts"]) -> "PassCounts":
        """Add up the counts of several parts of a pass."""
        total = cls()
        for part in parts:
            for field in fields(cls):
                if field.name != "earliest_horizon_ms":
                    value = getattr(total, field.name) + getattr(part, field.name)
                    setattr(total, field.name, value)
            if part.earliest_horizon_ms is not None:
                total.note_horizon(part.earliest_horizon_ms)
        return total


@dataclass(frozen=True, slots=True)
class PassResult:
    """The outcome of a run: nothing of the live log has changed yet."""

    pass_id: str
    groups: tuple[GroupResult, ...]
    counts: PassCounts
    source_crcs: tuple[int, ...]  # of the whole log file of each source, in the plan's order
    seconds: float
    index_seconds: float = 0.0  # of these, until the last record of every key was known

    def unchanged_bases(self) -> set[int]:
        """Return the base offsets of the segments that stay as they are."""
        return {b for group in self.groups if group.is_unchanged for b in group.base_offsets}
