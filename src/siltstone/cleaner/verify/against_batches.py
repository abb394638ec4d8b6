"""The batches of a log against a copy from before: what a pass may change of one, and what not."""

from typing import Final

import numpy as np

from siltstone.cleaner.verify.findings import Severity
from siltstone.cleaner.verify.joined import JoinedLogs
from siltstone.cleaner.verify.producers import PRODUCER_EXPIRATION_MS
from siltstone.cleaner.verify.tables import NULL_VALUE, Bools, Int64s, Numbers
from siltstone.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

_KEPT_BITS: Final = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
_KEPT_FIELDS: Final = (
    "last_offset",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)
_NONE: Final = -1


def check_batches(logs: JoinedLogs) -> None:
    """Check fields for I3, horizons for I15, and for I1 that what was not touched is the same."""
    before, after = logs.before, logs.after
    was = np.flatnonzero(logs.is_batch_there[: len(before.batches)])
    now = logs.batch_at[was]
    _check_fields(logs, was, now)
    _check_horizons(logs, was, now)
    is_same = before.has_horizon[was] == after.has_horizon[now]
    is_same &= before.batches["record_count"][was] == after.batches["record_count"][now]
    logs.note_batches(
        "I1",
        now[is_same & (before.crcs[was] != after.crcs[now])],
        "has other bytes than before, though no record went",
    )
    is_new: Bools = after.batches["base_offset"] < before.log_end_offset
    is_new[now] = False
    logs.note_batches("I3", np.flatnonzero(is_new), "was not there before")


def check_end(logs: JoinedLogs) -> None:
    """Check I4: if a batch ended where the pass ended, one still does."""
    batches = logs.batches
    ends_there = batches["last_offset"] == logs.end_offset - 1
    ends_there &= batches["base_offset"] >= logs.start_offset
    now_ends = logs.after.batches["last_offset"]
    if ends_there.any() and not (now_ends == logs.end_offset - 1).any():
        logs.findings.add(
            Severity.VIOLATION if logs.history.is_complete else Severity.WARNING,
            "I4",
            "a batch ended where the pass ended, and none does now: readers cannot get past it",
            offset=logs.end_offset - 1,
        )


def check_last_batches(logs: JoinedLogs) -> None:
    """Check I20: the last batch of an active producer stays, with records or without.

    Who is active only the owner of the log knows. Of our passes the manifests tell, and a log by
    itself is held against them. Otherwise it can be guessed: a producer is active until its last
    record is old.
    """
    if logs.history.is_complete:
        return
    batches = logs.batches
    is_control = (batches["attributes"] & CONTROL_BIT) != 0
    last_data = _last_by_id(batches["producer_id"], ~is_control)
    last_markers = _last_by_id(batches["producer_id"], is_control)  # with a record or without
    for producer_id, number in last_data.items():
        if logs.is_batch_there[number] or batches["last_offset"][number] < logs.start_offset:
            continue
        marker = last_markers.get(producer_id, _NONE)
        epochs = batches["producer_epoch"]
        # A marker with another epoch makes the leader forget what the data said.
        is_forgotten = marker > number and epochs[marker] != epochs[number]
        newest_ms = int(batches["max_timestamp_ms"][max(number, marker)])
        is_active = logs.history.last_ms - newest_ms < PRODUCER_EXPIRATION_MS
        if is_active and not is_forgotten:
            logs.findings.warning(
                "I20",
                f"the last batch of producer {producer_id} is gone: it cannot go on",
                offset=int(batches["last_offset"][number]),
            )


def _check_fields(logs: JoinedLogs, was: Numbers, now: Numbers) -> None:
    rows, now_rows = logs.before.batches[was], logs.after.batches[now]
    for name in _KEPT_FIELDS:
        text = f"has another {name.replace('_', ' ')} than before"
        logs.note_batches("I3", now[rows[name] != now_rows[name]], text)
    is_empty = now_rows["record_count"] == 0
    kept_bits = np.where(is_empty, _KEPT_BITS, _KEPT_BITS | CODEC_MASK)
    changes = (rows["attributes"] ^ now_rows["attributes"]) & kept_bits
    logs.note_batches("I3", now[changes != 0], "has other attributes than before")
    # It is the newest of the records that are left, and stays when the last of them goes.
    old_ms, new_ms = rows["max_timestamp_ms"], now_rows["max_timestamp_ms"]
    is_fixed = ((rows["attributes"] & TIMESTAMP_TYPE_BIT) != 0) | (rows["record_count"] == 0)
    if logs.history.is_complete and len(logs.history.passes) == 1:
        is_fixed |= is_empty
    is_wrong = (new_ms > old_ms) | (is_fixed & (new_ms != old_ms))
    logs.note_batches("I3", now[is_wrong], "has another max timestamp than before")


def _check_horizons(logs: JoinedLogs, was: Numbers, now: Numbers) -> None:
    before, after = logs.before, logs.after
    had, has = before.has_horizon[was], after.has_horizon[now]
    old_ms: Int64s = before.batches["base_timestamp_ms"][was]
    new_ms: Int64s = after.batches["base_timestamp_ms"][now]
    is_empty = after.batches["record_count"][now] == 0
    logs.note_batches("I15", now[had & ~has & ~is_empty], "lost its delete horizon")
    logs.note_batches("I15", now[had & has & (old_ms != new_ms)], "has another delete horizon")

    is_set = has & ~had
    unknown = [t for t in np.unique(new_ms[is_set]).tolist() if not logs.history.may_set(t)]
    logs.note_batches(
        "I15",
        now[is_set & np.isin(new_ms, unknown)],
        "has a delete horizon that no pass has set",
    )
    is_null = (before.flags & NULL_VALUE) != 0
    null_counts = np.bincount(before.owners[is_null], minlength=len(before.batches))[was]
    is_control = (before.batches["attributes"][was] & CONTROL_BIT) != 0
    logs.note_batches(
        "I15",
        now[is_set & ~is_control & (null_counts == 0)],
        "got a delete horizon, but had no tombstone",
    )


def _last_by_id(producer_ids: Int64s, counts: Bools) -> dict[int, int]:
    """Return the number of the last batch of each producer, of those that count."""
    numbers = np.flatnonzero(counts & (producer_ids >= 0))[::-1]
    ids, first = np.unique(producer_ids[numbers], return_index=True)
    return dict(zip(ids.tolist(), numbers[first].tolist(), strict=True))
