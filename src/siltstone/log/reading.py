"""Where in the segments of a log the answer to a reader's question lies."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.segment import FileSlice, Segment
from siltstone.log.segments import Segments
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import Batch, iter_batches
from siltstone.records.control import ControlType


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = auto()
    HIGH_WATERMARK = auto()
    COMMITTED = auto()


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Whole batches from the one that holds the wanted offset, or follows it, on."""

    slice: FileSlice | None  # None: nothing there yet
    aborted: tuple[AbortedTxn, ...]  # with Isolation.COMMITTED
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    def batches(self) -> Iterator[Batch]:
        """Yield the batches, each with its CRC checked."""
        if self.slice is None:
            return
        next_position = self.slice.position
        try:
            for position, batch in iter_batches(self.slice.read()):
                next_position = self.slice.position + position
                batch.check_crc()
                yield batch
                next_position += batch.header.size_bytes
        except DecodeError as error:
            raise CorruptBatchError(self.slice.file.path, next_position, error.reason) from error


class AbortedFilter:
    """Tells what a consumer must not see of the batches of one read, which come in order."""

    def __init__(self, aborted: Sequence[AbortedTxn]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._producer_ids: set[int] = set()  # whose transaction, being aborted, is open here

    def hides(self, batch: Batch) -> bool:
        """Say whether a batch is a marker, or part of a transaction that was aborted."""
        header = batch.header
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._producer_ids.add(self._to_come.popleft().producer_id)
        if header.is_control:
            marker = batch.marker()
            if marker is not None and marker.control_type is ControlType.ABORT:
                self._producer_ids.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producer_ids


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What a reader asks for: from an offset up to another, and so many bytes of it."""

    first_offset: int
    end_offset: int
    max_bytes: int
    min_one_batch: bool = True


class FoundSlice(NamedTuple):
    """The bytes to read, and the segment that they are in."""

    slice: FileSlice
    segment: Segment
    segment_end_offset: int

    def offset_above(self) -> int:
        """Return an offset above all records in the slice."""
        end_position = self.slice.position + self.slice.size_bytes
        return self.segment.find_offset_above(end_position, self.segment_end_offset)


def find_slice(segments: Segments, log_end_offset: int, wanted: ReadRange) -> FoundSlice | None:
    """Return the bytes to read, or None if there is nothing."""
    if wanted.first_offset >= wanted.end_offset:
        return None
    for segment in segments.from_offset(wanted.first_offset):
        if segment.base_offset >= wanted.end_offset:
            break
        first = segment.find_batch(wanted.first_offset)
        if first is None:
            # A gap up to the end of the segment: the next one has the next batch.
            continue
        following = segments.find_next(segment)
        segment_end_offset = log_end_offset if following is None else following.base_offset
        end_position = segment.size_bytes
        if wanted.end_offset < segment_end_offset:
            limit = segment.find_batch(wanted.end_offset)
            end_position = end_position if limit is None else limit.position
        if first.position >= end_position:
            break
        if not wanted.min_one_batch and first.header.size_bytes > wanted.max_bytes:
            break
        end = segment.find_end(first.position, wanted.max_bytes, end_position)
        found = FileSlice(segment.file, first.position, end - first.position)
        return FoundSlice(found, segment, segment_end_offset)
    return None


def collect_aborted(segments: Segments, first_offset: int, end_offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions that have records in a range of offsets."""
    found = []
    for segment in segments.from_offset(first_offset):
        for txn in segment.transaction_index.entries:
            if txn.last_offset >= first_offset and txn.first_offset < end_offset:
                found.append(txn)
            if txn.last_stable_offset >= end_offset:
                # Whatever is aborted after this one began after the range.
                return found
    return found


def find_timestamp(segments: Segments, target_ms: int, start_offset: int) -> TimestampOffset | None:
    """Return the first record at or after a time, or None if all are older."""
    for segment in segments:
        if segment.max_timestamp.timestamp_ms >= target_ms:
            found = segment.find_timestamp(target_ms, start_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: Segments, log_start_offset: int) -> TimestampOffset | None:
    """Return the newest timestamp and the first record that has it, or None."""
    newest_ms = max(segment.max_timestamp.timestamp_ms for segment in segments)
    return None if newest_ms < 0 else find_timestamp(segments, newest_ms, log_start_offset)
