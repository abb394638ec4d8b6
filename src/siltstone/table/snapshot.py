"""The files of one partition, opened together: what a view reads, whatever happens to the log.

A pass replaces segments and retention removes them; who holds their files open reads on. What must
not happen is to open some before a swap and some after it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.errors import LogDirOfflineError, StorageError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.log.transaction_index import AbortedTxn

Result = TypeVar("Result")

_ATTEMPTS: Final = 50
_PAUSE_SECONDS: Final = 0.01  # a swap is a few renames, each made durable

_Files = dict[str, tuple[int, int]]  # name of a log file: inode and size


@dataclass(frozen=True, slots=True)
class SnapshotSegment:
    """The batches of one segment from a position on."""

    base_offset: int
    file: File
    start_position: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """One partition at one moment."""

    partition: TopicPartition
    segments: tuple[SnapshotSegment, ...]
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    first_dirty_offset: int
    aborted: tuple[AbortedTxn, ...]

    def end_offset(self, isolation: Isolation) -> int:
        """Return the offset up to which a reader may see."""
        match isolation:
            case Isolation.LOG_END:
                return self.log_end_offset
            case Isolation.HIGH_WATERMARK:
                return self.high_watermark
            case Isolation.COMMITTED:
                return self.last_stable_offset


def take_snapshot(
    log: PartitionLog, first_dirty_offset: int | None, *, start_offset: int | None = None
) -> LogSnapshot:
    """Open all files of a log of which this process is the owner.

    `first_dirty_offset` is the cleaner's checkpoint, None if there is none. Nothing below
    `start_offset` is held, if there is one.
    """
    with log.exclusively():
        start = log.log_start_offset
        if start_offset is not None:
            start = min(max(start, start_offset), log.log_end_offset)
        segments = []
        for segment in log.segments.from_offset(start):
            first = segment.find_batch(start) if segment.size_bytes else None
            if first is not None:
                segments.append(
                    SnapshotSegment(
                        segment.base_offset, segment.file, first.position, segment.size_bytes
                    )
                )
        dirty = log.log_start_offset if first_dirty_offset is None else first_dirty_offset
        return LogSnapshot(
            partition=log.partition,
            segments=tuple(segments),
            log_start_offset=log.log_start_offset,
            last_stable_offset=log.last_stable_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            # One outside of the log is reset by the next pass, and says nothing.
            first_dirty_offset=min(max(dirty, log.log_start_offset), log.log_end_offset),
            aborted=tuple(log.collect_aborted(start, log.log_end_offset)),
        )


def open_snapshot(
    reader: LogReader, partition: TopicPartition, *, start_offset: int | None = None
) -> LogSnapshot:
    """Open all files of a log that another process may own, and be changing right now."""

    def take(log: PartitionLog) -> LogSnapshot:
        # Before the files: a pass puts its segments in place first and the checkpoint after it,
        # so this one may be too low, which a gap in the log tells, but never too high.
        dirty = CleanerCheckpoints(FileSystem(), log.directory.parent).find(partition)
        return take_snapshot(log, dirty, start_offset=start_offset)

    return with_still_log(reader, partition, take)


def with_still_log(
    reader: LogReader, partition: TopicPartition, act: Callable[[PartitionLog], Result]
) -> Result:
    """Open files of a log while none of them is replaced; try again if one was."""
    for _ in range(_ATTEMPTS):
        log = reader.get_log(partition)
        before = _list_files(log.directory)
        if before is not None and _are_of(log, before):
            result: Result | None = None
            error: Exception | None = None
            try:
                result = act(log)
            except (FileNotFoundError, StorageError) as found:
                error = found
            after = _list_files(log.directory)
            if after is not None and _has_only_grown(before, after):
                if error is not None:
                    raise error  # Nobody was at work: it is damage.
                return cast(Result, result)
        time.sleep(_PAUSE_SECONDS)
    raise LogDirOfflineError(log.directory, "changes faster than it can be read")


def _list_files(directory: Path) -> _Files | None:
    files: _Files = {}
    try:
        for name in FileSystem().list_names(directory):
            file = filenames.parse_segment_file(name)
            if file and file.extension == filenames.LOG and file.suffix != filenames.DELETED:
                stat = (directory / name).stat()
                files[name] = (stat.st_ino, stat.st_size)
    except FileNotFoundError:
        return None
    return files


def _are_of(log: PartitionLog, files: _Files) -> bool:
    """Say whether a log was loaded from these files."""
    active = log.segments.active
    for segment in log.segments:
        _, size_bytes = files.get(segment.path.name, (0, -1))
        if size_bytes < segment.size_bytes and segment.size_bytes:
            return False
        if size_bytes != segment.size_bytes and segment is not active:
            return False
    return True


def _has_only_grown(before: _Files, after: _Files) -> bool:
    """Say whether no file was replaced or removed, and none added but at the end."""
    return all(
        name in after and after[name][0] == inode and after[name][1] >= size
        for name, (inode, size) in before.items()
    ) and (not before or all(name in before or name > max(before) for name in after))
