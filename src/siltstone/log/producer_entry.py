"""What a log remembers of one producer, and which of its batches may come next.

A producer numbers its records, and a leader takes them only in that order: a number left out is a
lost batch, a number seen before is a retry. The last five batches are remembered, as many as a
producer may have in flight, so that a retry of any of them is answered with its first offsets.

Epochs fence: whoever knows the higher one is the producer, a batch with a lower one comes from its
predecessor. A new epoch starts at sequence 0 and forgets all batches of the old one. Markers carry
epochs too, so that an aborted producer is fenced even if its successor never writes here.

Entries never change: the functions here check a batch against one and return its successor, or
raise. `ProducerState` decides when the successor takes its place.
"""

from typing import Final, NamedTuple

from siltstone.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from siltstone.ids import TopicPartition
from siltstone.log.origin import AppendOrigin
from siltstone.records.batch import BatchHeader
from siltstone.records.control import Marker
from siltstone.records.layout import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)

REMEMBERED_BATCHES: Final = 5
NO_COORDINATOR_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 2**15 - 1

# Bound once: to look up a member of an Enum costs as much as the check that it is for.
_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION

# From this version of the transaction protocol on, each marker raises the producer's epoch.
_EPOCH_RAISING_VERSION: Final = 2


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset - first offset
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Return the sequence of the first record; sequences go on at 0 after 2^31-1."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """Return the offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """All that a log remembers of one producer; the defaults stand for one not seen before."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp_ms: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()  # of this epoch, oldest first

    @property
    def last_sequence(self) -> int:
        """Return the last sequence of this epoch, or NO_SEQUENCE."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int | None:
        """Return the last offset of the last data batch, if it had the present epoch."""
        return self.batches[-1].last_offset if self.batches else None

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Say whether the producer has been silent for so long that it may be forgotten.

        Its time is the time of its records: back-dated ones expire early, as in Kafka.
        """
        if self.current_txn_first_offset is not None:
            return False
        return now_ms - self.last_timestamp_ms >= expiration_ms

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Find the remembered batch with the same epoch and sequences."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = header.last_sequence
        # The newest first: one who had expired may have begun anew with the same numbers.
        for batch in reversed(self.batches):
            # The cheaper half first: most batches are new, and fail it five times.
            if (
                batch.last_sequence == last_sequence
                and batch.first_sequence == header.base_sequence
            ):
                return batch
        return None

    def after_next(self, header: BatchHeader) -> "ProducerEntry | None":
        """Do what `entry_after_batch` does for the next batch, outside of transactions."""
        batches = self.batches
        if (
            not batches
            or header.producer_epoch != self.epoch
            or header.base_sequence != (batches[-1].last_sequence + 1) & MAX_SEQUENCE
            or self.current_txn_first_offset is not None
        ):
            return None
        offset_delta = header.last_offset_delta
        newest_ms = header.max_timestamp_ms
        batch = BatchMetadata(
            (header.base_sequence + offset_delta) & MAX_SEQUENCE,
            header.base_offset + offset_delta,
            offset_delta,
            newest_ms,
        )
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            newest_ms,
            None,
            (*batches[1 - REMEMBERED_BATCHES :], batch),
        )


def entry_after_batch(
    entry: ProducerEntry, header: BatchHeader, origin: AppendOrigin, partition: TopicPartition
) -> ProducerEntry:
    """Return the entry as it is after a data batch, or raise if the batch may not come next.

    An empty batch counts like any other: to keep this state is what the cleaner left it for.
    """
    epoch = header.producer_epoch
    if origin is not _REPLICATION:
        if epoch < entry.epoch:
            raise _fenced(entry, header, partition, "older than")
        if origin is _CLIENT:
            _check_sequence(entry, header, partition)

    first_offset = entry.current_txn_first_offset
    if header.attributes & TRANSACTIONAL_BIT:
        if first_offset is None:
            first_offset = header.base_offset
    elif first_offset is not None:
        # Whatever the origin: there is no state in which such a batch makes sense.
        raise InvalidTxnStateError(
            f"{partition}: producer {entry.producer_id} with epoch {epoch} sent a batch outside of "
            f"its transaction, which it began at offset {first_offset} and has not ended"
        )

    batch = BatchMetadata(
        header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp_ms
    )
    kept = entry.batches[1 - REMEMBERED_BATCHES :] if epoch == entry.epoch else ()
    return ProducerEntry(
        entry.producer_id,
        epoch,
        entry.coordinator_epoch,
        header.max_timestamp_ms,
        first_offset,
        (*kept, batch),
    )


def entry_after_marker(
    entry: ProducerEntry,
    header: BatchHeader,
    marker: Marker,
    origin: AppendOrigin,
    partition: TopicPartition,
    transaction_version: int = 0,
) -> ProducerEntry:
    """Return the entry as it is after a marker, or raise if the marker comes too late.

    `transaction_version` is what the coordinator speaks; the marker's bytes do not tell.
    """
    epoch = header.producer_epoch
    if origin is not _REPLICATION:
        if epoch < entry.epoch:
            raise _fenced(entry, header, partition, "older than")
        # With the epoch of the transaction that is open now, it belongs to an earlier one. With
        # none open it is a retry and does no harm; above the highest epoch there is none.
        if (
            transaction_version >= _EPOCH_RAISING_VERSION
            and epoch == entry.epoch != MAX_PRODUCER_EPOCH
            and entry.current_txn_first_offset is not None
        ):
            raise _fenced(entry, header, partition, "not above")
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFencedError(
                f"{partition}: marker for producer {entry.producer_id} from coordinator epoch "
                f"{marker.coordinator_epoch}, older than {entry.coordinator_epoch} seen before"
            )
    return ProducerEntry(
        entry.producer_id,
        epoch,
        marker.coordinator_epoch,
        # The marker is the batch's only record, so this is its own timestamp.
        header.max_timestamp_ms,
        None,
        entry.batches if epoch == entry.epoch else (),
    )


def _check_sequence(entry: ProducerEntry, header: BatchHeader, partition: TopicPartition) -> None:
    # Expired, or retention took its last batch: where it was is not known, so it may go on from
    # anywhere. Refusing would stop a producer that did nothing wrong.
    if entry.epoch == NO_PRODUCER_EPOCH:
        return
    if header.producer_epoch == entry.epoch:
        expected = (entry.last_sequence + 1) & MAX_SEQUENCE
    else:
        expected = 0
    if header.base_sequence != expected:
        new = "" if header.producer_epoch == entry.epoch else f" (new, after {entry.epoch})"
        raise OutOfOrderSequenceError(
            f"{partition}: producer {entry.producer_id} with epoch {header.producer_epoch}{new} "
            f"sent sequence {header.base_sequence}, expected {expected}"
        )


def _fenced(
    entry: ProducerEntry, header: BatchHeader, partition: TopicPartition, relation: str
) -> InvalidProducerEpochError:
    what = "marker" if header.is_control else "batch"
    return InvalidProducerEpochError(
        f"{partition}: {what} of producer {entry.producer_id} has epoch {header.producer_epoch}, "
        f"{relation} epoch {entry.epoch} seen before"
    )
