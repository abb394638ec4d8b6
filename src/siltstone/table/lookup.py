"""The last record of one key, found through the key indexes, newest segment first.

What a lookup goes by is a `_State`: files that are held open, and the index of each. It is made
anew when the log has changed, from what is still right of the one before.
"""

import importlib
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.errors import CorruptIndexError, LogDirOfflineError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.key_index import KeyIndex, put_key_index
from siltstone.log.log_reader import FileStamp, LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.log.segment import Segment
from siltstone.table.head import Head
from siltstone.table.positions import RecordPosition, StoredRecord, read_record
from siltstone.table.snapshot import with_still_log

logger = logging.getLogger(__name__)

# How much of a segment need not be indexed: so many bytes, or this share of what is.
_MAX_HEAD_BYTES: Final = 1 << 20
_HEAD_SHARE: Final = 8
# How long a directory must have been left alone for its modification time to be a proof of it.
_QUIET_NS: Final = 100_000_000


class _Indexed(NamedTuple):
    file: File
    inode: int
    key_index: KeyIndex


class _Stamp(NamedTuple):
    directory_modified_ns: int
    newest_bytes: int  # of the segment that appends go to
    log_start: FileStamp


@dataclass(frozen=True, slots=True)
class _State:
    newest_path: Path  # of the segment that appends go to
    segments: tuple[_Indexed, ...]  # newest first
    head: Head | None  # None: that segment is empty
    log_start_offset: int
    end_offset: int


class PartitionLookup:
    """Looks up keys in one partition; may be used by several threads."""

    def __init__(self, reader: LogReader, partition: TopicPartition) -> None:
        self.partition = partition
        self._reader = reader
        self._preallocates = reader.config(partition.topic).preallocate
        self._fs = FileSystem()
        self._lock = threading.Lock()
        self._distrusted: set[int] = set()  # segments, by inode, whose index on disk is wrong
        self._state: _State | None = None
        self._stamp: _Stamp | None = None

    def find(self, key: bytes) -> StoredRecord | None:
        """Return the last committed record of a key, which may be a tombstone; None if none is.

        Sees every record that was appended before the call, also while a pass commits.
        """
        while True:
            state = self._refresh()
            try:
                return _find(state, key)
            except CorruptIndexError as error:
                logger.warning("%s: building it anew", error)
                with self._lock:
                    self._discard_index(state, error)

    def _discard_index(self, state: _State, error: CorruptIndexError) -> None:
        """Do without an index; if it was built here and is wrong all the same, raise."""
        if state is not self._state:
            return  # Another thread has seen it, too.
        inodes = {item.inode for item in state.segments if item.key_index.path == error.path}
        if inodes <= self._distrusted:
            raise error
        self._distrusted |= inodes
        try:
            self._fs.unlink(error.path)
        except LogDirOfflineError:
            logger.debug("%s cannot be deleted", error.path)
        self._state = None

    def _refresh(self) -> _State:
        with self._lock:
            stamp = None if self._state is None else self._look(self._state)
            if self._state is None or stamp is None or stamp != self._stamp:
                self._state = with_still_log(self._reader, self.partition, self._load_still)
                self._stamp = stamp
            return self._state

    def _look(self, state: _State) -> _Stamp | None:
        """Look whether anything can have changed, by three calls; None if they prove nothing."""
        if self._preallocates:
            return None
        now_ns = time.time_ns()
        try:
            # A roll or a swap changes the directory, so a size is never taken for another file's.
            size_bytes = state.newest_path.stat().st_size
            modified_ns = state.newest_path.parent.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        if now_ns - modified_ns <= _QUIET_NS:
            return None
        return _Stamp(modified_ns, size_bytes, self._reader.stamp_log_start(self.partition))

    def _load_still(self, log: PartitionLog) -> _State:
        with log.exclusively():  # Another thread may be extending it.
            return self._load(log)

    def _load(self, log: PartitionLog) -> _State:
        """Open or build what a lookup in this log needs."""
        before = self._state
        known = {} if before is None else {item.inode: item for item in before.segments}
        end_offset = log.last_stable_offset
        indexed: list[_Indexed] = []
        head: Head | None = None
        segments = [segment for segment in log.segments if segment.size_bytes]
        for segment in segments:
            following = log.segments.find_next(segment)
            if segment.base_offset >= end_offset:
                break
            inode = os.fstat(segment.file.fd).st_ino
            item = self._find_index(segment, inode, known.get(inode))
            if following is not None and following.base_offset <= end_offset:
                if item is None or item.key_index.covered.covered_bytes != segment.size_bytes:
                    item = self._build(log, segment, inode, segment.size_bytes, indexed)
                indexed.append(item)
                continue
            end_position = _find_end(log, segment, end_offset)
            item, head = self._cover(log, segment, inode, end_position, item, indexed)
            if item is not None:
                indexed.append(item)
        return _State(
            log.segments.active.path,
            tuple(reversed(indexed)),
            head,
            log.log_start_offset,
            end_offset,
        )

    def _cover(
        self,
        log: PartitionLog,
        segment: Segment,
        inode: int,
        end_position: int,
        item: _Indexed | None,
        others: list[_Indexed],
    ) -> tuple[_Indexed | None, Head]:
        """Cover a segment that is still growing: an index of its start, a dict of the rest."""
        covered = 0 if item is None else item.key_index.covered.covered_bytes
        if covered > end_position:
            item, covered = None, 0
        if end_position - covered > max(_MAX_HEAD_BYTES, covered // _HEAD_SHARE):
            item = self._build(log, segment, inode, end_position, others)
            covered = end_position
        head = None if self._state is None else self._state.head
        if (
            head is None
            or head.inode != inode
            or not covered <= head.position <= end_position
            or head.start_position != covered
        ):
            head = Head(segment.file, inode, covered)
        if head.position < end_position:
            first = segment.iter_headers(head.position).__next__().header.base_offset
            head.extend(end_position, log.collect_aborted(first, log.last_stable_offset))
        return item, head

    def _find_index(self, segment: Segment, inode: int, known: _Indexed | None) -> _Indexed | None:
        if known is not None:
            return known
        if inode in self._distrusted:
            return None
        path = filenames.key_index_path(segment.directory, segment.base_offset)
        try:
            index = KeyIndex.open(path)
        except CorruptIndexError as error:
            logger.warning("%s: building it anew", error)
            return None
        if index is None or not index.is_about(segment.file):
            return None
        return _Indexed(segment.file, inode, index)

    def _build(
        self,
        log: PartitionLog,
        segment: Segment,
        inode: int,
        end_position: int,
        others: list[_Indexed],
    ) -> _Indexed:
        """Build an index and leave it for those who come after, if the disk lets us."""
        # Here, for it brings along the compiler, which a lookup mostly does without.
        indexing = importlib.import_module("siltstone.cleaner.key_indexing.segments")
        end_offset = log.last_stable_offset
        data: bytes = indexing.build_key_index(
            segment.file,
            segment.base_offset,
            end_position,
            log.collect_aborted(segment.base_offset, end_offset),
            # One key for all where possible, so that a lookup hashes once.
            others[0].key_index.hash_key if others else None,
        )
        path = filenames.key_index_path(segment.directory, segment.base_offset)
        try:
            put_key_index(self._fs, segment.directory, segment.base_offset, data)
        except (LogDirOfflineError, FileNotFoundError):
            logger.debug("%s cannot be written", path)
        return _Indexed(segment.file, inode, KeyIndex(path, data))


def _find(state: _State, key: bytes) -> StoredRecord | None:
    head = state.head
    newest = None if head is None else head.entries.get(key)
    if head is not None and newest is not None:
        found = read_record(head.file, newest)
        assert found is not None
        assert found.record.key == key
        return found if newest.offset >= state.log_start_offset else None
    hashes: dict[bytes, int] = {}
    for file, _, index in state.segments:
        if index.hash_key not in hashes:
            hashes[index.hash_key] = index.hash(key)
        for place in index.find(hashes[index.hash_key]):
            found = read_record(file, RecordPosition(*place))
            if found is None:
                raise CorruptIndexError(index.path, f"has no record at offset {place.offset}")
            if found.record.key == key:
                return found if place.offset >= state.log_start_offset else None
    return None


def _find_end(log: PartitionLog, segment: Segment, end_offset: int) -> int:
    """Return the position up to which a segment holds what is below an offset."""
    if end_offset >= log.log_end_offset:
        return segment.size_bytes
    stored = segment.find_batch(end_offset)
    return segment.size_bytes if stored is None else stored.position
