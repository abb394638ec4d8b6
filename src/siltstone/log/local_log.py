"""The segments of one log as files: append, roll, flush, cut, remove. No record is looked into.

A write that the disk refused is sticky. What was on disk before is served on, but nothing is
written until the log is opened anew, because nobody knows what the failed write left behind.

The caller holds the log's lock, but for `flush`, during which appends go on.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from siltstone.clock import Clock
from siltstone.errors import LogDirOfflineError, OffsetOrderError
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.delayed_deletion import DelayedDeletion
from siltstone.log.filesystem import FileSystem
from siltstone.log.recovery import LoadedLog
from siltstone.log.retention import Expired, SegmentFacts, find_expired
from siltstone.log.segment import Segment
from siltstone.log.swap import swap_in
from siltstone.records.batch import Batch, BatchHeader, TimestampType
from siltstone.settings import MAX_LONG

FailureListener = Callable[[LogDirOfflineError], None]


class _WritingGuard:
    """Guards writes to the files of a log: if the disk refuses one, it was the last.

    A class, and made once per log, because it stands around every append.
    """

    __slots__ = ("_log",)

    def __init__(self, log: "LocalLog") -> None:
        self._log = log

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and isinstance(error, LogDirOfflineError):
            self._log.fail(error)


class LocalLog:
    """Files of a log and how far they go: to the log end, and durably to the recovery point."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directory: Path,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        writable: bool,
        on_failure: FailureListener,
    ) -> None:
        self.directory = directory
        self.config = config  # also sets what is looked at for every append
        self.segments = loaded.segments
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._fs = fs
        self._clock = clock
        self._writable = writable
        self._on_failure = on_failure
        self._failure: LogDirOfflineError | None = None
        self.writing = _WritingGuard(self)
        self._last_flushed_ms = clock.now_ms()
        self._jitter_ms = self._draw_jitter()
        self._seen_end_offset = self.log_end_offset  # when somebody last looked for idleness
        self._doomed = DelayedDeletion(fs)
        for segment in loaded.discarded:
            self._doom(segment.paths())

    @property
    def config(self) -> LogConfig:
        """The settings that act on the next append."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._max_segment_ms = config.max_segment_ms
        self._segment_bytes = config.segment_bytes
        self._flushes_when_asked = config.flush_messages == MAX_LONG

    @property
    def is_writable(self) -> bool:
        """Whether the log is open for writing and the disk has never refused."""
        return self._writable and self._failure is None

    def check_writable(self) -> None:
        """Raise LogDirOfflineError unless the log may be written."""
        if self._failure is not None:
            raise self._failure
        if not self._writable:
            raise LogDirOfflineError(self.directory, "opened for reading only")

    def check_order(self, headers: Sequence[BatchHeader]) -> None:
        """Raise OffsetOrderError unless batches follow the log, and one another."""
        next_offset = self.log_end_offset
        for header in headers:
            if header.base_offset < next_offset:
                raise OffsetOrderError(self.segments.active.path, next_offset, header.base_offset)
            next_offset = header.next_offset

    def fail(self, error: LogDirOfflineError) -> None:
        """Write nothing any more: the disk has refused."""
        self._failure = error
        self._on_failure(error)

    # Growing

    def append(self, buffers: Sequence[bytes | memoryview], headers: Sequence[BatchHeader]) -> None:
        """Append batches to the active segment; in the page cache when this returns."""
        self.segments.active.append(buffers, headers)
        self.log_end_offset = end_offset = headers[-1].next_offset
        if end_offset - self.recovery_point >= self._config.flush_messages:
            self.flush(end_offset)

    def takes_at_once(self, size_bytes: int) -> bool:
        """Say whether so many bytes can be appended without a wait for the disk."""
        if self._failure is not None or not self._writable or not self._flushes_when_asked:
            return False
        active = self.segments.active
        return active.size_bytes + size_bytes <= self._segment_bytes and not active.is_index_full

    def extend(self) -> list[Batch]:
        """Take in what another process has appended to the active segment since it was opened.

        For a log that is open for reading only. A batch that is not complete yet is left for
        the next time.
        """
        batches = self.segments.active.extend()
        if batches:
            self.log_end_offset = batches[-1].header.next_offset
        return batches

    def must_roll(self, size_bytes: int, headers: Sequence[BatchHeader], now_ms: int) -> bool:
        """Say whether an append of so many bytes needs a new segment first."""
        newest_ms = headers[0].max_timestamp_ms
        if len(headers) > 1:
            newest_ms = max(header.max_timestamp_ms for header in headers)
        return self.is_full_for(size_bytes, newest_ms, now_ms) or not self.segments.active.fits(
            headers[-1].last_offset
        )

    def is_full_for(self, size_bytes: int, newest_ms: int, now_ms: int) -> bool:
        """Say whether the active segment has no room for so many bytes, or is too old for them."""
        active = self.segments.active
        return (
            active.size_bytes + size_bytes > self._config.segment_bytes
            or self.is_over_age(newest_ms, now_ms)
            or active.is_index_full
        )

    def is_idle_and_old(self) -> bool:
        """Say whether the active segment is over age and got nothing since the last call.

        Its age is that of its records. Idleness counts as well, or a log that is being filled
        with old records would roll at every call.
        """
        is_idle = self.log_end_offset == self._seen_end_offset
        self._seen_end_offset = self.log_end_offset
        now_ms = self._clock.now_ms()
        return is_idle and self.is_over_age(now_ms, now_ms)

    def seal(self, base_offset: int) -> None:
        """Complete the active segment; the log goes on at an offset at or above its end."""
        active = self.segments.active
        if active.base_offset == base_offset:
            if active.size_bytes:
                raise OffsetOrderError(active.path, base_offset + 1, base_offset)
            # An empty segment in its own place: made anew, in case its indexes were no use.
            active.close()
        else:
            active.become_inactive()
            # The end of its indexes is not durable, even if every batch is.
            self.recovery_point = min(self.recovery_point, active.base_offset)
        self.log_end_offset = base_offset

    def roll(self) -> None:
        """Begin a new active segment after the sealed one."""
        self.segments.add(self._create_segment(self.log_end_offset))
        self._jitter_ms = self._draw_jitter()

    def is_over_age(self, newest_ms: int, now_ms: int) -> bool:
        """Say whether the active segment is too old to take records up to a time."""
        active = self.segments.active
        if not active.size_bytes:
            return False
        started_ms = active.first_timestamp_ms
        waited_ms = newest_ms - started_ms if started_ms >= 0 else now_ms - active.created_ms
        return waited_ms > self._max_segment_ms - self._jitter_ms

    def is_over_age_for(self, newest_ms: int) -> bool:
        """Say the same of an append now, of records that a producer gave times up to this one."""
        now_ms = self._clock.now_ms()
        is_append_time = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return self.is_over_age(now_ms if is_append_time else newest_ms, now_ms)

    def _draw_jitter(self) -> int:
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return random.randrange(limit) if limit else 0

    def _create_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self._fs, self.directory, base_offset, self.config, self._clock.now_ms()
        )

    # Becoming durable

    def flush(self, end_offset: int) -> None:
        """Make everything below an offset durable.

        A failure is final: what the kernel could not write it may have dropped, and a second
        fsync would succeed without it. Only reading the files back tells.
        """
        if end_offset <= self.recovery_point:
            return
        with self.writing:
            for segment in self.segments.from_offset(self.recovery_point):
                if segment.base_offset < end_offset:
                    # Retention may take it away at this moment.
                    with contextlib.suppress(FileNotFoundError):
                        segment.flush()
            # A new segment's name must last as long as its bytes.
            self._fs.fsync_dir(self.directory)
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))
        self._last_flushed_ms = self._clock.now_ms()

    def is_flush_due(self) -> bool:
        """Say whether there are appends older than `flush.ms` that are not durable."""
        waited_ms = self._clock.now_ms() - self._last_flushed_ms
        return self.log_end_offset > self.recovery_point and waited_ms >= self.config.flush_ms

    # Shrinking

    def segment_facts(self) -> list[SegmentFacts]:
        """Describe the segments to retention."""
        segments = list(self.segments)
        next_bases = [*(segment.base_offset for segment in segments[1:]), self.log_end_offset]
        return [
            SegmentFacts(
                segment.base_offset,
                next_base,
                segment.size_bytes,
                segment.largest_timestamp_ms,
                is_active=segment is segments[-1],
            )
            for segment, next_base in zip(segments, next_bases, strict=True)
        ]

    def remove(self, segment: Segment, companions: Sequence[Path] = ()) -> None:
        """Take a segment out at once; its files, and others of its, go after a delay."""
        self.segments.remove(segment.base_offset)
        segment.rename(filenames.DELETED)
        segment.close()
        self._drop_key_index(segment)
        self._doom([*segment.paths(), *companions])

    def find_expired(self, log_start_offset: int, high_watermark: int) -> list[Expired]:
        """Find the segments that retention no longer keeps."""
        return find_expired(
            self.segment_facts(),
            self.config,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            now_ms=self._clock.now_ms(),
        )

    def open_cleaned_segment(self, base_offset: int, size_bytes: int) -> Segment:
        """Return the segment behind complete `.cleaned` files."""
        return Segment(
            self._fs,
            self.directory,
            base_offset,
            self.config,
            created_ms=self._clock.now_ms(),
            size_bytes=size_bytes,
            suffix=filenames.CLEANED,
        )

    def swap(self, new: Sequence[Segment], replaced: Sequence[int]) -> None:
        """Swap cleaned segments in; the replaced files go after a delay."""
        old = [s for base in replaced if (s := self.segments.find(base)) is not None]
        swap_in(self._fs, self.directory, new, old)
        for segment in old:
            self.segments.remove(segment.base_offset)
            segment.close()
            self._drop_key_index(segment)
            self._doom(segment.paths())
        for segment in new:
            self.segments.add(segment)

    def truncate_to(self, offset: int) -> None:
        """Cut the segment that holds an offset; the ones above it are gone already."""
        self.segments.active.truncate_to(offset, self._clock.now_ms())
        self.segments.active.flush()  # Or batches could be back whose epochs are forgotten.
        self._end_at(offset)

    def start_at(self, offset: int) -> None:
        """Go on, with no segment left, at an offset."""
        self.segments.add(self._create_segment(offset))
        self._end_at(offset)

    def skip_to(self, offset: int) -> None:
        """Count what lies below an offset as durable: nobody will read it again."""
        self.recovery_point = max(self.recovery_point, offset)

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    def _drop_key_index(self, segment: Segment) -> None:
        # At once: who has it open reads on, and it is no use to anybody else.
        self._fs.unlink(filenames.key_index_path(self.directory, segment.base_offset))

    def _doom(self, paths: Sequence[Path]) -> None:
        self._doomed.add(paths, self._clock.now_ms() + self.config.file_delete_delay_ms)

    def delete_due_files(self) -> int:
        """Delete the `.deleted` files whose delay has passed, and return how many."""
        with self.writing:
            return self._doomed.delete_due(self._clock.now_ms())

    # The end

    def close(self) -> None:
        """Leave the files as a clean stop leaves them, and let go of them."""
        if self.is_writable:
            with self.writing:
                active = self.segments.active
                active.become_inactive()
                active.flush()
                # After a clean stop nobody looks for what is missing, like a transaction index.
                self._fs.fsync_dir(self.directory)
        self.abandon(self.directory)

    def abandon(self, directory: Path) -> None:
        """Let go of the files, which lie in `directory` now, as they are."""
        self.directory = directory
        self._writable = False
        for segment in self.segments:
            segment.close()
