"""Whether a batch, and whether a record, survives a pass: the rules, each written once.

A pass knows the offset of the last committed record of every key. A record that is not the last of
its key goes. The last one stays, unless it is a tombstone whose time is up: a tombstone outlives
the values it deletes, so that a consumer half-way through the log still learns that the key is
gone. The waiting begins with the first pass that sees it, which writes the *delete horizon* into
its batch. Transaction markers wait in the same way once all data of their transaction is gone.

A batch without records stays as a bare header in two cases. It is the last one of a producer that
is still active, whose next sequence must be known after a restart. Or it ends where the pass ends:
without it a reader could not tell that the log goes on after a gap.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from siltstone.records.batch import BatchHeader


class LastRecord(NamedTuple):
    """Where an active producer left off; without data, its epoch is all there is to keep."""

    producer_id: int
    epoch: int
    last_data_offset: int | None


class BatchFate(Enum):
    """What is left of a batch."""

    COPIED = auto()  # every record survives: the same bytes
    REBUILT = auto()  # some survive, or the batch gets its delete horizon
    EMPTIED = auto()  # none survives, but the header must
    DISCARDED = auto()


@dataclass(frozen=True, slots=True)
class BatchRule:
    """What is decided about a batch before any of its records is looked at."""

    discards_records: bool  # all of them, whatever they are
    keeps_header: bool  # also if no record survives
    starts_waiting: bool  # a marker without data left: it gets its horizon now


def batch_rule(
    header: BatchHeader,
    *,
    is_discardable: bool,
    last_record: LastRecord | None,
    end_offset: int,
    now_ms: int,
) -> BatchRule:
    """Decide about a batch; `is_discardable` is the transaction tracker's word on it.

    `last_record` is that of the batch's producer, `end_offset` the end of the pass.
    """
    discards_records = is_discardable
    if header.is_control:
        horizon_ms = header.delete_horizon_ms
        discards_records = is_discardable and horizon_ms is not None and horizon_ms <= now_ms
    return BatchRule(
        discards_records=discards_records,
        keeps_header=is_last_of_producer(header, last_record) or header.next_offset == end_offset,
        starts_waiting=is_discardable and header.is_control,
    )


def is_last_of_producer(header: BatchHeader, last_record: LastRecord | None) -> bool:
    """Say whether the state of an active producer hangs on this batch."""
    if last_record is None or not header.has_producer_id:
        return False
    if last_record.last_data_offset is not None:
        return header.last_offset == last_record.last_data_offset
    return header.is_control and header.producer_epoch == last_record.epoch


def survives(
    offset: int,
    latest_offset: int | None,
    is_tombstone: bool,
    delete_horizon_ms: int | None,
    now_ms: int,
) -> bool:
    """Say whether a keyed record survives; `latest_offset` is that of the last one of its key.

    A record without a key never does: there is nothing by which it could be the last.
    """
    if latest_offset is not None and offset < latest_offset:
        return False
    # No horizon yet: the waiting has not begun.
    return not is_tombstone or delete_horizon_ms is None or now_ms < delete_horizon_ms


def batch_fate(
    header: BatchHeader, rule: BatchRule, survivor_count: int, *, has_tombstone: bool
) -> BatchFate:
    """Decide what to write; `has_tombstone` speaks of the survivors."""
    if survivor_count == 0:
        return BatchFate.EMPTIED if rule.keeps_header else BatchFate.DISCARDED
    needs_horizon = header.delete_horizon_ms is None and (has_tombstone or rule.starts_waiting)
    if survivor_count == header.record_count and not needs_horizon:
        return BatchFate.COPIED
    return BatchFate.REBUILT


def horizon_of(
    header: BatchHeader, rule: BatchRule, *, has_tombstone: bool, now_ms: int, retention_ms: int
) -> int | None:
    """Return the delete horizon of a rebuilt batch: set once, it never moves."""
    if header.delete_horizon_ms is not None:
        return header.delete_horizon_ms
    if has_tombstone or rule.starts_waiting:
        return now_ms + retention_ms
    return None
