"""Idempotent and transactional producers: their batches, as the headers that the state looks at."""

from siltstone.log.origin import AppendOrigin
from siltstone.log.producer_entry import ProducerEntry
from siltstone.log.producer_state import CompletedTxn, ProducerState
from siltstone.records.batch import BatchHeader
from siltstone.records.control import ControlType, Marker
from siltstone.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT

CLIENT = AppendOrigin.CLIENT
COORDINATOR = AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION

COMMIT = Marker(ControlType.COMMIT, 0)
ABORT = Marker(ControlType.ABORT, 0)


def data(
    offset: int,
    *,
    producer: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    timestamp_ms: int = 0,
    transactional: bool = False,
    empty: bool = False,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=0 if empty else count,
    )


def end(
    offset: int, *, producer: int = 1, epoch: int = 0, timestamp_ms: int = 0, empty: bool = False
) -> BatchHeader:
    return data(
        offset,
        producer=producer,
        epoch=epoch,
        sequence=-1,
        timestamp_ms=timestamp_ms,
        empty=empty,
    )._replace(attributes=TRANSACTIONAL_BIT | CONTROL_BIT)


def append(
    state: ProducerState,
    header: BatchHeader,
    marker: Marker | None = None,
    *,
    origin: AppendOrigin = CLIENT,
    transaction_version: int = 0,
) -> tuple[CompletedTxn, ...]:
    update = state.prepare(header, origin, marker, transaction_version=transaction_version)
    return state.apply(update)


def open_transactions(state: ProducerState) -> list[ProducerEntry]:
    """Return the producers that have a transaction open."""
    return [entry for entry in state.entries.values() if entry.current_txn_first_offset is not None]
