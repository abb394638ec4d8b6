"""Kafka's `cleaner-offset-checkpoint`, kept true to the logs that it speaks of.

An entry says up to where a log is clean. It must not outlive what it was said of: a topic that is
deleted and made again, or a log that is cut and grows again, would count as clean where no pass
has ever been. So the entries are the owner's business, even where nothing is ever cleaned.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from siltstone.errors import CorruptCheckpointError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import format_offsets, parse_offsets
from siltstone.log.filesystem import FileSystem

logger = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, int]

_lock: Final = threading.Lock()  # one for all files: changes are rare, and small


def read_cleaner_offsets(fs: FileSystem, log_dir: Path) -> dict[TopicPartition, int]:
    """Return all entries; raise CorruptCheckpointError if the file makes no sense.

    No log of the directory is cleaned then: to go on without it is for an operator to decide.
    """
    path = log_dir / filenames.CLEANER_OFFSETS
    data = fs.read_file(path)  # anew each time, for Kafka writes it too
    try:
        return {} if data is None else parse_offsets(path, data)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(
            path, f"{error.reason}; without the file each log is cleaned anew from its start"
        ) from error


def change_cleaner_offsets(
    fs: FileSystem, log_dir: Path, change: Callable[[Offsets], Offsets]
) -> None:
    """Put other entries in the place of all; durable when this returns."""
    with _lock:
        before = read_cleaner_offsets(fs, log_dir)
        after = change(before)
        if after != before:
            fs.write_atomically(log_dir / filenames.CLEANER_OFFSETS, format_offsets(after))


def maybe_change_cleaner_offsets(
    fs: FileSystem, log_dir: Path, change: Callable[[Offsets], Offsets]
) -> None:
    """Do the same, or leave a file as it is that makes no sense.

    Whoever changes a log does not need it; whoever cleans refuses to.
    """
    try:
        change_cleaner_offsets(fs, log_dir, change)
    except CorruptCheckpointError as error:
        logger.error("%s; no log in %s can be cleaned", error, log_dir)


def lower_cleaner_offset(
    fs: FileSystem, log_dir: Path, partition: TopicPartition, offset: int
) -> None:
    """Let nothing of a log count as clean from an offset on: it is about to be cut there.

    What comes there later is not clean, whatever was there before. Noted first: a crash in between
    makes a pass do more than it must.
    """
    maybe_change_cleaner_offsets(
        fs,
        log_dir,
        lambda offsets: {p: min(o, offset) if p == partition else o for p, o in offsets.items()},
    )


def fit_offset(offset: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return an entry as it is, or the log start if it lies outside of the log."""
    return offset if log_start_offset <= offset <= log_end_offset else log_start_offset
