"""The producers of one log: who may write what next, and which transactions are undecided.

An append takes two steps, so that a refused or failed one leaves no trace: `prepare` checks the
batch and changes nothing, `apply` makes the change once the bytes are written. Between the two
nothing else may be applied; the log's lock sees to that.

Two kinds of transactions hold back the last stable offset: those still *open*, whose outcome is
undecided, and those that are *unreplicated*, whose marker lies at or above the high watermark and
could still be lost with this leader.
"""

import heapq
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from siltstone.ids import TopicPartition
from siltstone.log.origin import AppendOrigin
from siltstone.log.producer_entry import (
    BatchMetadata,
    ProducerEntry,
    entry_after_batch,
    entry_after_marker,
)
from siltstone.log.producer_snapshot import read_snapshot, write_snapshot
from siltstone.records.batch import BatchHeader
from siltstone.records.control import ControlType, Marker
from siltstone.records.layout import CONTROL_BIT, NO_PRODUCER_ID
from siltstone.records.varint import Buffer


class CompletedTxn(NamedTuple):
    """A transaction that a marker has ended; one without data leaves no trace."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    is_aborted: bool
    # First offset of the oldest transaction that another producer still had open, or the offset
    # after the marker: what the transaction index wants to know.
    last_stable_offset: int


class _Ending(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class PreparedUpdate:
    """What an append will change; only `ProducerState` looks inside."""

    __slots__ = ("ended", "entries", "started")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.started: list[tuple[int, int]] = []  # first offset, producer id
        self.ended: list[_Ending] = []


_NOTHING: Final = PreparedUpdate()


class ProducerState:
    """All producers of one log. No clock, no files; the caller holds the log's lock."""

    __slots__ = ("_map_end_offset", "_open", "_producers", "_unreplicated", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self._map_end_offset = 0
        self._producers: dict[int, ProducerEntry] = {}
        # First offset -> producer id, in the order of the offsets.
        self._open: dict[int, int] = {}
        # A heap of (first offset, marker's offset). Only its top is ever cleared: what is below
        # the high watermark further down cannot be seen from outside, and goes when it comes up.
        self._unreplicated: list[tuple[int, int]] = []

    @property
    def map_end_offset(self) -> int:
        """Return the offset up to which the state is known; its snapshot bears this number."""
        return self._map_end_offset

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """Return a view of the producers by id, which follows every change."""
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        """Say whether there is nothing that a truncation could change."""
        return not self._producers and not self._unreplicated

    @property
    def first_undecided_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction."""
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset that a reader of committed records must not pass."""
        undecided = self.first_undecided_offset
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][0]
        return unreplicated if undecided is None else min(undecided, unreplicated)

    @property
    def has_transactions(self) -> bool:
        """Say whether any transaction holds readers back."""
        return bool(self._open or self._unreplicated)

    def active_producers(self) -> dict[int, ProducerEntry]:
        """Copy the producers as they are now, for somebody without the log's lock."""
        return dict(self._producers)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Find the batch that a client's batch repeats, before it is given offsets.

        To be asked before `prepare`, which refuses a repeated batch as out of order.
        """
        entry = self._producers.get(header.producer_id)
        return None if entry is None else entry.find_duplicate(header)

    def find_next(self, header: BatchHeader) -> ProducerEntry | None:
        """Return the entry after a client's batch if that is just the next of a known producer.

        None for any other, which `prepare` takes or refuses. `put` it once the batch is written.
        """
        entry = self._producers.get(header.producer_id)
        return None if entry is None else entry.after_next(header)

    def put(self, entry: ProducerEntry) -> None:
        """Take in what `find_next` has found."""
        self._producers[entry.producer_id] = entry

    def prepare(
        self,
        header: BatchHeader,
        origin: AppendOrigin,
        marker: Marker | None = None,
        *,
        transaction_version: int = 0,
    ) -> PreparedUpdate:
        """Check a batch that has its offsets, or raise; `apply` the result once it is written.

        A control batch comes with its marker, unless a pass has emptied it.
        """
        if header.producer_id <= NO_PRODUCER_ID:
            return _NOTHING
        update = PreparedUpdate()
        self._add(update, header, origin, marker, transaction_version)
        return update

    def prepare_all(
        self, batches: Iterable[tuple[BatchHeader, Marker | None]], origin: AppendOrigin
    ) -> PreparedUpdate:
        """Check the batches of one append, each against what those before it will have changed."""
        update = PreparedUpdate()
        for header, marker in batches:
            if header.producer_id > NO_PRODUCER_ID:
                self._add(update, header, origin, marker, 0)
        return update

    def apply(self, update: PreparedUpdate) -> tuple[CompletedTxn, ...]:
        """Make the prepared change, and return the transactions that it ended, by their markers.

        `map_end_offset` stays: batches without a producer move it too.
        """
        self._producers.update(update.entries)
        if not update.started and not update.ended:
            return ()

        # Those that started after a marker of the same append count as open beside it, as in
        # Kafka: the last stable offset of that marker is then where they start.
        for first_offset, producer_id in update.started:
            self._start(first_offset, producer_id)
        return tuple([self._end(ending) for ending in update.ended])

    def replay(self, header: BatchHeader, marker: Marker | None = None) -> tuple[CompletedTxn, ...]:
        """Take in a batch that is in the log already, and move `map_end_offset` past it."""
        completed = self.apply(self.prepare(header, AppendOrigin.REPLICATION, marker))
        self._map_end_offset = header.next_offset
        return completed

    def update_map_end_offset(self, offset: int) -> None:
        """Note that the state is known up to an offset."""
        self._map_end_offset = offset

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Let go of the transactions whose marker is replicated."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            heapq.heappop(unreplicated)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Let go of the transactions below the log; their producers stay until they expire."""
        self.on_high_watermark_updated(log_start_offset)
        self._map_end_offset = max(self._map_end_offset, log_start_offset)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that were silent for so long, and return how many."""
        expired = [
            entry.producer_id
            for entry in self._producers.values()
            if entry.is_expired(now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget all producers and transactions; `map_end_offset` stays."""
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, for a log that begins anew at an offset."""
        self.clear()
        self._map_end_offset = offset

    def write_snapshot(self) -> bytes:
        """Write all producers, for the snapshot file named after `map_end_offset`."""
        return write_snapshot(self._producers.values())

    def load_snapshot(self, path: Path, data: Buffer, now_ms: int, expiration_ms: int) -> None:
        """Replace the state by a snapshot's, leaving out what has expired since.

        Raise CorruptCheckpointError and change nothing if it cannot be trusted: an older snapshot
        and a longer replay give the same state. The caller knows the offset that it was taken at.
        """
        entries = [
            entry
            for entry in read_snapshot(path, data)
            if not entry.is_expired(now_ms, expiration_ms)
        ]
        self.clear()
        self._producers.update((entry.producer_id, entry) for entry in entries)
        # The high watermark is not below a snapshot that is loaded: none is unreplicated.
        self._open.update(
            sorted(
                (entry.current_txn_first_offset, entry.producer_id)
                for entry in self._producers.values()
                if entry.current_txn_first_offset is not None
            )
        )

    def _add(
        self,
        update: PreparedUpdate,
        header: BatchHeader,
        origin: AppendOrigin,
        marker: Marker | None,
        transaction_version: int,
    ) -> None:
        producer_id = header.producer_id
        before = update.entries.get(producer_id) or self._producers.get(producer_id)
        if before is None:
            before = ProducerEntry(producer_id)

        if not header.attributes & CONTROL_BIT:
            after = entry_after_batch(before, header, origin, self.partition)
            if after.current_txn_first_offset != before.current_txn_first_offset:
                update.started.append((header.base_offset, producer_id))
        elif marker is not None:
            after = entry_after_marker(
                before, header, marker, origin, self.partition, transaction_version
            )
            # Only a transaction with data: an empty one never held anybody back.
            if before.current_txn_first_offset is not None:
                update.ended.append(
                    _Ending(
                        producer_id,
                        before.current_txn_first_offset,
                        header.base_offset,
                        marker.control_type is ControlType.ABORT,
                    )
                )
        else:
            # Emptied by a pass, which had no need of it. What it said is not known any more; a
            # producer that is known by nothing else gets an entry without epoch, as in Kafka.
            after = before
        update.entries[producer_id] = after

    def _start(self, first_offset: int, producer_id: int) -> None:
        in_order = not self._open or next(reversed(self._open)) < first_offset
        self._open[first_offset] = producer_id
        # A transaction starts at the log end, above all others, unless the log is damaged.
        if not in_order:
            self._open = dict(sorted(self._open.items()))

    def _end(self, ending: _Ending) -> CompletedTxn:
        last_stable_offset = next(
            (first for first, owner in self._open.items() if owner != ending.producer_id),
            ending.last_offset + 1,
        )
        # It is there, unless a damaged log gave two of them the same first offset.
        self._open.pop(ending.first_offset, None)
        heapq.heappush(self._unreplicated, (ending.first_offset, ending.last_offset))
        return CompletedTxn(*ending, last_stable_offset)
