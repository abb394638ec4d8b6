"""One segment: a `.log` file of batches and the three indexes beside it.

The log file is the truth. `size_bytes` says how much of it counts: what lies beyond (a torn write,
the zeros of a pre-allocated file) is invisible and will be overwritten. The indexes are hints, and
opened when somebody looks something up.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.errors import (
    CorruptBatchError,
    CorruptIndexError,
    DecodeError,
    LogDirOfflineError,
    OffsetOrderError,
)
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.offset_index import OffsetIndex, OffsetPosition
from siltstone.log.stored_batches import (
    READ_CHUNK_BYTES,
    StoredHeader,
    iter_stored_batches,
    iter_stored_headers,
    read_stored_header,
)
from siltstone.log.time_index import TimeIndex, TimestampOffset
from siltstone.log.transaction_index import TransactionIndex
from siltstone.records.batch import Batch, BatchHeader, read_batch, read_header
from siltstone.records.layout import MAX_RELATIVE_OFFSET, NO_TIMESTAMP
from siltstone.records.scan import plain_walk

logger = logging.getLogger(__name__)

_REMEMBERED_READS: Final = 64


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A range of bytes of a segment; holding it keeps the file readable."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        """Return the bytes."""
        return self.file.read(self.position, self.size_bytes)


class Segment:
    """The batches from `base_offset` up to the next segment's."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        size_bytes: int,
        suffix: str = "",
        writable: bool = True,
    ) -> None:
        self.base_offset = base_offset
        self.directory = directory
        self.created_ms = created_ms
        self.size_bytes = size_bytes
        self.path = filenames.log_path(directory, base_offset, suffix)
        self._fs = fs
        self._file: File | None = None
        self._writable = writable
        self.index_interval_bytes = config.index_interval_bytes
        self._bytes_since_index = 0
        self._read_ends: dict[int, int] = {}  # base offset of the batch after a read -> position
        self._is_known_wrong = False  # the offset index, about some offset
        self._max_timestamp: TimestampOffset | None = None
        self._first_timestamp_ms: int | None = None
        self._is_index_full: bool | None = None  # not known, or not any more

        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(
            fs,
            filenames.offset_index_path(directory, base_offset, suffix),
            base_offset,
            index_bytes,
            writable=writable,
        )
        self.time_index = TimeIndex(
            fs,
            filenames.time_index_path(directory, base_offset, suffix),
            base_offset,
            index_bytes,
            writable=writable,
        )
        self.transaction_index = TransactionIndex(
            fs,
            filenames.transaction_index_path(directory, base_offset, suffix),
            base_offset,
            writable=writable,
        )

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        suffix: str = "",
    ) -> "Segment":
        """Make an empty segment, over whatever files lie around under its names."""
        segment = cls(
            fs, directory, base_offset, config, created_ms=now_ms, size_bytes=0, suffix=suffix
        )
        for path in segment.paths():
            fs.unlink(path)
        segment._file = fs.open(segment.path, create=True)
        if config.preallocate:
            fs.truncate(segment._file, config.segment_bytes)
        return segment

    @property
    def file(self) -> File:
        """The open log file."""
        if self._file is None:
            self._file = self._fs.open(self.path, writable=self._writable)
        return self._file

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The newest timestamp and the last offset of the batch that first reached it."""
        if self._max_timestamp is None:
            self._max_timestamp = self._newest_timestamp()
        return self._max_timestamp

    @property
    def first_timestamp_ms(self) -> int:
        """The max timestamp of the first batch, by which the segment's age is told, or -1."""
        if self._first_timestamp_ms is None:
            if not self.size_bytes:
                return NO_TIMESTAMP
            self._first_timestamp_ms = self._header_at(0).header.max_timestamp_ms
        return self._first_timestamp_ms

    @property
    def largest_timestamp_ms(self) -> int:
        """What retention goes by: the newest timestamp, or the file's age if there is none."""
        timestamp_ms = self.max_timestamp.timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        """Return when the log file was last written."""
        return self.path.stat().st_mtime_ns // 1_000_000

    def paths(self) -> tuple[Path, Path, Path, Path]:
        """Name the files of the segment, in the order in which Kafka renames them."""
        return (
            self.path,
            self.offset_index.file.path,
            self.time_index.file.path,
            self.transaction_index.path,
        )

    @property
    def is_index_full(self) -> bool:
        """Whether one of the indexes has no room for another entry."""
        if self._is_index_full is None:
            self._is_index_full = self.offset_index.is_full or self.time_index.is_full
        return self._is_index_full

    def fits(self, offset: int) -> bool:
        """Say whether the indexes can express the offset."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(self, buffers: Sequence[bytes | memoryview], headers: Sequence[BatchHeader]) -> None:
        """Append batches, whose bytes are `buffers` one after the other.

        The bytes are in the page cache when this returns; `flush` makes them durable. If the disk
        refuses, nothing of it is visible.
        """
        last_offset = headers[-1].last_offset
        if not self.fits(last_offset):
            raise OffsetOrderError(self.path, self.base_offset, last_offset)
        position = self.size_bytes
        try:
            self._fs.write(self._file or self.file, position, buffers)
            for header in headers:
                self._index(header, position)
                position += header.size_bytes
        except LogDirOfflineError:
            self._take_back()
            raise
        self.size_bytes = position

    def append_one(self, buffers: Sequence[bytes | memoryview], header: BatchHeader) -> None:
        """Append a batch whose offsets fit."""
        position = self.size_bytes
        try:
            self._fs.write(self._file or self.file, position, buffers)
            self._index(header, position)
        except LogDirOfflineError:
            self._take_back()
            raise
        self.size_bytes = position + header.size_bytes

    def _take_back(self) -> None:
        """Cut off what an append that was refused has left behind.

        Half a batch does no harm, but a whole one would be there at the next start although it was
        refused: the disk may have had room for it, and none for its index entry.
        """
        with contextlib.suppress(LogDirOfflineError):
            self._fs.truncate(self.file, self.size_bytes)

    def extend(self) -> list[Batch]:
        """Take in the whole batches that somebody else has appended; nothing is written."""
        batches: list[Batch] = []
        wanted_bytes = READ_CHUNK_BYTES
        while True:
            data = self.file.read(self.size_bytes, wanted_bytes)
            count = len(batches)
            # What is not sound yet is still being written: the next call looks again.
            with contextlib.suppress(DecodeError):
                for _, batch in plain_walk(data, next_offset=self.base_offset):
                    self._index(batch.header, self.size_bytes)
                    self.size_bytes += batch.header.size_bytes
                    batches.append(batch)
                if count == len(batches) and len(data) == wanted_bytes:
                    size_bytes = read_header(data).size_bytes
                    if size_bytes > wanted_bytes:
                        wanted_bytes = size_bytes
                        continue
            if count == len(batches):
                return batches
            wanted_bytes = READ_CHUNK_BYTES

    def find_batch(self, offset: int) -> StoredHeader | None:
        """Return the first batch that ends at or after an offset, or None."""
        position = self._read_ends.get(offset)
        if position is not None:
            return self._header_at(position)
        for stored in self._headers_from(offset):
            if stored.header.last_offset >= offset:
                return stored
        return None

    def find_end(self, position: int, max_bytes: int, end_position: int) -> int:
        """Return where to end a read of whole batches from `position`.

        At least one batch, at most `max_bytes` if that holds more, nothing beyond `end_position`.
        """
        limit = position + max_bytes
        if limit >= end_position:
            return end_position
        end = position
        entry = self.offset_index.find_before_position(limit)
        if entry is not None and entry.position > position and self._is_trusted(entry):
            end = entry.position
        for stored in self.iter_headers(end):
            batch_end = stored.position + stored.header.size_bytes
            if batch_end > limit and end > position:
                self._remember_end(stored)
                break
            end = batch_end
            if end >= limit:
                break
        return min(end, end_position)

    def _remember_end(self, following: StoredHeader) -> None:
        """Note where a read ended: the same reader asks for the next batch soon."""
        if len(self._read_ends) >= _REMEMBERED_READS:
            self._read_ends.clear()
        self._read_ends[following.header.base_offset] = following.position

    def find_offset_above(self, position: int, segment_end_offset: int) -> int:
        """Return an offset above all batches that begin before a position."""
        entry = self.offset_index.find_from_position(position)
        if entry is None or not self._is_trusted(entry):
            return segment_end_offset
        return entry.offset + 1

    def find_timestamp(self, target_ms: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record at or after both a time and an offset, or None."""
        for stored in self._headers_from(max(self._time_hint(target_ms), start_offset)):
            header = stored.header
            if header.max_timestamp_ms < target_ms or header.last_offset < start_offset:
                continue
            for record in self.read_batch(stored.position).iter_records():
                if record.timestamp_ms >= target_ms and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp_ms, record.offset)
        return None

    def next_offset(self) -> int:
        """Return the offset after the last batch, or the base offset of an empty segment.

        Reads from the last index entry on.
        """
        next_offset = self.base_offset
        for stored in self._headers_from(self.base_offset + MAX_RELATIVE_OFFSET):
            next_offset = stored.header.next_offset
        return next_offset

    def iter_headers(self, start_position: int = 0) -> Iterator[StoredHeader]:
        """Yield the headers from a batch's position on, reading little else."""
        if start_position >= self.size_bytes:
            return iter(())  # A reader's empty log has no file.
        return iter_stored_headers(self.file, start_position, self.size_bytes)

    def iter_batches(
        self, start_position: int = 0, *, check_crc: bool = True
    ) -> Iterator[tuple[int, Batch]]:
        """Yield (position, batch) from a batch's position on."""
        if start_position >= self.size_bytes:
            return iter(())  # A reader's empty log has no file.
        return iter_stored_batches(self.file, start_position, self.size_bytes, check_crc=check_crc)

    def read_batch(self, position: int) -> Batch:
        """Read the batch at a position and check its CRC."""
        size = self._header_at(position).header.size_bytes
        try:
            batch = read_batch(self.file.read(position, size))
            batch.check_crc()
        except DecodeError as error:
            raise CorruptBatchError(self.path, position, error.reason) from error
        return batch

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop all batches that reach `offset` and return how many bytes went.

        A batch goes whole, also if only its last record is at the offset.
        """
        stored = self.find_batch(offset)
        self._read_ends.clear()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._is_index_full = None
        if stored is None:
            return 0
        removed = self.size_bytes - stored.position
        self._fs.truncate(self.file, stored.position)
        self.size_bytes = stored.position
        if not stored.position:
            self.created_ms = now_ms
            self._first_timestamp_ms = None
        self._bytes_since_index = 0
        self._max_timestamp = self._newest_timestamp()
        return removed

    def become_inactive(self) -> None:
        """Write the final time index entry and cut every file to its content."""
        try:
            self.time_index.maybe_append(self.max_timestamp, final=True)
        except CorruptIndexError as error:
            self._start_indexes_over(error)
            self.time_index.maybe_append(self.max_timestamp, final=True)
        self.offset_index.file.trim()
        self.time_index.file.trim()
        if self.file.size_bytes() > self.size_bytes:
            self._fs.truncate(self.file, self.size_bytes)

    def flush(self) -> None:
        """Make all of the segment durable."""
        self._fs.fsync(self.file)
        self.offset_index.file.flush()
        self.time_index.file.flush()
        self.transaction_index.flush()

    def rename(self, suffix: str) -> None:
        """Give every file of the segment another suffix; those that never existed are skipped."""
        targets = (
            filenames.log_path(self.directory, self.base_offset, suffix),
            filenames.offset_index_path(self.directory, self.base_offset, suffix),
            filenames.time_index_path(self.directory, self.base_offset, suffix),
            filenames.transaction_index_path(self.directory, self.base_offset, suffix),
        )
        for source, target in zip(self.paths(), targets, strict=True):
            with contextlib.suppress(FileNotFoundError):
                self._fs.rename(source, target)
            if source == self.path and suffix == filenames.DELETED:
                # Or after a loss of power the batches could be back without the index that says
                # which of them were aborted, or with a hole where the next segment was.
                self._fs.fsync_dir(self.directory)
        self.path = targets[0]
        if self._file is not None:
            self._file.path = targets[0]
        self.offset_index.file.moved_to(targets[1])
        self.time_index.file.moved_to(targets[2])
        self.transaction_index.moved_to(targets[3])

    def close(self) -> None:
        """Let go of all files; a reader that holds a slice keeps the log file open."""
        self._file = None
        self.offset_index.file.close()
        self.time_index.file.close()
        self.transaction_index.close()

    def set_recovered(self, size_bytes: int, max_timestamp: TimestampOffset) -> None:
        """Take over what recovery found out about the log file."""
        self.size_bytes = size_bytes
        self._max_timestamp = max_timestamp
        self._first_timestamp_ms = None

    def _headers_from(self, offset: int) -> Iterator[StoredHeader]:
        """Yield headers from some batch that begins at or before an offset.

        If the index cannot be trusted, from the start of the segment: slow, but never wrong.
        """
        entry = self.offset_index.find(offset)
        yield from self.iter_headers(entry.position if self._is_trusted(entry) else 0)

    def _is_trusted(self, entry: OffsetPosition) -> bool:
        """Hold an entry against the batch it points to: an index has no checksum of its own."""
        if not entry.position:
            return True
        if 0 < entry.position < self.size_bytes:
            with contextlib.suppress(CorruptBatchError):
                header = self._header_at(entry.position).header
                # It may speak of a later batch: before 4.0 Kafka made one entry for all batches
                # of an append. What lies in front of this one ends below the offset all the same.
                if header.base_offset <= entry.offset:
                    return True
        # Every look-up may come by here again: once is enough.
        if not self._is_known_wrong:
            self._is_known_wrong = True
            logger.warning(
                "%s is wrong about offset %d: delete the file to have it rebuilt",
                self.offset_index.file.path,
                entry.offset,
            )
        return False

    def _time_hint(self, target_ms: int) -> int:
        """Return an offset before which nothing is as new as `target_ms`."""
        entry = self.time_index.find(target_ms)
        return entry.offset if self._is_trusted_time(entry) else self.base_offset

    def _is_trusted_time(self, entry: TimestampOffset) -> bool:
        """Hold an entry of the time index against the batch that it speaks of."""
        if entry.timestamp_ms == NO_TIMESTAMP and entry.offset == self.base_offset:
            return True
        for stored in self._headers_from(entry.offset):
            if stored.header.last_offset >= entry.offset:
                return stored.header.max_timestamp_ms == entry.timestamp_ms
        return False

    def _index(self, header: BatchHeader, position: int) -> None:
        newest = self._max_timestamp or self.max_timestamp
        if header.max_timestamp_ms > newest.timestamp_ms:
            newest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
            self._max_timestamp = newest
        if self._bytes_since_index > self.index_interval_bytes:
            try:
                if not self.offset_index.is_full:
                    self.offset_index.append(header.last_offset, position)
                self.time_index.maybe_append(newest)
            except CorruptIndexError as error:
                self._start_indexes_over(error)
            self._bytes_since_index = 0
            self._is_index_full = None
        self._bytes_since_index += header.size_bytes

    def _start_indexes_over(self, error: CorruptIndexError) -> None:
        """Drop entries that contradict what is appended: without them a look-up is only slower."""
        logger.warning("%s: starting the indexes of the segment over", error)
        self.offset_index.clear()
        self.time_index.clear()

    def _newest_timestamp(self) -> TimestampOffset:
        """Find the newest timestamp.

        What the time index says is checked, and what follows its last entry is looked through:
        an index that lacks its end must not hide records from those who look for their time.
        """
        newest = self.time_index.last
        if not self._is_trusted_time(newest):
            newest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        # Behind damage nothing can be read, so nothing there can be found by its time either.
        with contextlib.suppress(CorruptBatchError):
            for stored in self._headers_from(newest.offset):
                header = stored.header
                if header.max_timestamp_ms > newest.timestamp_ms:
                    newest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
        return newest

    def _header_at(self, position: int) -> StoredHeader:
        return read_stored_header(self.file, position, self.size_bytes)
