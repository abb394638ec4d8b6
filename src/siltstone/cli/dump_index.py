"""Offset and time indexes as Kafka's dump tool shows them, held against the log beside them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.cli.dumped import FindingKind, Findings, Line
from siltstone.errors import (
    CorruptBatchError,
    CorruptIndexError,
    DecodeError,
    StorageError,
    UsageError,
)
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filenames import SegmentFile
from siltstone.log.filesystem import FileSystem
from siltstone.log.offset_index import OffsetPosition
from siltstone.log.segment import Segment
from siltstone.log.stored_batches import StoredHeader
from siltstone.log.time_index import TimestampOffset
from siltstone.records.batch import BatchHeader, read_header
from siltstone.records.layout import HEADER_SIZE, NO_TIMESTAMP

_NOT_FOUND: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDumpOptions:
    """What to do with an index."""

    verifies_only: bool = False
    checks_sanity_only: bool = False
    max_batch_bytes: int = 5 * 1024 * 1024


def open_segment(fs: FileSystem, directory: Path, name: SegmentFile) -> Segment:
    """Open the segment that an index belongs to, without writing anything."""
    log_path = filenames.log_path(directory, name.base_offset, name.suffix)
    try:
        size_bytes = fs.open(log_path, writable=False).size_bytes()
    except FileNotFoundError:
        raise StorageError(f"{log_path} does not exist: an index needs its log") from None
    return Segment(
        fs,
        directory,
        name.base_offset,
        LogConfig(),
        created_ms=0,
        size_bytes=size_bytes,
        suffix=name.suffix,
        writable=False,
    )


def dump_offset_index(
    segment: Segment, options: IndexDumpOptions, findings: Findings
) -> Iterator[Line]:
    """Show the entries of an offset index and compare each with the batch it points to."""
    path = segment.offset_index.file.path
    entries = segment.offset_index.entries()
    if not entries:
        yield Line(f"{path} is empty.", {"type": "empty_index"})
        return
    if options.checks_sanity_only:
        segment.offset_index.check_ends(segment.size_bytes)
        yield _passed(path)
        return
    for slot, entry in enumerate(entries):
        header = _header_at(segment, slot, entry, options.max_batch_bytes)
        if header.last_offset != entry.offset:
            findings.add(FindingKind.OFFSET_MISMATCH, path, entry.offset, header.last_offset)
        if not options.verifies_only:
            yield Line(
                f"offset: {entry.offset} position: {entry.position}",
                {"type": "index_entry", "offset": entry.offset, "position": entry.position},
            )


def dump_time_index(
    segment: Segment, options: IndexDumpOptions, findings: Findings
) -> Iterator[Line]:
    """Show the entries of a time index and compare each with the batch it speaks of."""
    path = segment.time_index.file.path
    if options.checks_sanity_only:
        segment.time_index.check_ends()
        yield _passed(path)
        return
    previous_ms = NO_TIMESTAMP
    for entry in segment.time_index.entries():
        _compare(segment, entry, previous_ms, findings)
        previous_ms = entry.timestamp_ms
        if not options.verifies_only:
            yield Line(
                f"timestamp: {entry.timestamp_ms} offset: {entry.offset}",
                {
                    "type": "time_index_entry",
                    "timestamp_ms": entry.timestamp_ms,
                    "offset": entry.offset,
                },
            )


def _passed(path: Path) -> Line:
    return Line(f"{path} passed sanity check.", {"type": "sanity_check", "passed": True})


def _header_at(
    segment: Segment, slot: int, entry: OffsetPosition, max_batch_bytes: int
) -> BatchHeader:
    try:
        header = read_header(segment.file.read(entry.position, HEADER_SIZE))
    except DecodeError as error:
        raise CorruptIndexError(
            segment.offset_index.file.path,
            f"entry {slot} points to position {entry.position}, where no batch begins",
        ) from error
    if header.size_bytes > max_batch_bytes:
        raise UsageError(
            f"{segment.path}: the batch at position {entry.position} has {header.size_bytes} "
            f"bytes: raise --max-message-size"
        )
    return header


def _compare(
    segment: Segment, entry: TimestampOffset, previous_ms: int, findings: Findings
) -> None:
    path = segment.time_index.file.path
    stored = segment.find_batch(entry.offset)
    if stored is None or stored.header.last_offset != entry.offset:
        found = _NOT_FOUND if stored is None else stored.header.last_offset
        findings.add(FindingKind.OFFSET_NOT_FOUND, path, entry.offset, found)
        return
    newest_ms = _newest_timestamp(segment, stored)
    if newest_ms != entry.timestamp_ms:
        findings.add(FindingKind.TIMESTAMP_MISMATCH, path, entry.timestamp_ms, newest_ms)
    if entry.timestamp_ms <= previous_ms:
        findings.add(FindingKind.TIMESTAMP_ORDER, path, entry.timestamp_ms, previous_ms)


def _newest_timestamp(segment: Segment, stored: StoredHeader) -> int:
    # A batch that a pass has emptied has no record to ask, but its header still knows. Kafka's
    # tool asks the records only, and gives a false alarm here.
    if stored.header.is_empty:
        return stored.header.max_timestamp_ms
    try:
        records = list(segment.read_batch(stored.position).iter_records())
    except DecodeError as error:
        raise CorruptBatchError(segment.path, stored.position, error.reason) from error
    return max(record.timestamp_ms for record in records)
