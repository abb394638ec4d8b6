"""What was appended to a compacted log, by offset: the model that a cleaned log is held against."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from siltstone.log.partition_log import PartitionLog
from siltstone.records.batch import Batch, BatchHeader
from siltstone.records.control import Marker
from siltstone.records.record import Record


class State(Enum):
    """What became of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class Transaction:
    """All that a producer writes up to a marker; what is outside of transactions has none."""

    producer: int
    first_offset: int
    state: State = State.OPEN
    marker_offset: int = -1


class Written(NamedTuple):
    """A record as it was appended."""

    record: Record
    transaction: Transaction | None

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.state is State.COMMITTED

    @property
    def is_aborted(self) -> bool:
        return self.transaction is not None and self.transaction.state is State.ABORTED


class Stored(NamedTuple):
    """A batch on disk."""

    header: BatchHeader
    records: tuple[Record, ...]
    marker: Marker | None

    @classmethod
    def of(cls, batch: Batch) -> "Stored":
        return cls(batch.header, tuple(batch.iter_records()), batch.marker())


def replay(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """Return the latest value of every key that was not deleted."""
    latest: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            latest.pop(record.key, None)
        else:
            latest[record.key] = record.value
    return latest


def read_stored(log: PartitionLog) -> list[Stored]:
    """Return every batch of a log as it is on disk."""
    return [Stored.of(batch) for segment in log.segments for _, batch in segment.iter_batches()]
