"""One partition on one disk: append, read, roll, truncate.

Offsets, lowest first: log start <= last stable offset <= high watermark <= log end. Appends are in
the page cache when they return; `flush` makes them durable.

All methods may be called from several threads; one lock guards the state.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from siltstone.clock import Clock
from siltstone.errors import OffsetOutOfRangeError, UsageError
from siltstone.ids import TopicId
from siltstone.log import truncation
from siltstone.log.append_info import AppendInfo
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.local_log import FailureListener, LocalLog
from siltstone.log.log_state import LogState
from siltstone.log.origin import AppendOrigin
from siltstone.log.producer_state import CompletedTxn, PreparedUpdate
from siltstone.log.quick_append import append_usual
from siltstone.log.reading import (
    Isolation,
    ReadRange,
    ReadResult,
    collect_aborted,
    find_max_timestamp,
    find_slice,
    find_timestamp,
)
from siltstone.log.recovery import LoadRequest, load_log
from siltstone.log.segment import Segment
from siltstone.log.segments import Segments
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.log.validation import BatchValidator, split_batches
from siltstone.records.batch import BatchHeader
from siltstone.records.layout import NO_PRODUCER_ID
from siltstone.records.varint import Buffer

logger = logging.getLogger(__name__)

HIGH_WATERMARK_OFFSET: Final = -1  # for `delete_records`: everything that is replicated

Background = Callable[[Callable[[], None]], None]


class PartitionLog:
    """The log of one partition: opened when it is made, ended by `close` or `mark_deleted`.

    `background` runs what need not hold up an append (the flush after a roll).
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        request: LoadRequest,
        topic_id: TopicId | None = None,
        background: Background = lambda task: task(),
        on_failure: FailureListener = lambda error: None,
    ) -> None:
        loaded = load_log(fs, request)
        self.partition: Final = request.partition
        self.topic_id: Final = topic_id
        self.producer_state: Final = loaded.producer_state
        self.leader_epochs: Final = loaded.leader_epochs
        self._state: Final = LogState(fs, clock, request, loaded)
        self._local: Final = LocalLog(
            fs,
            clock,
            request.directory,
            request.config,
            loaded,
            writable=request.writable,
            on_failure=on_failure,
        )
        self._validator = BatchValidator(request.partition, request.config)
        self._fs = fs
        self._clock = clock
        self._background = background
        self._snapshots = loaded.snapshots
        self._lock = threading.RLock()

    # What it is now

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        """The settings that act on the next append."""
        return self._local.config

    @property
    def segments(self) -> Segments:
        """The segments, the active one last."""
        return self._local.segments

    @property
    def log_end_offset(self) -> int:
        """The next offset to be appended."""
        return self._local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is durable."""
        return self._local.recovery_point

    @property
    def log_start_offset(self) -> int:
        """The lowest offset that a reader may ask for."""
        return self._state.log_start_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is replicated."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided, and replicated."""
        return self._state.last_stable_offset

    @property
    def size_bytes(self) -> int:
        """The size of all batches together."""
        return self.segments.size_bytes

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or 0."""
        return self._state.latest_epoch

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
            local = self._local
            local.check_writable()
            now_ms = self._clock.now_ms()
            header, buffers, log_append_time_ms, marker = self._validator.validate(
                data,
                origin,
                base_offset=local.log_end_offset,
                leader_epoch=self._state.latest_epoch if leader_epoch is None else leader_epoch,
                now_ms=now_ms,
            )
            size_bytes = header.size_bytes
            self._validator.check_fits_segment(size_bytes)
            prepared = None
            if header.producer_id > NO_PRODUCER_ID:
                if origin is AppendOrigin.CLIENT:
                    duplicate = self.producer_state.find_duplicate(header)
                    if duplicate is not None:
                        return AppendInfo.of_duplicate(duplicate, self.log_start_offset, size_bytes)
                prepared = self.producer_state.prepare(
                    header, origin, marker, transaction_version=transaction_version
                )
            self._write(buffers, (header,), size_bytes, prepared, now_ms)
            # By position, as this is on the way of every batch.
            return AppendInfo(
                header.base_offset,
                header.last_offset,
                header.max_timestamp_ms,
                log_append_time_ms,
                self._state.log_start_offset,
                size_bytes,
            )

    def try_append(self, data: Buffer) -> AppendInfo | None:
        """Append a client's batch as `append` does, if it is a usual one and nothing has to wait.

        None says that it is not, and that nothing has changed.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return append_usual(
                data, self._local, self._state, self._validator, self._clock.now_ms()
            )
        finally:
            self._lock.release()

    def append_as_follower(self, data: Buffer) -> AppendInfo | None:
        """Append what the leader stored, byte for byte; None if there is no whole batch in it."""
        with self._lock:
            self._local.check_writable()
            batches = split_batches(data)
            if not batches:
                return None
            headers = [batch.header for batch in batches]
            self._local.check_order(headers)
            size_bytes = sum(header.size_bytes for header in headers)
            self._validator.check_fits_segment(size_bytes)
            prepared = self.producer_state.prepare_all(
                ((batch.header, batch.marker()) for batch in batches), AppendOrigin.REPLICATION
            )
            buffers = [batch.data for batch in batches]
            self._write(buffers, headers, size_bytes, prepared, self._clock.now_ms())
            return AppendInfo.of_batches(headers, self.log_start_offset, size_bytes)

    def extend(self) -> None:
        """Take in what the owner has appended since this log was opened for reading."""
        with self._lock:
            for batch in self._local.extend():
                self._complete(self.producer_state.replay(batch.header, batch.marker()))
            self.update_high_watermark(self.log_end_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log, and return where it is now."""
        with self._lock:
            return self._state.update_high_watermark(offset, self.log_end_offset)

    def _write(
        self,
        buffers: Sequence[bytes | memoryview],
        headers: Sequence[BatchHeader],
        size_bytes: int,
        prepared: PreparedUpdate | None,
        now_ms: int,
    ) -> None:
        """Write checked batches, and only then let the state know of them."""
        local = self._local
        with local.writing:
            self._state.assign_epochs(headers)
            if local.must_roll(size_bytes, headers, now_ms):
                self._roll(max(local.log_end_offset, headers[0].base_offset))
            local.append(buffers, headers)
            if prepared is not None:
                self._complete(self.producer_state.apply(prepared))
            self.producer_state.update_map_end_offset(local.log_end_offset)

    def _complete(self, completed: Sequence[CompletedTxn]) -> None:
        self._state.complete(completed, self.segments.active.transaction_index)

    # Rolling

    def roll(self) -> Segment:
        """Begin a new active segment at the log end."""
        with self._lock:
            self._local.check_writable()
            with self._local.writing:
                self._roll(self.log_end_offset)
            return self.segments.active

    def is_over_age(self, newest_ms: int) -> bool:
        """Say whether an append of records up to this time begins a new segment, by its age."""
        return self._local.is_over_age_for(newest_ms)

    def is_full_for(self, size_bytes: int) -> bool:
        """Say whether an append of so many bytes, now, begins a new segment."""
        now_ms = self._clock.now_ms()
        # A new segment in place of one that is empty would have no more room.
        return self.segments.active.size_bytes > 0 and self._local.is_full_for(
            size_bytes, now_ms, now_ms
        )

    def roll_ahead(self, size_bytes: int) -> None:
        """Roll if an append of so many bytes would, so that it need not wait for the disk."""
        self.flush()  # Most of it without the lock: appends and reads go on.
        with self._lock:
            if self._local.is_writable and self.is_full_for(size_bytes):
                self.roll()

    def maybe_roll_idle(self) -> bool:
        """Roll the active segment if it is over age, even if nobody appends any more.

        Kafka looks at the age only when something is appended, so that a quiet topic is never
        compacted, and keeps its deleted records for ever.
        """
        with self._lock:
            if not self._local.is_writable or not self._local.is_idle_and_old():
                return False
            logger.info("%s: rolling its idle active segment", self.partition)
            self.roll()
            return True

    def _roll(self, base_offset: int) -> None:
        self.producer_state.update_map_end_offset(base_offset)
        self._snapshots.take(self.producer_state, durable=False)
        self._local.seal(base_offset)
        # Before its successor exists: one that outlived its tail would leave a hole behind it.
        self._background(lambda: self._flush_sealed(base_offset))
        self._local.roll()

    def _flush_sealed(self, base_offset: int) -> None:
        self._local.flush(base_offset)
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
            end_offset = self._state.end_for(isolation, self.log_end_offset)
            wanted = ReadRange(offset, end_offset, max_bytes, min_one_batch)
            found = find_slice(self.segments, self.log_end_offset, wanted)
            aborted: tuple[AbortedTxn, ...] = ()
            if found is not None and isolation is Isolation.COMMITTED:
                upper_offset = min(found.offset_above(), end_offset)
                aborted = tuple(collect_aborted(self.segments, offset, upper_offset))
            return ReadResult(
                slice=None if found is None else found.slice,
                aborted=aborted,
                high_watermark=self.high_watermark,
                last_stable_offset=self.last_stable_offset,
                log_start_offset=self.log_start_offset,
            )

    def collect_aborted(self, first_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that have records in a range of offsets."""
        with self._lock:
            return collect_aborted(self.segments, first_offset, end_offset)

    def find_offset_by_timestamp(self, target_ms: int) -> TimestampOffset | None:
        """Return the first record at or after a time, or None if all are older."""
        with self._lock:
            return find_timestamp(self.segments, target_ms, self.log_start_offset)

    def find_max_timestamp(self) -> TimestampOffset | None:
        """Return the newest timestamp and the first record that has it, or None."""
        with self._lock:
            return find_max_timestamp(self.segments, self.log_start_offset)

    # Losing records on purpose

    def delete_old_segments(self) -> int:
        """Remove the segments that retention no longer keeps, and return how many went."""
        with self._lock:
            self._local.check_writable()
            expired = self._local.find_expired(self.log_start_offset, self.high_watermark)
            for rule in expired:
                logger.info("%s: deleting %d segments %s", self.partition, rule.count, rule.reason)
            count = sum(rule.count for rule in expired)
            self.remove_oldest_segments(count)
            return count

    def remove_oldest_segments(self, count: int) -> None:
        """Remove so many segments, oldest first, whatever the policy; the log start follows.

        If none would be left, the log goes on with a new one where it ended.
        """
        with self._lock:
            self._local.check_writable()
            doomed = list(self.segments)[:count]
            if not doomed:
                return
            with self._local.writing:
                if len(doomed) == len(self.segments):
                    self._roll(self.log_end_offset)
                for segment in doomed:
                    truncation.remove_segment(self._local, self._state, segment)
                truncation.raise_log_start(
                    self._local, self._state, self.segments.first.base_offset
                )

    def delete_records(self, offset: int) -> int:
        """Move the log start up to an offset and return where it is now.

        The bytes go with their segment, once all of it lies below.
        """
        with self._lock:
            self._local.check_writable()
            if offset == HIGH_WATERMARK_OFFSET:
                offset = self.high_watermark
            truncation.delete_below(self.partition, self._local, self._state, offset)
            return self.log_start_offset

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from an offset on, and say whether there was anything."""
        if offset < 0:
            raise UsageError(f"{self.partition}: cannot truncate to offset {offset}")
        with self._lock:
            self._local.check_writable()
            return truncation.truncate(self._fs, self.partition, self._local, self._state, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at an offset."""
        with self._lock:
            self._local.check_writable()
            truncation.start_over(self._fs, self.partition, self._local, self._state, offset)

    def delete_due_files(self) -> int:
        """Delete the `.deleted` files whose delay has passed, and return how many."""
        with self._lock:
            return self._local.delete_due_files()

    # Who else works on it

    @property
    def is_busy(self) -> bool:
        """Whether another thread holds the log still, and may wait for the disk meanwhile."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return False
        return True

    def wait_until_free(self) -> None:
        """Return when no other thread holds the log still."""
        with self._lock:
            pass

    # Swapping in what a pass wrote

    def exclusively(self) -> threading.RLock:
        """Hold the log still: for a check and a swap that must see the same log."""
        return self._lock

    def open_cleaned_segment(self, base_offset: int, size_bytes: int) -> Segment:
        """Return the segment behind complete `.cleaned` files."""
        return self._local.open_cleaned_segment(base_offset, size_bytes)

    def swap_segments(self, new: Sequence[Segment], replaced: Sequence[int]) -> None:
        """Put cleaned segments in the place of the ones with these base offsets.

        A reader inside of one of them finishes it; the files go after `file.delete.delay.ms`.
        """
        with self._lock:
            self._local.check_writable()
            with self._local.writing:
                self._local.swap(new, replaced)
                kept = {segment.base_offset for segment in new}
                for base_offset in (base for base in replaced if base not in kept):
                    self._snapshots.delete(base_offset)

    # Durability, settings and the end

    def flush(self) -> None:
        """Make everything durable that was appended before this call."""
        # Without the lock: appends go on while the disk works.
        self._local.flush(self.log_end_offset)

    def maybe_flush(self) -> bool:
        """Flush if the oldest append that is not durable is older than `flush.ms`."""
        with self._lock:
            is_due = self._local.is_flush_due()
        if is_due:
            self.flush()
        return is_due

    def remove_expired_producers(self) -> int:
        """Forget producers that were silent for too long, and return how many."""
        with self._lock:
            return self._state.remove_expired_producers()

    def update_config(self, config: LogConfig) -> None:
        """Act on changed settings from the next append on."""
        with self._lock:
            self._local.config = config
            self._validator = BatchValidator(self.partition, config)

    def close(self) -> None:
        """Flush, leave the files as a clean stop leaves them, and let go of them."""
        with self._lock:
            if self._local.is_writable:
                self._local.flush(self.log_end_offset)
                with self._local.writing:
                    self._snapshots.take(self.producer_state, durable=True)
            self._local.close()

    def mark_deleted(self, directory: Path) -> None:
        """Learn that the directory was renamed on its way out; nothing is written any more."""
        with self._lock:
            self._local.abandon(directory)
