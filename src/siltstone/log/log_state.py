"""What follows from the batches of a log besides their bytes: offsets, producers, leader epochs."""

from collections.abc import Sequence
from typing import Final

from siltstone.clock import Clock
from siltstone.log import filenames
from siltstone.log.checkpoint import format_epochs
from siltstone.log.filesystem import FileSystem
from siltstone.log.producer_state import CompletedTxn
from siltstone.log.reading import Isolation
from siltstone.log.recovery import LoadedLog, LoadRequest
from siltstone.log.replay import replay_segment
from siltstone.log.segments import Segments
from siltstone.log.transaction_index import AbortedTxn, TransactionIndex
from siltstone.records.batch import BatchHeader


class LogState:
    """Follows what the log does to its batches; guarded by the log's lock."""

    def __init__(
        self, fs: FileSystem, clock: Clock, request: LoadRequest, loaded: LoadedLog
    ) -> None:
        self.log_start_offset = loaded.log_start_offset
        self.high_watermark = loaded.log_start_offset
        self.producers: Final = loaded.producer_state
        self.leader_epochs: Final = loaded.leader_epochs
        self.snapshots: Final = loaded.snapshots
        self._fs = fs
        self._clock = clock
        self._epochs_path = request.directory / filenames.LEADER_EPOCHS
        self._producer_expiration_ms = request.producer_expiration_ms
        self._first_unstable_offset = self.producers.first_unstable_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided, and replicated."""
        unstable = self._first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        # The records at the start of a transaction may be deleted while it is still undecided.
        return max(unstable, self.log_start_offset)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or 0."""
        latest = self.leader_epochs.latest()
        return 0 if latest is None else latest.epoch

    def end_for(self, isolation: Isolation, log_end_offset: int) -> int:
        """Return the offset that a reader may get to."""
        match isolation:
            case Isolation.LOG_END:
                return log_end_offset
            case Isolation.HIGH_WATERMARK:
                return self.high_watermark
            case Isolation.COMMITTED:
                return self.last_stable_offset

    # Growing

    def update_high_watermark(self, offset: int, log_end_offset: int) -> int:
        """Move the high watermark, within the log, and return where it is now."""
        self.high_watermark = min(max(offset, self.log_start_offset), log_end_offset)
        if self.producers.has_transactions:
            self.producers.on_high_watermark_updated(self.high_watermark)
            self._first_unstable_offset = self.producers.first_unstable_offset
        return self.high_watermark

    def complete(self, completed: Sequence[CompletedTxn], index: TransactionIndex) -> None:
        """Take note of transactions that have ended, of the aborted ones in the index."""
        for txn in completed:
            if txn.is_aborted:
                index.append(
                    AbortedTxn(
                        txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
                    )
                )
        self._first_unstable_offset = self.producers.first_unstable_offset

    def assign_epochs(self, headers: Sequence[BatchHeader]) -> None:
        """Note where leader epochs begin; durable when this returns."""
        changed = False
        for header in headers:
            if header.leader_epoch >= 0:
                changed |= self.leader_epochs.assign(header.leader_epoch, header.base_offset)
        if changed:
            self.write_epochs()

    # Shrinking

    def raise_log_start(self, offset: int) -> None:
        """Let the log start further on."""
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        if self.leader_epochs.truncate_from_start(offset):
            self.write_epochs()
        self.producers.on_log_start_offset_incremented(offset)
        self._first_unstable_offset = self.producers.first_unstable_offset

    def lower_to(self, offset: int) -> None:
        """Let nothing lie above an offset; the producers come with `reload`."""
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.leader_epochs.truncate_from_end(offset)
        self.write_epochs()

    def start_at(self, offset: int) -> None:
        """Forget everything: the log goes on, empty, at an offset."""
        self.log_start_offset = self.high_watermark = offset
        self.leader_epochs.clear()
        self.lower_to(offset)
        self.snapshots.delete_outside(offset, offset)

    def forget_producers(self, offset: int) -> None:
        """Know no producer any more, up to an offset."""
        self.producers.truncate_fully_and_start_at(offset)
        self._first_unstable_offset = None

    def reload_producers(self, segments: Segments, log_end_offset: int) -> None:
        """Find out anew what producers have written, after a truncation."""
        state = self.producers
        self.snapshots.delete_outside(self.log_start_offset, log_end_offset)
        self.snapshots.load_latest(
            state,
            log_start_offset=self.log_start_offset,
            end_offset=log_end_offset,
            now_ms=self._clock.now_ms(),
            expiration_ms=self._producer_expiration_ms,
        )
        for segment in segments.from_offset(state.map_end_offset):
            replay_segment(segment, state, log_end_offset)
        state.update_map_end_offset(log_end_offset)
        self.snapshots.take(state, durable=True)
        state.on_high_watermark_updated(self.high_watermark)
        self._first_unstable_offset = state.first_unstable_offset

    def remove_expired_producers(self) -> int:
        """Forget producers that were silent for too long, and return how many."""
        return self.producers.remove_expired(self._clock.now_ms(), self._producer_expiration_ms)

    def write_epochs(self) -> None:
        """Write down the leader epochs; durable when this returns."""
        self._fs.write_atomically(self._epochs_path, format_epochs(self.leader_epochs.entries))
