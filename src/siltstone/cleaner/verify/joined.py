"""A log and a copy of it from before, joined by offset.

What a reader could have got is the *whole*: all that the copy holds, and what was appended since.
Batches and records of the copy keep their numbers in it; those that were appended follow on them.
"""

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.verify.findings import MOST_OF_A_KIND, Findings, Severity
from siltstone.cleaner.verify.history import PassHistory
from siltstone.cleaner.verify.record_blocks import find_records
from siltstone.cleaner.verify.records import format_key
from siltstone.cleaner.verify.tables import (
    COMMITTED,
    CONTROL,
    KEYLESS,
    NULL_VALUE,
    UNDECIDED,
    Bools,
    Int64s,
    LogTable,
    Numbers,
    TransactionView,
)


class JoinedLogs:
    """Two states of one log, what lies between them, and where to note what is wrong."""

    def __init__(
        self, before: LogTable, after: LogTable, history: PassHistory, findings: Findings
    ) -> None:
        self.before = before
        self.after = after
        self.history = history
        self.findings = findings
        self.start_offset = after.files.log_start_offset
        self.end_offset = history.end_offset
        self.reach_offset = history.reach_offset

        # Batches of the whole.
        first_new = int(np.searchsorted(after.batches["base_offset"], before.log_end_offset))
        self.batches = np.concatenate([before.batches, after.batches[first_new:]])
        self.marker_types = np.concatenate([before.marker_types, after.marker_types[first_new:]])
        self.view = TransactionView(self.batches, self.marker_types)
        self.after_view = TransactionView(after.batches, after.marker_types)
        bases = self.batches["base_offset"]
        self.batch_at, self.is_batch_there = find_equal(after.batches["base_offset"], bases)
        """Of each batch its number in the log now, and whether it is there at all."""
        self.offsets: Int64s = np.concatenate(
            [before.offsets, after.offsets[after.offsets >= before.log_end_offset]]
        )
        if self.may_lack_records() and history.may_have_expired(None, 1) is not False:
            self._forget_lost_verdicts()

        # Records of the whole.
        first_record = int(np.searchsorted(after.offsets, before.log_end_offset))
        new = slice(first_record, None)
        new_owners = after.owners[new] - first_new + len(before.batches)
        owners = np.concatenate([before.owners, new_owners])
        flags = np.concatenate([before.flags, after.flags[new]])
        is_keyed = (flags & (CONTROL | KEYLESS)) == 0
        self.keys = np.concatenate([before.keys, after.keys[new]])
        self.states = self.view.states[owners]
        self.is_committed: Bools = is_keyed & (self.states == COMMITTED)
        self.is_tombstone: Bools = is_keyed & ((flags & NULL_VALUE) != 0)
        _, self.is_there = find_equal(after.offsets, before.offsets)
        """Of each record from before, whether it is there now."""

    def _forget_lost_verdicts(self) -> None:
        """Take back what the next marker says about data that was open when the copy was made.

        If the data is gone, so may be the marker that decided on it, and the next is another's.
        """
        count = len(self.before.batches)
        was_open = TransactionView(self.before.batches, self.before.marker_types).states
        is_lost = (was_open == UNDECIDED) & ~self.is_batch_there[:count]
        self.view.states[:count][is_lost] = UNDECIDED

    def may_lack_tombstones(self) -> bool:
        """Say whether tombstones may have come and gone since the copy was made.

        Then a key may be gone for a reason that nothing tells of any more.
        """
        return self.may_lack_records() and self.history.may_have_expired(None) is not False

    def may_lack_records(self) -> bool:
        """Say whether anything may have come and gone since the copy was made."""
        first_offset = self.before.log_end_offset
        is_new = (self.offsets >= first_offset) & (self.offsets < self.reach_offset)
        return int(is_new.sum()) < self.reach_offset - first_offset

    def note_records(
        self,
        invariant: str,
        table: LogTable,
        offsets: Int64s,
        message: str,
        severity: Severity = Severity.VIOLATION,
    ) -> None:
        """Note the same about several records of one of both."""
        shown = offsets[:MOST_OF_A_KIND].tolist()
        found = find_records(table.walker, table.files, shown)
        for offset in shown:
            record = found.get(offset)
            what = "a record" if record is None else f"key {format_key(record.record.key)}"
            place = None if table is self.before or record is None else record.place
            self.findings.add(
                severity,
                invariant,
                f"{what} {message}",
                None if place is None else place.file,
                None if place is None else place.position,
                offset,
            )
        self.findings.add_count(severity, invariant, len(offsets) - len(shown))

    def note_batches(self, invariant: str, numbers: Numbers, message: str) -> None:
        """Note the same about several batches of the log as it is now."""
        rows = self.after.batches
        for number in numbers[:MOST_OF_A_KIND].tolist():
            base_offset = int(rows["base_offset"][number])
            segments = self.after.files.segments
            files = [s.name for s in segments if s.base_offset <= base_offset]
            self.findings.violation(
                invariant,
                f"the batch {message}",
                file=files[-1] if files else None,
                position=int(rows["position"][number]),
                offset=base_offset,
            )
        left_out = max(len(numbers) - MOST_OF_A_KIND, 0)
        self.findings.add_count(Severity.VIOLATION, invariant, left_out)


def find_equal(values: Int64s, wanted: Int64s) -> tuple[Numbers, Bools]:
    """Return where each wanted value is among sorted ones, and whether it is."""
    at = np.searchsorted(values, wanted)
    is_there: Bools = np.zeros(len(wanted), np.bool_)
    inside = np.flatnonzero(at < len(values))
    is_there[inside] = values[at[inside]] == wanted[inside]
    return at, is_there


def find_superseded(keys: NDArray[np.uint64], counts: Bools) -> Bools:
    """Say of each record that counts whether a later one that counts has the same key."""
    numbers, is_last = _group(keys, counts)
    superseded: Bools = np.zeros(len(keys), np.bool_)
    superseded[numbers[~is_last]] = True
    return superseded


def last_of_keys(keys: NDArray[np.uint64], counts: Bools) -> tuple[NDArray[np.uint64], Numbers]:
    """Return the keys of the records that count, sorted, and the number of the last of each."""
    numbers, is_last = _group(keys, counts)
    last = numbers[is_last]
    return keys[last], last


def _group(keys: NDArray[np.uint64], counts: Bools) -> tuple[Numbers, Bools]:
    """Sort the numbers of records by key and, where that is equal, by offset."""
    numbers = np.flatnonzero(counts)
    numbers = numbers[np.argsort(keys[numbers], kind="stable")]
    is_last: Bools = np.ones(len(numbers), np.bool_)
    is_last[:-1] = keys[numbers[1:]] != keys[numbers[:-1]]
    return numbers, is_last
