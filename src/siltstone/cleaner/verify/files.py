"""The files of one partition as they lie on disk, and which log they make if somebody loads them.

A loader repairs what it can, and a verifier must not be shown the repaired log. So nothing is
opened here as a log: names are sorted by the same plan that a load follows, and the bytes are kept
as they are. What may grow is read before what it speaks of (an index before its log), so that the
directory of a running broker does not look inconsistent.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.cleaner.verify.findings import Findings
from siltstone.errors import CorruptBatchError, CorruptCheckpointError, DecodeError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import parse_offsets
from siltstone.log.filesystem import FileSystem
from siltstone.log.load_plan import plan_load
from siltstone.records.batch import read_header
from siltstone.records.layout import HEADER_SIZE

# Whose number a checkpoint that cannot be read gets.
_CHECKPOINTS: Final = (
    (filenames.CLEANER_OFFSETS, "I22"),
    (filenames.LOG_START_OFFSETS, "I5"),
    (filenames.RECOVERY_POINTS, "I5"),
    (filenames.HIGH_WATERMARKS, "I5"),
)


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """One segment: where its log is, and the bytes of its indexes; None for one without a file."""

    base_offset: int
    path: Path  # as it is named now: a swap that was interrupted leaves another suffix
    size_bytes: int
    offset_index: bytes | None
    time_index: bytes | None
    transaction_index: bytes | None
    end_offset: int | None  # where the next segment begins; None for the active one

    @property
    def is_active(self) -> bool:
        """Say whether appends go here."""
        return self.end_offset is None

    @property
    def name(self) -> str:
        """The name of the log file."""
        return self.path.name

    def name_of(self, extension: str) -> str:
        """Return the name of another file of the segment."""
        return filenames.SegmentFile(self.base_offset, extension).name


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """One partition directory, and what the files around it say about it."""

    partition: TopicPartition
    directory: Path
    was_clean: bool  # whether the owner stopped in good order; not while it runs
    segments: tuple[SegmentFiles, ...]
    snapshots: Mapping[int, bytes]
    manifests: Mapping[str, bytes]  # by name, oldest first
    leftovers: tuple[str, ...]
    checkpoints: Mapping[str, int]  # by the name of the file, where this partition is in it

    @property
    def first_base_offset(self) -> int:
        """The lowest offset that a file is named after."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def log_start_offset(self) -> int:
        """The lowest offset that a reader may ask for."""
        checkpoint = self.checkpoints.get(filenames.LOG_START_OFFSETS, 0)
        return max(checkpoint, self.first_base_offset)

    @property
    def cleaner_checkpoint(self) -> int | None:
        """The first dirty offset that the last pass left."""
        return self.checkpoints.get(filenames.CLEANER_OFFSETS)

    def signature(self) -> tuple[tuple[str, int], ...]:
        """Tell this state of the segments from one after a roll, a swap or a deletion."""
        return tuple((s.name, s.path.stat().st_ino) for s in self.segments)


def read_log_files(
    fs: FileSystem, log_dir: Path, partition: TopicPartition, findings: Findings
) -> LogFiles:
    """Read what is known of a partition; raise FileNotFoundError if its owner is changing it."""
    directory = log_dir / filenames.partition_dir_name(partition)
    was_clean = (log_dir / filenames.CLEAN_SHUTDOWN).exists()
    checkpoints = _read_checkpoints(fs, log_dir, partition, findings)
    names = fs.list_names(directory)

    def find_next_offset(base_offset: int) -> int:
        return _find_next_offset(fs, filenames.log_path(directory, base_offset, filenames.SWAP))

    plan = plan_load(names, find_next_offset)
    sources = {target: source for source, target in plan.renames}

    def read(name: str) -> bytes | None:
        return fs.read_file(directory / sources.get(name, name)) if name in plan.remaining else None

    bases = [base_offset for base_offset, _ in plan.segments]
    return LogFiles(
        partition=partition,
        directory=directory,
        was_clean=was_clean,
        manifests={
            name: fs.read_file(directory / name) or b""
            for name in names
            if filenames.is_manifest(name)
        },
        snapshots={
            file.base_offset: read(name) or b""
            for name in plan.remaining
            if (file := filenames.parse_segment_file(name)) is not None
            and file.extension == filenames.SNAPSHOT
        },
        segments=tuple(
            _read_segment(directory, base_offset, suffix, following, read)
            for (base_offset, suffix), following in itertools.zip_longest(plan.segments, bases[1:])
        ),
        leftovers=tuple(name for name in names if _is_leftover(name)),
        checkpoints=checkpoints,
    )


def _read_segment(
    directory: Path,
    base_offset: int,
    suffix: str,
    end_offset: int | None,
    read: Callable[[str], bytes | None],
) -> SegmentFiles:
    def index(extension: str) -> bytes | None:
        return read(filenames.SegmentFile(base_offset, extension).name)

    indexes = (
        index(filenames.OFFSET_INDEX),
        index(filenames.TIME_INDEX),
        index(filenames.TRANSACTION_INDEX),
    )
    path = filenames.log_path(directory, base_offset, suffix)
    return SegmentFiles(base_offset, path, path.stat().st_size, *indexes, end_offset)


def _read_checkpoints(
    fs: FileSystem, log_dir: Path, partition: TopicPartition, findings: Findings
) -> dict[str, int]:
    found = {}
    for name, invariant in _CHECKPOINTS:
        data = fs.read_file(log_dir / name)
        try:
            offsets = {} if data is None else parse_offsets(log_dir / name, data)
        except CorruptCheckpointError as error:
            findings.violation(invariant, f"cannot be read: {error.reason}", file=name)
            continue
        if partition in offsets:
            found[name] = offsets[partition]
    return found


def _find_next_offset(fs: FileSystem, path: Path) -> int:
    """Return the offset after the last batch of a file, or the one that it is named after."""
    file = fs.open(path, writable=False)
    size_bytes = file.size_bytes()
    parsed = filenames.parse_segment_file(path.name)
    assert parsed is not None
    next_offset = parsed.base_offset
    position = 0
    while position < size_bytes:
        try:
            header = read_header(file.read(position, HEADER_SIZE))
        except DecodeError as error:
            raise CorruptBatchError(path, position, error.reason) from error
        next_offset = header.next_offset
        position += header.size_bytes
    return next_offset


def _is_leftover(name: str) -> bool:
    file = filenames.parse_segment_file(name)
    suffixes = (filenames.CLEANED, filenames.SWAP)
    return filenames.is_pass_file(name) or (file is not None and file.suffix in suffixes)
