"""Open a partition directory in whatever state the last owner, or a crash, left it.

After a clean stop the files are trusted, and only an index that is missing or makes no sense is
built anew. After an unclean one, every segment from the recovery point on is walked and cut after
its last sound batch. In a directory of somebody else's (`writable=False`) the same conclusions are
drawn in memory and nothing on disk is touched.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
)
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import format_epochs, parse_epochs
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.leader_epochs import LeaderEpochs
from siltstone.log.load_plan import LoadPlan, plan_load
from siltstone.log.producer_snapshots import ProducerSnapshots
from siltstone.log.producer_state import ProducerState
from siltstone.log.replay import replay_segment
from siltstone.log.segment import Segment
from siltstone.log.segment_recovery import SegmentOverflowError, recover_segment
from siltstone.log.segments import Segments
from siltstone.log.swap import swap_in
from siltstone.records.batch import Batch, BatchHeader

logger = logging.getLogger(__name__)

DEFAULT_PRODUCER_EXPIRATION_MS: Final = 86_400_000  # `producer.id.expiration.ms`
_SPLIT_APPEND_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What the owner of a log directory knows before it opens one of its partitions."""

    partition: TopicPartition
    directory: Path
    config: LogConfig
    now_ms: int
    log_start_offset: int = 0  # checkpointed
    recovery_point: int = 0  # checkpointed
    was_clean: bool = False
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    writable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A partition's state, consistent with its files."""

    segments: Segments
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producer_state: ProducerState
    snapshots: ProducerSnapshots
    leader_epochs: LeaderEpochs
    discarded: tuple[Segment, ...]  # unreachable behind a cut: `.deleted`, not yet removed


def load_log(fs: FileSystem, request: LoadRequest) -> LoadedLog:
    """Open a partition directory, creating it if it is not there."""
    return _Loader(fs, request).load()


class _Loader:
    def __init__(self, fs: FileSystem, request: LoadRequest) -> None:
        self._fs = fs
        self._request = request
        self._directory = request.directory
        self._segments = Segments()
        self._discarded: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._state = ProducerState(request.partition)

    def load(self) -> LoadedLog:
        request = self._request
        if request.writable:
            self._fs.mkdir(self._directory)
        self._epochs = self._read_epochs()
        epochs_before = self._epochs.entries
        while True:
            plan = self._plan()
            if request.writable:
                self._carry_out(plan)
            self._snapshots = ProducerSnapshots(
                self._fs, self._directory, plan.remaining, writable=request.writable
            )
            try:
                self._open_segments(plan)
                if not request.was_clean:
                    self._recover(self._segments.from_offset(request.recovery_point))
                break
            except SegmentOverflowError as error:
                if not request.writable:
                    reason = "offsets do not fit the base offset: its owner must split the segment"
                    raise CorruptBatchError(error.args[0], 0, reason) from error
                # Split and start over: the directory looks different now.
                self._split_overflowed()

        log_end_offset = self._find_end()
        log_start_offset = max(request.log_start_offset, self._segments.first.base_offset)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        if request.writable and self._epochs.entries != epochs_before:
            self._fs.write_atomically(
                self._directory / filenames.LEADER_EPOCHS, format_epochs(self._epochs.entries)
            )
        self._snapshots.delete_strays(self._segments.base_offsets)
        self._rebuild_producer_state(log_start_offset, log_end_offset)
        recovery_point = (
            log_end_offset if request.was_clean else min(request.recovery_point, log_end_offset)
        )
        recovery_point = max(recovery_point, log_start_offset)  # Nobody reads what is below.
        return LoadedLog(
            segments=self._segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            producer_state=self._state,
            snapshots=self._snapshots,
            leader_epochs=self._epochs,
            discarded=tuple(self._discarded),
        )

    def _plan(self) -> LoadPlan:
        try:
            names = self._fs.list_names(self._directory)
        except FileNotFoundError:
            names = []

        def find_next_offset(base_offset: int) -> int:
            return self._segment(base_offset, filenames.SWAP, writable=False).next_offset()

        return plan_load(names, find_next_offset)

    def _carry_out(self, plan: LoadPlan) -> None:
        for name in plan.deletions:
            logger.info("deleting left-over %s", self._directory / name)
            self._fs.unlink(self._directory / name)
        for source, target in plan.renames:
            self._fs.rename(self._directory / source, self._directory / target)
        if plan.deletions or plan.renames:
            self._fs.fsync_dir(self._directory)

    def _segment(self, base_offset: int, suffix: str = "", *, writable: bool) -> Segment:
        path = filenames.log_path(self._directory, base_offset, suffix)
        return Segment(
            self._fs,
            self._directory,
            base_offset,
            self._request.config,
            created_ms=self._request.now_ms,
            size_bytes=path.stat().st_size,
            suffix=suffix,
            writable=writable,
        )

    def _open_segments(self, plan: LoadPlan) -> None:
        request = self._request
        self._segments = Segments()
        names = set(plan.remaining)
        if not request.writable:
            # Files of a swap that we must not finish still bear other names. Its indexes count as
            # missing, or what is only in the one of aborted transactions would be overlooked.
            for _, target in plan.renames:
                names.discard(Path(target).with_suffix(filenames.OFFSET_INDEX).name)
        for base_offset, suffix in plan.segments:
            segment = self._segment(
                base_offset, "" if request.writable else suffix, writable=request.writable
            )
            self._segments.add(segment)
        for segment in self._segments:
            will_be_recovered = (
                not request.was_clean and segment.base_offset >= request.recovery_point
            )
            if not will_be_recovered:
                self._check_indexes(segment, names)
                segment.close()  # There may be more than a process may have open at once.

    def _check_indexes(self, segment: Segment, names: set[str]) -> None:
        """Rebuild the indexes of one segment if they are missing or cannot be right."""
        paths = (segment.offset_index.file.path, segment.time_index.file.path)
        try:
            missing = [path.name for path in paths if path.name not in names]
            if missing and segment.size_bytes:
                raise CorruptIndexError(segment.path, f"{missing[0]} is missing")
            segment.offset_index.check_ends(segment.size_bytes)
            segment.time_index.check_ends()
            segment.transaction_index.check()
        except CorruptIndexError as error:
            logger.warning("%s: rebuilding the indexes of the segment", error)
            self._load_state_before(segment.base_offset)
            found = recover_segment(segment, self._state, self._epochs)
            if found.cut_bytes:
                # Nobody crashed here, so the bytes are damaged, not torn. They stay, and readers
                # that get there are told; cutting would take all segments after this one along.
                logger.error(
                    "%s is damaged at position %d: %s",
                    segment.path,
                    segment.size_bytes,
                    found.reason,
                )
                segment.size_bytes += found.cut_bytes

    def _recover(self, segments: Sequence[Segment]) -> None:
        """Recover segments in order; a cut in one makes all after it unreachable."""
        request = self._request
        if not segments:
            return
        self._load_state_before(segments[0].base_offset)
        for segment in segments:
            self._state.update_map_end_offset(segment.base_offset)
            self._snapshots.take(self._state, durable=True)
            # Who has expired since does not come back with what was known of him before.
            self._remove_expired()
            found = recover_segment(segment, self._state, self._epochs)
            self._snapshots.take(self._state, durable=True)
            if not found.cut_bytes:
                segment.close()
                continue
            for unreachable in self._segments.from_offset(segment.base_offset)[1:]:
                self._discard(unreachable, "it follows a cut segment")
            if request.writable:
                logger.warning(
                    "%s: cut %d bytes at position %d: %s",
                    segment.path,
                    found.cut_bytes,
                    segment.size_bytes,
                    found.reason,
                )
                # Last: once it is cut, nothing tells any more that the others must go.
                self._fs.truncate(segment.file, segment.size_bytes)
            break

    def _discard(self, segment: Segment, reason: str) -> None:
        """Take a segment out; the owner of the log deletes its files later."""
        self._segments.remove(segment.base_offset)
        if self._request.writable:
            logger.warning("%s: deleted, %s", segment.path, reason)
            segment.rename(filenames.DELETED)
            self._discarded.append(segment)

    def _load_state_before(self, offset: int) -> None:
        request = self._request
        self._snapshots.load_latest(
            self._state,
            log_start_offset=min(request.log_start_offset, offset),
            end_offset=offset,
            now_ms=request.now_ms,
            expiration_ms=request.producer_expiration_ms,
        )
        self._replay_to(offset)

    def _replay_to(self, end_offset: int, snapshot_at: frozenset[int] = frozenset()) -> None:
        """Bring the producer state up to an offset from the batches before it."""
        state = self._state
        if not len(self._segments):
            state.update_map_end_offset(end_offset)
            return
        for segment in self._segments.from_offset(state.map_end_offset):
            if segment.base_offset >= end_offset:
                break
            if segment.base_offset in snapshot_at and segment.base_offset >= state.map_end_offset:
                state.update_map_end_offset(segment.base_offset)
                self._snapshots.take(state, durable=True)
            replay_segment(segment, state, end_offset)
        state.update_map_end_offset(end_offset)

    def _find_end(self) -> int:
        """Return the log end offset, with an active segment in any case."""
        request = self._request
        log_end_offset = 0
        if len(self._segments):
            log_end_offset = self._segments.active.next_offset()
            if log_end_offset < request.log_start_offset:
                logger.warning(
                    "%s ends at %d, before its log start %d: starting anew there",
                    self._directory,
                    log_end_offset,
                    request.log_start_offset,
                )
                for segment in self._segments:
                    self._discard(segment, "it lies before the log start")
        if not len(self._segments):
            log_end_offset = request.log_start_offset
            self._segments.add(self._new_segment(log_end_offset))
        return log_end_offset

    def _new_segment(self, base_offset: int) -> Segment:
        request = self._request
        if not request.writable:
            return Segment(
                self._fs,
                self._directory,
                base_offset,
                request.config,
                created_ms=request.now_ms,
                size_bytes=0,
                writable=False,
            )
        return Segment.create(
            self._fs, self._directory, base_offset, request.config, request.now_ms
        )

    def _rebuild_producer_state(self, log_start_offset: int, log_end_offset: int) -> None:
        self._snapshots.delete_outside(log_start_offset, log_end_offset)
        # Recovery has read more than a replay would: also what lies below the log start, but in
        # its segment. A producer's last batch may be there, and without it the next is refused.
        is_recovered = (
            not self._request.was_clean
            and log_start_offset < log_end_offset
            and self._state.map_end_offset == log_end_offset
        )
        if is_recovered:
            self._remove_expired()
        else:
            self._snapshots.load_latest(
                self._state,
                log_start_offset=log_start_offset,
                end_offset=log_end_offset,
                now_ms=self._request.now_ms,
                expiration_ms=self._request.producer_expiration_ms,
            )
            # The next unclean stop starts its replay at one of these.
            last_two = frozenset(self._segments.base_offsets[-2:])
            self._replay_to(log_end_offset, last_two)
        if self._request.writable:
            self._snapshots.take(self._state, durable=True)

    def _remove_expired(self) -> None:
        self._state.remove_expired(self._request.now_ms, self._request.producer_expiration_ms)

    def _read_epochs(self) -> LeaderEpochs:
        path = self._directory / filenames.LEADER_EPOCHS
        data = self._fs.read_file(path)
        if data is None:
            if self._request.writable:
                # Empty, without a count, as Kafka creates it; lost in a crash, it is made again.
                self._fs.write_file(path, b"", durable=False)
            return LeaderEpochs()
        try:
            return LeaderEpochs(parse_epochs(path, data))
        except CorruptCheckpointError as error:
            logger.warning("%s: leader epochs are lost", error)
            return LeaderEpochs()

    def _split_overflowed(self) -> None:
        for segment in self._segments:
            parts = split_segment(self._fs, segment, self._request.config, self._request.now_ms)
            if parts:
                logger.warning("%s: split into %d segments", segment.path, len(parts))


def split_segment(
    fs: FileSystem, segment: Segment, config: LogConfig, now_ms: int
) -> list[Segment]:
    """Split a segment whose offsets do not fit its base; an empty list if they all do.

    Brokers of old wrote such segments. The parts replace it by the same swap as cleaned ones.
    What lies behind the last sound batch goes along with the last part: whether it is to be cut is
    for recovery to say.
    """
    if not _overflows(segment):
        return []
    parts: list[Segment] = []
    pending: list[tuple[memoryview, BatchHeader]] = []

    def write_pending() -> None:
        if pending:
            parts[-1].append([data for data, _ in pending], [header for _, header in pending])
            pending.clear()

    for _, batch in _iter_sound_batches(segment):
        header = batch.header
        if not parts or not parts[-1].fits(header.last_offset):
            write_pending()
            # The first part takes over the whole's name, unless it does not fit that either.
            is_first = not parts and segment.fits(header.last_offset)
            parts.append(
                Segment.create(
                    fs,
                    segment.directory,
                    segment.base_offset if is_first else header.base_offset,
                    config,
                    now_ms,
                    suffix=filenames.CLEANED,
                )
            )
        pending.append((batch.data, header))
        if sum(len(data) for data, _ in pending) >= _SPLIT_APPEND_BYTES:
            write_pending()
    write_pending()
    if not parts:
        return []
    while rest := segment.file.read(sum(part.size_bytes for part in parts), _SPLIT_APPEND_BYTES):
        fs.write(parts[-1].file, parts[-1].size_bytes, [rest])
        parts[-1].size_bytes += len(rest)
    modified = segment.path.stat()
    for part in parts:
        part.become_inactive()
        os.utime(part.path, ns=(modified.st_atime_ns, modified.st_mtime_ns))
    swap_in(fs, segment.directory, parts, [segment])
    return parts


def _overflows(segment: Segment) -> bool:
    try:
        return not all(segment.fits(stored.header.last_offset) for stored in segment.iter_headers())
    except CorruptBatchError:
        return False  # All that lies before the damage fits.


def _iter_sound_batches(segment: Segment) -> Iterator[tuple[int, Batch]]:
    next_offset = segment.base_offset
    try:
        for position, batch in segment.iter_batches():
            if batch.header.base_offset < next_offset:
                return
            yield position, batch
            next_offset = batch.header.next_offset
    except CorruptBatchError:
        return
