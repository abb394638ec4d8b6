"""Damage to transactions and to what is known of producers."""

from pathlib import Path
from typing import Any, Final

from siltstone.log.producer_snapshot import read_snapshot, write_snapshot
from siltstone.records.batch import Batch, read_batch
from siltstone.records.builder import build_batch, build_empty_batch
from siltstone.records.control import ControlType, Marker, encode_marker
from tests.support.clock import START_MS
from tests.support.damage import mutation, with_horizon
from tests.support.edited_logs import EditedLog

ABORTED_ENTRY: Final = ">hqqqq"


# Transactions


@mutation("I19 I20", "I7 I10 I18 I19 I20")
def _drop_a_commit_marker(log: EditedLog, before: EditedLog) -> None:
    log.drop(_marker_after(log, log.find("g")))


@mutation("I19 I20", "I19 I20 I7")
def _drop_an_abort_marker(log: EditedLog, before: EditedLog) -> None:
    log.drop(_marker_after(log, log.find_batch(8, is_empty=True)))


@mutation("", "I19 I7")
def _drop_a_marker_without_data_early(log: EditedLog, before: EditedLog) -> None:
    offset = log.find_batch(6, is_control=True)
    log.replace(offset, build_empty_batch(log.batch(offset).header))


@mutation("I18", "I18 I7")
def _leave_aborted_data(log: EditedLog, before: EditedLog) -> None:
    offset = log.find_batch(8, is_empty=True)
    log.replace(offset, bytes(before.batch(offset).data))


@mutation("I9 I19", "I18 I19 I9 I7 I10")
def _make_aborted_data_visible(log: EditedLog, before: EditedLog) -> None:
    """The data is back, and its abort marker says commit; the index still knows better."""
    offset = log.find_batch(8, is_empty=True)
    log.replace(offset, bytes(before.batch(offset).data))
    marker = _marker_after(log, offset)
    log.replace(marker, _as(log.batch(marker), ControlType.COMMIT))


@mutation("I18 I20", "I1 I3 I10 I18 I20")
def _turn_a_commit_into_an_abort(log: EditedLog, before: EditedLog) -> None:
    marker = _marker_after(log, log.find("g"))
    log.replace(marker, _as(log.batch(marker), ControlType.ABORT))


@mutation("I19", "I15 I19")
def _set_the_horizon_of_a_marker_whose_data_is_left(log: EditedLog, before: EditedLog) -> None:
    marker = _marker_after(log, log.find("g"))
    log.replace(marker, with_horizon(log.batch(marker), START_MS))


@mutation("I19", "I3 I19")
def _go_on_with_another_epoch_in_a_transaction(log: EditedLog, before: EditedLog) -> None:
    """As if the marker between the two were lost."""
    offset = log.find("i")
    batch = log.batch(offset)
    first, second = batch.iter_records()
    fields: dict[str, Any] = {
        "leader_epoch": 0,
        "producer_id": 7,
        "is_transactional": True,
        "base_offset": None,
    }
    one = build_batch([first], **fields, producer_epoch=0, base_sequence=0)
    other = build_batch([second], **fields, producer_epoch=1, base_sequence=0)
    log.replace(offset, one, other)


@mutation("I20")
def _drop_an_entry_of_a_transaction_index(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_aborted_path(log), ABORTED_ENTRY, lambda rows: rows[1:])


@mutation("I20")
def _list_an_aborted_transaction_that_never_was(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_aborted_path(log), ABORTED_ENTRY, lambda rows: [*rows, [0, 99, 30, 31, 32]])


@mutation("I20")
def _list_an_aborted_transaction_from_too_late_on(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _aborted_path(log),
        ABORTED_ENTRY,
        lambda rows: [[v, p, f + 1, *rest] for v, p, f, *rest in rows],
    )


@mutation("I20")
def _list_an_aborted_transaction_of_another_producer(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _aborted_path(log), ABORTED_ENTRY, lambda rows: [[v, 1, *rest] for v, _, *rest in rows]
    )


@mutation("I20")
def _tear_a_transaction_index(log: EditedLog, before: EditedLog) -> None:
    path = _aborted_path(log)
    path.write_bytes(path.read_bytes() + b"\0\0")


@mutation("I20")
def _write_an_unknown_version_into_a_transaction_index(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_aborted_path(log), ABORTED_ENTRY, lambda rows: [[1, *r[1:]] for r in rows])


# Producers


@mutation("", "I20", warnings="I20")
def _drop_the_empty_last_batch_of_a_producer(log: EditedLog, before: EditedLog) -> None:
    log.drop(log.find_batch(8, is_empty=True))


@mutation("I20")
def _damage_a_snapshot(log: EditedLog, before: EditedLog) -> None:
    path = _newest_snapshot(log)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@mutation("I20")
def _change_a_sequence_in_a_snapshot_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    path = _newest_snapshot(log)
    entries = read_snapshot(path, path.read_bytes())
    path.write_bytes(
        write_snapshot(
            e._replace(batches=tuple(b._replace(last_sequence=9) for b in e.batches))
            for e in entries
        )
    )


@mutation("I20")
def _end_an_open_transaction_in_a_snapshot(log: EditedLog, before: EditedLog) -> None:
    path = _newest_snapshot(log)
    entries = read_snapshot(path, path.read_bytes())
    path.write_bytes(write_snapshot(e._replace(current_txn_first_offset=None) for e in entries))


def _marker_after(log: EditedLog, offset: int) -> int:
    """Return the offset of the marker that ends the transaction of a batch."""
    producer_id = log.batch(offset).header.producer_id
    return min(
        header.base_offset
        for base_offset in log.base_offsets()
        for header in (read_batch(data).header for data in log.batches(base_offset))
        if header.is_control and header.producer_id == producer_id and header.base_offset > offset
    )


def _as(batch: Batch, control_type: ControlType) -> bytes:
    (record,) = batch.iter_records()
    header = batch.header
    return build_batch(
        [encode_marker(Marker(control_type, 0), record.offset, record.timestamp_ms)],
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def _aborted_path(log: EditedLog) -> Path:
    return log.path(log.segment_of(log.find("q")), ".txnindex")


def _newest_snapshot(log: EditedLog) -> Path:
    return max(log.directory.glob("*.snapshot"))
