"""One partition on one disk: append, read, roll, truncate.

Offsets, lowest first: log start <= recovery point (durable up to there) and log start <= last stable
offset <= high watermark <= log end. Appends are in the page cache when they return; `flush` makes them
durable. A write that the disk refused is sticky: what was on disk before is served on, but nothing is
appended until the log is opened anew, because nobody knows what the failed write left behind.

All methods may be called from several threads; one lock guards the state.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from siltstone.clock import Clock
from siltstone.errors import (
    InvalidRecordError,
    LogDirOfflineError,
    OffsetOrderError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RecordTooLargeError,
)
from siltstone.ids import TopicId, TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import format_epochs
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.origin import AppendOrigin
from siltstone.log.producer_state import CompletedTxn
from siltstone.log.recovery import LoadRequest, load_log, replay_segment
from siltstone.log.retention import Expired, SegmentFacts, find_expired
from siltstone.log.segment import FileSlice, Segment
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.log.validation import (
    ValidBatch,
    read_single_batch,
    split_batches,
    validate,
)
from siltstone.records.batch import Batch, BatchHeader, iter_batches
from siltstone.records.layout import NO_TIMESTAMP
from siltstone.records.varint import Buffer

logger = logging.getLogger(__name__)

HIGH_WATERMARK_OFFSET: Final = -1  # for `delete_records`: everything that is replicated

Background = Callable[[Callable[[], None]], None]


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = auto()
    HIGH_WATERMARK = auto()
    COMMITTED = auto()


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """Where an append went; a repeated batch gets the answer of the first time."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int  # -1: the producer's timestamps stand
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False


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
        for _, batch in iter_batches(self.slice.read()):
            batch.check_crc()
            yield batch


class PartitionLog:
    """The log of one partition; made by `open`, ended by `close` or `mark_deleted`."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        request: LoadRequest,
        topic_id: TopicId | None = None,
        background: Background = lambda task: task(),
        on_failure: Callable[[LogDirOfflineError], None] = lambda error: None,
    ) -> None:
        loaded = load_log(fs, request)
        self.partition: Final = request.partition
        self.topic_id = topic_id
        self.directory = request.directory
        self.config = request.config
        self.segments: Final = loaded.segments
        self.producer_state: Final = loaded.producer_state
        self.leader_epochs: Final = loaded.leader_epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.log_start_offset
        self._fs = fs
        self._clock = clock
        self._background = background
        self._on_failure = on_failure
        self._writable = request.writable
        self._producer_expiration_ms = request.producer_expiration_ms
        self._snapshots = loaded.snapshots
        self._lock = threading.RLock()
        self._failure: LogDirOfflineError | None = None
        self._unflushed_records = 0
        self._last_flushed_ms = clock.now_ms()
        self._jitter_ms = self._draw_jitter()
        self._doomed: list[tuple[int, tuple[Path, ...]]] = []  # (due time, files to delete)
        for segment in loaded.discarded:
            self._doom(segment.paths())
        self._first_unstable_offset = self.producer_state.first_unstable_offset

    # What it is now

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided, and replicated."""
        unstable = self._first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    @property
    def size_bytes(self) -> int:
        """The size of all batches together."""
        return self.segments.size_bytes

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or 0."""
        latest = self.leader_epochs.latest()
        return 0 if latest is None else latest.epoch

    # Appending

    def append(
        self,
        data: Buffer,
        *,
        leader_epoch: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append one batch as the leader: check it, give it offsets, write it.

        Raise without a trace in the log if the batch is refused. A batch that an idempotent
        producer repeats is not written again.
        """
        with self._lock:
            self._check_writable()
            now_ms = self._clock.now_ms()
            batch = read_single_batch(self.partition, data, self.config, origin)
            valid = validate(
                self.partition,
                batch,
                self.config,
                origin,
                base_offset=self.log_end_offset,
                leader_epoch=self.latest_epoch if leader_epoch is None else leader_epoch,
                now_ms=now_ms,
            )
            header = valid.header
            if header.size_bytes > self.config.segment_bytes:
                raise RecordTooLargeError(
                    str(self.partition),
                    header.size_bytes,
                    "segment.bytes",
                    self.config.segment_bytes,
                )
            if origin is AppendOrigin.CLIENT and header.has_producer_id:
                duplicate = self.producer_state.find_duplicate(header)
                if duplicate is not None:
                    return AppendInfo(
                        first_offset=duplicate.first_offset,
                        last_offset=duplicate.last_offset,
                        max_timestamp_ms=duplicate.timestamp_ms,
                        log_append_time_ms=(
                            NO_TIMESTAMP
                            if valid.log_append_time_ms == NO_TIMESTAMP
                            else duplicate.timestamp_ms
                        ),
                        log_start_offset=self.log_start_offset,
                        size_bytes=header.size_bytes,
                        is_duplicate=True,
                    )
            prepared = self.producer_state.prepare(
                header, origin, valid.marker, transaction_version=transaction_version
            )
            self._assign_epochs([header])
            self._maybe_roll(header.size_bytes, header, now_ms)
            self._write(valid.buffers, [header])
            self._complete(self.producer_state.apply(prepared))
            return self._appended(valid, header)

    def append_as_follower(self, data: Buffer) -> AppendInfo | None:
        """Append what the leader stored, byte for byte; None if there is no whole batch in it."""
        with self._lock:
            self._check_writable()
            batches = split_batches(data)
            if not batches:
                return None
            headers = [batch.header for batch in batches]
            next_offset = self.log_end_offset
            for header in headers:
                if header.base_offset < next_offset:
                    raise OffsetOrderError(
                        self.segments.active.path, next_offset, header.base_offset
                    )
                next_offset = header.next_offset
            size_bytes = sum(header.size_bytes for header in headers)
            prepared = self.producer_state.prepare_all(
                ((batch.header, batch.marker()) for batch in batches), AppendOrigin.REPLICATION
            )
            self._assign_epochs(headers)
            self._maybe_roll(size_bytes, headers[-1], self._clock.now_ms(), headers[0].base_offset)
            self._write([batch.data for batch in batches], headers)
            self._complete(self.producer_state.apply(prepared))
            return AppendInfo(
                first_offset=headers[0].base_offset,
                last_offset=headers[-1].last_offset,
                max_timestamp_ms=max(header.max_timestamp_ms for header in headers),
                log_append_time_ms=NO_TIMESTAMP,
                log_start_offset=self.log_start_offset,
                size_bytes=size_bytes,
            )

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log, and return where it is now."""
        with self._lock:
            self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
            self.producer_state.on_high_watermark_updated(self.high_watermark)
            self._first_unstable_offset = self.producer_state.first_unstable_offset
            return self.high_watermark

    def _appended(self, valid: ValidBatch, header: BatchHeader) -> AppendInfo:
        return AppendInfo(
            first_offset=header.base_offset,
            last_offset=header.last_offset,
            max_timestamp_ms=header.max_timestamp_ms,
            log_append_time_ms=valid.log_append_time_ms,
            log_start_offset=self.log_start_offset,
            size_bytes=header.size_bytes,
        )

    def _write(self, buffers: Sequence[bytes | memoryview], headers: Sequence[BatchHeader]) -> None:
        try:
            self.segments.active.append(buffers, headers)
        except LogDirOfflineError as error:
            self._fail(error)
            raise
        self.log_end_offset = headers[-1].next_offset
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self._unflushed_records += sum(header.record_count for header in headers)
        if self._unflushed_records >= self.config.flush_messages:
            self.flush()

    def _complete(self, completed: Sequence[CompletedTxn]) -> None:
        for txn in completed:
            if txn.is_aborted:
                self.segments.active.transaction_index.append(
                    AbortedTxn(
                        txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
                    )
                )
        self._first_unstable_offset = self.producer_state.first_unstable_offset

    def _assign_epochs(self, headers: Sequence[BatchHeader]) -> None:
        changed = False
        for header in headers:
            if header.leader_epoch >= 0:
                changed |= self.leader_epochs.assign(header.leader_epoch, header.base_offset)
        if changed:
            self._write_epochs()

    def _write_epochs(self) -> None:
        self._fs.write_atomically(
            self.directory / filenames.LEADER_EPOCHS, format_epochs(self.leader_epochs.entries)
        )

    def _fail(self, error: LogDirOfflineError) -> None:
        self._failure = error
        self._on_failure(error)

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._writable:
            raise LogDirOfflineError(self.directory, "opened for reading only")

    # Rolling

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new active segment at the log end, or at a higher offset."""
        with self._lock:
            self._check_writable()
            new_base = max(self.log_end_offset, base_offset or 0)
            active = self.segments.active
            if active.base_offset == new_base:
                if active.size_bytes:
                    raise OffsetOrderError(active.path, new_base + 1, new_base)
                # An empty segment in its own place: recreated, in case its indexes were no use.
                active.close()
            else:
                active.become_inactive()
            self.producer_state.update_map_end_offset(new_base)
            self._snapshots.take(self.producer_state, durable=False)
            segment = Segment.create(
                self._fs, self.directory, new_base, self.config, self._clock.now_ms()
            )
            self.segments.add(segment)
            self.log_end_offset = new_base
            self._jitter_ms = self._draw_jitter()
            self._background(lambda: self._flush_rolled(new_base))
            return segment

    def maybe_roll_idle(self) -> bool:
        """Roll the active segment if it is older than the settings allow, even if nobody appends.

        Kafka looks at the age only when something is appended, so that a quiet topic is never
        compacted, and keeps its deleted records for ever.
        """
        with self._lock:
            active = self.segments.active
            if not active.size_bytes or self._failure is not None:
                return False
            now_ms = self._clock.now_ms()
            started_ms = active.first_timestamp_ms
            waited_ms = now_ms - (started_ms if started_ms >= 0 else active.created_ms)
            if waited_ms <= self.config.max_segment_ms - self._jitter_ms:
                return False
            logger.info("%s: rolling an idle segment after %d ms", self.partition, waited_ms)
            self.roll()
            return True

    def _maybe_roll(
        self, size_bytes: int, last: BatchHeader, now_ms: int, first_offset: int | None = None
    ) -> None:
        active = self.segments.active
        if (
            active.size_bytes + size_bytes > self.config.segment_bytes
            or (active.size_bytes and self._is_too_old(active, last.max_timestamp_ms, now_ms))
            or active.offset_index.is_full
            or active.time_index.is_full
            or not active.fits(last.last_offset)
        ):
            self.roll(first_offset)

    def _is_too_old(self, active: Segment, append_timestamp_ms: int, now_ms: int) -> bool:
        started_ms = active.first_timestamp_ms
        if started_ms >= 0:
            waited_ms = append_timestamp_ms - started_ms
        else:
            waited_ms = now_ms - active.created_ms
        return waited_ms > self.config.max_segment_ms - self._jitter_ms

    def _draw_jitter(self) -> int:
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return random.randrange(limit) if limit else 0

    def _flush_rolled(self, base_offset: int) -> None:
        self.flush(base_offset)
        self._snapshots.flush(base_offset)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        *,
        min_one_batch: bool = True,
    ) -> ReadResult:
        """Return the batches from an offset on: whole ones, as many as fit `max_bytes`.

        The first batch comes whole even if it alone is larger, unless `min_one_batch` is off.
        Where compaction has left a gap, the next batch comes.
        """
        with self._lock:
            if not self.log_start_offset <= offset <= self.log_end_offset:
                raise OffsetOutOfRangeError(
                    str(self.partition), offset, self.log_start_offset, self.log_end_offset
                )
            end_offset = self._end_for(isolation)
            found, upper_offset = self._find_slice(offset, end_offset, max_bytes, min_one_batch)
            aborted: tuple[AbortedTxn, ...] = ()
            if found is not None and isolation is Isolation.COMMITTED:
                aborted = tuple(self.collect_aborted(offset, upper_offset))
            return ReadResult(
                slice=found,
                aborted=aborted,
                high_watermark=self.high_watermark,
                last_stable_offset=self.last_stable_offset,
                log_start_offset=self.log_start_offset,
            )

    def _end_for(self, isolation: Isolation) -> int:
        match isolation:
            case Isolation.LOG_END:
                return self.log_end_offset
            case Isolation.HIGH_WATERMARK:
                return self.high_watermark
            case Isolation.COMMITTED:
                return self.last_stable_offset

    def _find_slice(
        self, offset: int, end_offset: int, max_bytes: int, min_one_batch: bool
    ) -> tuple[FileSlice | None, int]:
        """Return the bytes to read, and an offset that is above all of them."""
        if offset >= end_offset:
            return None, offset
        for segment in self.segments.from_offset(offset):
            if segment.base_offset >= end_offset:
                break
            first = segment.find_batch(offset)
            if first is None:
                continue
            following = self.segments.find_next(segment)
            segment_end = self.log_end_offset if following is None else following.base_offset
            end_position = segment.size_bytes
            if end_offset < segment_end:
                limit = segment.find_batch(end_offset)
                end_position = segment.size_bytes if limit is None else limit.position
            if first.position >= end_position:
                break
            if not min_one_batch and first.header.size_bytes > max_bytes:
                return None, offset
            end = segment.find_end(first.position, max_bytes, end_position)
            entry = segment.offset_index.find_from_position(end)
            upper_offset = segment_end if entry is None else entry.offset + 1
            found = FileSlice(segment.file, first.position, end - first.position)
            return found, min(upper_offset, end_offset)
        return None, offset

    def collect_aborted(self, first_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that have records in a range of offsets."""
        with self._lock:
            found = []
            for segment in self.segments.from_offset(first_offset):
                for txn in segment.transaction_index.entries:
                    if txn.last_offset >= first_offset and txn.first_offset < end_offset:
                        found.append(txn)
                    if txn.last_stable_offset >= end_offset:
                        return found
            return found

    def find_offset_by_timestamp(self, target_ms: int) -> TimestampOffset | None:
        """Return the first record at or after a time, or None if all are older."""
        with self._lock:
            for segment in self.segments:
                if segment.max_timestamp.timestamp_ms >= target_ms:
                    found = segment.find_timestamp(target_ms, self.log_start_offset)
                    if found is not None:
                        return found
            return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """Return the newest timestamp and the first record that has it, or None."""
        with self._lock:
            newest = max(
                (segment.max_timestamp.timestamp_ms for segment in self.segments), default=-1
            )
            return self.find_offset_by_timestamp(newest) if newest >= 0 else None

    # Losing records on purpose

    def delete_old_segments(self) -> int:
        """Remove the segments that retention no longer keeps, and return how many went."""
        with self._lock:
            self._check_writable()
            expired = find_expired(
                self._segment_facts(),
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                now_ms=self._clock.now_ms(),
            )
            count = sum(rule.count for rule in expired)
            if not count:
                return 0
            self._log_expired(expired)
            doomed = list(self.segments)[:count]
            if count == len(self.segments):
                self.roll()
            for segment in doomed:
                self._remove_segment(segment)
            self._raise_log_start(self.segments.first.base_offset)
            return count

    def delete_records(self, offset: int) -> int:
        """Move the log start up to an offset and return where it is now.

        The bytes go with their segment, once all of it lies below.
        """
        with self._lock:
            self._check_writable()
            if self.config.is_compacted and not self.config.deletes:
                raise PolicyViolationError(
                    f"{self.partition}: records of a compacted topic are deleted by tombstones; "
                    "cleanup.policy must include delete"
                )
            if offset == HIGH_WATERMARK_OFFSET:
                offset = self.high_watermark
            if not 0 <= offset <= self.high_watermark:
                raise OffsetOutOfRangeError(
                    str(self.partition), offset, self.log_start_offset, self.high_watermark
                )
            self._raise_log_start(offset)
            return self.log_start_offset

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from an offset on, and say whether there was anything."""
        with self._lock:
            self._check_writable()
            if offset < 0:
                raise InvalidRecordError(str(self.partition), f"cannot truncate to {offset}")
            if offset >= self.log_end_offset:
                return False
            if self.segments.first.base_offset > offset:
                self.truncate_fully_and_start_at(offset)
                return True
            for segment in reversed(list(self.segments)):
                if segment.base_offset > offset:
                    self._remove_segment(segment)
            self.segments.active.truncate_to(offset, self._clock.now_ms())
            self._end_at(offset)
            self._reload_producer_state()
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at an offset."""
        with self._lock:
            self._check_writable()
            for segment in self.segments:
                self._remove_segment(segment)
            self.segments.add(
                Segment.create(self._fs, self.directory, offset, self.config, self._clock.now_ms())
            )
            self.log_start_offset = offset
            self.leader_epochs.clear()
            self._end_at(offset)
            self._snapshots.delete_outside(offset, offset)
            self.producer_state.truncate_fully_and_start_at(offset)
            self._first_unstable_offset = None

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._write_epochs()

    def _reload_producer_state(self) -> None:
        self._snapshots.delete_outside(self.log_start_offset, self.log_end_offset)
        self._snapshots.load_latest(
            self.producer_state,
            log_start_offset=self.log_start_offset,
            end_offset=self.log_end_offset,
            now_ms=self._clock.now_ms(),
            expiration_ms=self._producer_expiration_ms,
        )
        for segment in self.segments.from_offset(self.producer_state.map_end_offset):
            replay_segment(segment, self.producer_state, self.log_end_offset)
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self._snapshots.take(self.producer_state, durable=True)
        self.producer_state.on_high_watermark_updated(self.high_watermark)
        self._first_unstable_offset = self.producer_state.first_unstable_offset

    def _raise_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.recovery_point = max(self.recovery_point, offset)
        if self.leader_epochs.truncate_from_start(offset):
            self._write_epochs()
        self.producer_state.on_log_start_offset_incremented(offset)
        self._first_unstable_offset = self.producer_state.first_unstable_offset

    def _segment_facts(self) -> list[SegmentFacts]:
        segments = list(self.segments)
        bases = [segment.base_offset for segment in segments[1:]]
        return [
            SegmentFacts(
                segment.base_offset,
                next_base,
                segment.size_bytes,
                segment.largest_timestamp_ms,
                is_active=segment is segments[-1],
            )
            for segment, next_base in zip(segments, [*bases, self.log_end_offset], strict=True)
        ]

    def _log_expired(self, expired: Sequence[Expired]) -> None:
        for rule in expired:
            logger.info("%s: deleting %d segments %s", self.partition, rule.count, rule.reason)

    def _remove_segment(self, segment: Segment) -> None:
        """Take a segment out at once; its files go after `file.delete.delay.ms`."""
        self.segments.remove(segment.base_offset)
        segment.rename(filenames.DELETED)
        paths = list(segment.paths())
        snapshot = filenames.snapshot_path(self.directory, segment.base_offset)
        if segment.base_offset in self._snapshots.offsets:
            deleted = filenames.snapshot_path(
                self.directory, segment.base_offset, filenames.DELETED
            )
            self._fs.rename(snapshot, deleted)
            self._snapshots.offsets.discard(segment.base_offset)
            paths.append(deleted)
        segment.close()
        self._doom(paths)

    def _doom(self, paths: Sequence[Path]) -> None:
        due_ms = self._clock.now_ms() + self.config.file_delete_delay_ms
        self._doomed.append((due_ms, tuple(paths)))

    def delete_due_files(self) -> int:
        """Delete the `.deleted` files whose delay has passed, and return how many segments went."""
        with self._lock:
            now_ms = self._clock.now_ms()
            due = [paths for due_ms, paths in self._doomed if due_ms <= now_ms]
            self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        for paths in due:
            for path in paths:
                self._fs.unlink(path)
        return len(due)

    # Durability and the end

    def flush(self, end_offset: int | None = None) -> None:
        """Make everything below an offset durable; the whole log if none is given."""
        with self._lock:
            end_offset = self.log_end_offset if end_offset is None else end_offset
            if end_offset <= self.recovery_point:
                return
            segments = [
                segment
                for segment in self.segments.from_offset(self.recovery_point)
                if segment.base_offset < end_offset
            ]
            unflushed_records = self._unflushed_records
        # Without the lock: appends go on while the disk works.
        try:
            for segment in segments:
                segment.flush()
            # A new segment's name must last as long as its bytes.
            self._fs.fsync_dir(self.directory)
        except LogDirOfflineError as error:
            # What was not written then may be dropped by the kernel, and a later flush would
            # succeed without it. Only reading the file back tells.
            self._fail(error)
            raise
        with self._lock:
            if end_offset > self.recovery_point:
                self.recovery_point = min(end_offset, self.log_end_offset)
                self._last_flushed_ms = self._clock.now_ms()
                self._unflushed_records -= min(unflushed_records, self._unflushed_records)

    def maybe_flush(self) -> bool:
        """Flush if the oldest unflushed append is older than `flush.ms`."""
        with self._lock:
            waited_ms = self._clock.now_ms() - self._last_flushed_ms
            if self.log_end_offset == self.recovery_point or waited_ms < self.config.flush_ms:
                return False
        self.flush()
        return True

    def remove_expired_producers(self) -> int:
        """Forget producers that were silent for too long, and return how many."""
        with self._lock:
            return self.producer_state.remove_expired(
                self._clock.now_ms(), self._producer_expiration_ms
            )

    def update_config(self, config: LogConfig) -> None:
        """Act on changed settings from the next append on."""
        with self._lock:
            self.config = config

    def close(self) -> None:
        """Flush, leave the files as a clean stop leaves them, and let go of them."""
        with self._lock:
            if self._writable and self._failure is None:
                self.flush()
                self._snapshots.take(self.producer_state, durable=True)
                active = self.segments.active
                active.become_inactive()
                active.flush()
            for segment in self.segments:
                segment.close()
            self._writable = False

    def mark_deleted(self, directory: Path) -> None:
        """Learn that the directory was renamed on its way out; nothing is written from here on."""
        with self._lock:
            self.directory = directory
            self._writable = False
            for segment in self.segments:
                segment.close()
