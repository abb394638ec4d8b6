"""The records of a log against a copy from before: I3, I6 to I8, I10, I15, I16, I18, I19.

I10 needs no sampling. For a reader that begins at any offset X, the last committed record of a key
decides, if it is at or above X. So all such readings agree before and after if for each key the
last record is the same one, or was a tombstone and nothing of the key is left.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np

from siltstone.cleaner.verify.findings import MOST_OF_A_KIND, Severity
from siltstone.cleaner.verify.joined import (
    JoinedLogs,
    find_equal,
    find_superseded,
    last_of_keys,
)
from siltstone.cleaner.verify.record_blocks import FoundRecord, find_records
from siltstone.cleaner.verify.tables import (
    ABORTED,
    COMMITTED,
    CONTROL,
    KEYLESS,
    NO_MARKER,
    UNDECIDED,
    Bools,
    Int64s,
    Numbers,
)

_NOWHERE: Final = -1
_STATES: Final = {COMMITTED: "committed", ABORTED: "aborted", UNDECIDED: "undecided"}


def check_survivors(logs: JoinedLogs) -> None:
    """Check I3: every record was there before, and is as it was."""
    before, after = logs.before, logs.after
    at, is_known = find_equal(before.offsets, after.offsets)
    is_old = after.offsets < before.log_end_offset
    logs.note_records("I3", after, after.offsets[is_old & ~is_known], "was not there before")
    twice = np.flatnonzero(np.diff(after.offsets) == 0)
    logs.note_records("I3", after, after.offsets[twice], "is there twice")

    known = np.flatnonzero(is_known)
    was = at[known]
    is_changed = after.contents[known] != before.contents[was]
    _note_changes(logs, after.offsets[known[is_changed]])
    _check_states(logs, known, was)


def check_removals(logs: JoinedLogs) -> Counter[str]:
    """Check that each record that went did so for a reason (I6, I7, I15, I19); count the reasons.

    A record has the first reason that fits, in the order of a pass.
    """
    before = logs.before
    count = len(before.offsets)
    left: Bools = ~logs.is_there & (before.offsets >= logs.start_offset)

    def take(mask: Bools) -> Numbers:
        """Take those out of what is left to explain."""
        numbers = np.flatnonzero(left & mask)
        left[numbers] = False
        return numbers

    counts: Counter[str] = Counter()
    bases = np.array([s.base_offset for s in before.files.segments], np.int64)
    slots = np.searchsorted(bases, before.offsets, side="right") - 1
    # A pass takes aborted data out of whole segments, also where it has not seen all keys.
    in_reach = bases[np.maximum(slots, 0)] < logs.reach_offset
    markers = take((before.flags & CONTROL) != 0)
    counts["markers_removed"] = len(markers)
    for number in markers.tolist():
        _check_marker(logs, number)
    counts["aborted_removed"] = len(take((logs.states[:count] == ABORTED) & in_reach))
    undecided = take(logs.states[:count] == UNDECIDED)
    if logs.may_lack_records():
        _note_unknown(logs, "I8", undecided, "went, and were undecided when the copy was made")
    else:
        logs.note_records("I8", before, before.offsets[undecided], "went before it was decided")
    young = take(before.offsets >= logs.reach_offset)
    message = f"is gone, though no pass got beyond offset {logs.reach_offset}"
    logs.note_records("I7", before, before.offsets[young], message)
    counts["keyless_removed"] = len(take((before.flags & KEYLESS) != 0))
    in_pass = logs.is_committed & (logs.offsets < logs.end_offset)
    counts["superseded"] = len(take(find_superseded(logs.keys, in_pass)[:count]))
    _take_unfinished(logs, take)
    tombstones = take(logs.is_tombstone[:count])
    counts["tombstones_removed"] = len(tombstones)
    for number in tombstones.tolist():
        horizon_ms = _horizon_ms(logs, int(before.owners[number]))
        may_have = logs.history.may_have_expired(horizon_ms)
        _judge_expiry(logs, "I15", "tombstone", int(before.offsets[number]), horizon_ms, may_have)
    lost = np.flatnonzero(left)
    if logs.may_lack_tombstones():
        _note_unknown(logs, "I6", lost, "are gone that were the last of their key")
    else:
        logs.note_records("I6", before, before.offsets[lost], "is gone, and it was the last record")
    return counts


def check_keys(logs: JoinedLogs) -> None:
    """Check I10 and I16: whoever reads the log into a table gets the one from before."""
    after = logs.after
    is_keyed = (after.flags & (CONTROL | KEYLESS)) == 0
    is_read = is_keyed & (logs.after_view.states[after.owners] == COMMITTED)
    keys, last = last_of_keys(logs.keys, logs.is_committed)
    now_keys, now_last = last_of_keys(after.keys, is_read)
    at = np.searchsorted(now_keys, keys)
    inside = np.flatnonzero(at < len(now_keys))
    inside = inside[now_keys[at[inside]] == keys[inside]]
    now_offsets = np.full(len(keys), _NOWHERE, np.int64)
    now_offsets[inside] = after.offsets[now_last[at[inside]]]

    offsets = logs.offsets[last]
    is_visible = offsets >= logs.start_offset
    is_deleted = logs.is_tombstone[last]
    is_gone = now_offsets == _NOWHERE
    is_back = is_visible & is_deleted & ~is_gone & (now_offsets < offsets)
    logs.note_records(
        "I16", after, now_offsets[is_back], "is back: what deleted it is gone before it"
    )
    # What I6 only warns of is no reason to be sure here.
    may_go = is_deleted | logs.may_lack_tombstones()
    wrong = np.flatnonzero(is_visible & (now_offsets != offsets) & ~(is_gone & may_go))
    if len(wrong):
        logs.findings.violation(
            "I10",
            f"reading the log into a table gives another value or none for {len(wrong)} of "
            f"{int(is_visible.sum())} keys",
            offset=int(offsets[wrong].min()),
        )


def _note_changes(logs: JoinedLogs, offsets: Int64s) -> None:
    shown = offsets[:MOST_OF_A_KIND].tolist()
    old = find_records(logs.before.walker, logs.before.files, shown)
    new = find_records(logs.after.walker, logs.after.files, shown)
    for offset in shown:
        changes = _find_changes(old.get(offset), new.get(offset))
        if changes:  # or the same was only written in another way
            place = new[offset].place
            logs.findings.violation(
                "I3",
                f"{' and '.join(changes)} of the record changed",
                file=place.file,
                position=place.position,
                offset=offset,
            )
    logs.findings.add_count(Severity.VIOLATION, "I3", len(offsets) - len(shown))


def _note_unknown(logs: JoinedLogs, invariant: str, numbers: Numbers, message: str) -> None:
    """Note that records from before went, maybe because of others that came and went since."""
    if len(numbers):
        logs.findings.warning(
            invariant,
            f"{len(numbers)} records {message}: if rightly, then because of others that have come "
            "and gone since",
            offset=int(logs.before.offsets[numbers[0]]),
        )


def _find_changes(old: FoundRecord | None, new: FoundRecord | None) -> list[str]:
    if old is None or new is None:
        return []
    was, now = old.record, new.record
    changes = {
        "key": was.key != now.key,
        "value": was.value != now.value,
        "headers": was.headers != now.headers,
        "timestamp": was.timestamp_ms != now.timestamp_ms,
    }
    return [name for name, is_changed in changes.items() if is_changed]


def _check_states(logs: JoinedLogs, known: Numbers, was: Numbers) -> None:
    """Check I18: no marker that went, or came, changes what a reader makes of a record."""
    after = logs.after
    states = logs.after_view.states[after.owners[known]]
    expected = logs.states[was]
    is_data = (after.flags[known] & CONTROL) == 0
    is_wrong = is_data & (states != expected)
    for state in np.unique(expected[is_wrong]).tolist():
        offsets = after.offsets[known[is_wrong & (expected == state)]]
        now = _STATES[int(states[is_wrong & (expected == state)][0])]
        logs.note_records("I18", after, offsets, f"was {_STATES[state]}, and is {now} now")


def _take_unfinished(logs: JoinedLogs, take: Callable[[Bools], Numbers]) -> None:
    """Explain what was superseded only by records at or above the first dirty offset."""
    if logs.reach_offset == logs.end_offset:
        return
    in_reach = logs.is_committed & (logs.offsets < logs.reach_offset)
    numbers = take(find_superseded(logs.keys, in_reach)[: len(logs.before.offsets)])
    if len(numbers):
        logs.findings.warning(
            "I7",
            f"{len(numbers)} records were superseded at or above the first dirty offset "
            f"{logs.end_offset}: a pass was not finished",
            offset=int(logs.before.offsets[numbers[0]]),
        )


def _check_marker(logs: JoinedLogs, number: int) -> None:
    offset = int(logs.before.offsets[number])
    owner = int(logs.before.owners[number])
    if logs.marker_types[owner] == NO_MARKER:
        logs.findings.violation(
            "I19", "a control record is gone that ended no transaction", offset=offset
        )
        return
    data = np.array(logs.view.data_of_markers[owner], np.intp)
    left = data[logs.is_batch_there[data]]
    if len(left):
        logs.findings.violation(
            "I19",
            "the marker is gone, though a batch of its transaction is left at "
            f"{logs.batches['base_offset'][left[0]]}",
            offset=offset,
        )
        return
    if offset >= logs.reach_offset:
        logs.findings.violation(
            "I7",
            f"the marker is gone, though no pass got beyond offset {logs.reach_offset}",
            offset=offset,
        )
        return
    horizon_ms = _horizon_ms(logs, owner)
    # The pass that takes the data away leaves the marker alone; the next sets its horizon.
    may_have = logs.history.may_have_expired(horizon_ms, 1 if len(data) else 0)
    _judge_expiry(logs, "I19", "marker", offset, horizon_ms, may_have)


def _judge_expiry(
    logs: JoinedLogs,
    invariant: str,
    what: str,
    offset: int,
    horizon_ms: int | None,
    may_have: bool | None,
) -> None:
    waited = "had no delete horizon yet" if horizon_ms is None else f"had to wait for {horizon_ms}"
    if may_have is None:
        logs.findings.warning(
            invariant,
            f"the {what} is gone, and {waited}: more than one pass must lie between, and no "
            "manifest tells of them",
            offset=offset,
        )
    elif not may_have:
        logs.findings.violation(
            invariant, f"the {what} is gone too early: it {waited}", offset=offset
        )


def _horizon_ms(logs: JoinedLogs, batch: int) -> int | None:
    if not logs.before.has_horizon[batch]:
        return None
    return int(logs.before.batches["base_timestamp_ms"][batch])
