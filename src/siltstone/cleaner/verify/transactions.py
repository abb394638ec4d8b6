"""I18 and I19: what the batches of a log say about its transactions, and what the indexes say.

A transaction is known here by what is left of it: data batches of one producer, some of them empty
by now, and the marker that follows. Its first batches may be gone; its marker may not, as long as
one batch is there.
"""

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.verify.files import LogFiles, SegmentFiles
from siltstone.cleaner.verify.findings import Findings, Severity
from siltstone.log import filenames
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import BatchHeader
from siltstone.records.control import ControlType, Marker
from siltstone.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from siltstone.records.scan import Batches

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class Place(NamedTuple):
    """Where a batch is."""

    file: str
    position: int
    offset: int


class Transaction(NamedTuple):
    """What is left of a transaction that has a marker."""

    producer_id: int
    first_offset: int | None  # None: no batch is left
    last_offset: int  # of the marker
    is_aborted: bool
    stable_limit: int  # the last stable offset right after the marker was not above this
    previous_marker: int  # of the same producer, or -1


@dataclass(slots=True)
class _Open:
    first: Place
    epoch: int
    first_with_records: Place | None = None


class Ledger:
    """Follows the transactions of one log; feed it transactional and control batches in order.

    Whatever lies below `clean_offset`, the first dirty offset, has been through a pass, and all
    transactions there are decided.
    """

    def __init__(self, findings: Findings, log_start_offset: int, clean_offset: int) -> None:
        self.decided: list[Transaction] = []
        self._findings = findings
        self._log_start_offset = log_start_offset
        self._clean_offset = clean_offset
        self._open: dict[int, _Open] = {}
        self._previous_markers: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._faults: list[tuple[str, str, Place]] = []

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the first transaction begins that has no marker; None if all have one."""
        return min((txn.first.offset for txn in self._open.values()), default=None)

    def take(self, place: Place, header: BatchHeader, marker: Marker | None) -> None:
        """Take in a batch; `marker` is what a control batch says, unless it is empty."""
        if not header.is_control:
            self._take_data(place, header)
        elif marker is not None:
            self._take_marker(place, header, marker)

    def finish(self, *, is_clean_offset_valid: bool) -> None:
        """Look at what has no marker up to the end of the log.

        Only then is it known whether the first dirty offset is in the log at all.
        """
        if not is_clean_offset_valid:
            return
        for producer_id, txn in self._open.items():
            if self._is_clean(txn.first.offset):
                self._note(
                    "I19",
                    f"transaction of producer {producer_id} has no marker, though a pass found it "
                    "decided",
                    txn.first,
                )
        for invariant, message, place in self._faults:
            self._findings.violation(
                invariant, message, file=place.file, position=place.position, offset=place.offset
            )

    def aborted_ranges(self) -> "AbortedRanges":
        """Return where the data of aborted transactions is."""
        return AbortedRanges(self.decided)

    def has_batch(self, producer_id: int, first_offset: int, last_offset: int) -> bool:
        """Say whether a transaction of a producer with a batch left reaches into a range."""
        txn = self._open.get(producer_id)
        if txn is not None and txn.first.offset <= last_offset:
            return True
        return any(
            t.producer_id == producer_id
            and t.first_offset is not None
            and t.first_offset <= last_offset
            and t.last_offset >= first_offset
            for t in self.decided
        )

    def _take_data(self, place: Place, header: BatchHeader) -> None:
        producer_id = header.producer_id
        self._check_epoch(place, header)
        txn = self._open.get(producer_id)
        if txn is None:
            txn = self._open[producer_id] = _Open(place, header.producer_epoch)
        elif txn.epoch != header.producer_epoch and self._is_clean(txn.first.offset):
            self._note(
                "I19",
                f"transaction of producer {producer_id} began with epoch {txn.epoch} and goes on "
                f"with {header.producer_epoch}: a marker is missing",
                place,
            )
        is_readable = not header.is_empty and place.offset >= self._log_start_offset
        if txn.first_with_records is None and is_readable:
            txn.first_with_records = place

    def _take_marker(self, place: Place, header: BatchHeader, marker: Marker) -> None:
        producer_id = header.producer_id
        self._check_epoch(place, header)
        txn = self._open.pop(producer_id, None)
        is_aborted = marker.control_type is ControlType.ABORT
        others = min((t.first.offset for t in self._open.values()), default=None)
        self.decided.append(
            Transaction(
                producer_id,
                None if txn is None else txn.first.offset,
                place.offset,
                is_aborted,
                # With none open: one that began in the same append may count, as in Kafka.
                2**63 - 1 if others is None else others,
                self._previous_markers.get(producer_id, -1),
            )
        )
        self._previous_markers[producer_id] = place.offset
        if txn is None:
            return
        data = txn.first_with_records
        if is_aborted and data is not None and self._is_clean(data.offset):
            self._note(
                "I18",
                f"aborted data of producer {producer_id} (marker at {place.offset}) is left "
                "where a pass has been",
                data,
            )
        if header.delete_horizon_ms is not None and self._is_clean(place.offset):
            self._note(
                "I19",
                f"marker of producer {producer_id} has a delete horizon, though data of its "
                f"transaction is left at {txn.first.offset}",
                place,
            )

    def _check_epoch(self, place: Place, header: BatchHeader) -> None:
        """Check that a producer never goes back to an epoch that was fenced."""
        known = self._epochs.get(header.producer_id, -1)
        if header.producer_epoch < known:
            # Once a leader has forgotten a producer, it takes any epoch.
            what = "marker" if header.is_control else "batch"
            self._findings.warning(
                "I19",
                f"{what} of producer {header.producer_id} has epoch {header.producer_epoch} "
                f"after {known}",
                file=place.file,
                position=place.position,
                offset=place.offset,
            )
        self._epochs[header.producer_id] = max(known, header.producer_epoch)

    def _is_clean(self, offset: int) -> bool:
        return self._log_start_offset <= offset < self._clean_offset

    def _note(self, invariant: str, message: str, place: Place) -> None:
        self._faults.append((invariant, message, place))


class AbortedRanges:
    """Tells the data of aborted transactions from that of others."""

    def __init__(self, decided: Iterable[Transaction]) -> None:
        self._first_offsets: defaultdict[int, list[int]] = defaultdict(list)
        self._last_offsets: defaultdict[int, list[int]] = defaultdict(list)
        for txn in decided:
            if txn.is_aborted and txn.first_offset is not None:
                self._first_offsets[txn.producer_id].append(txn.first_offset)
                self._last_offsets[txn.producer_id].append(txn.last_offset)

    def mask(self, batches: Batches) -> NDArray[np.bool_]:
        """Say of each batch whether it holds such data."""
        aborted = np.zeros(len(batches), np.bool_)
        if self._first_offsets:
            attributes = batches["attributes"]
            is_data = (attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)) == TRANSACTIONAL_BIT
            for number in np.flatnonzero(is_data):
                row = batches[number]
                aborted[number] = self._holds(int(row["producer_id"]), int(row["base_offset"]))
        return aborted

    def _holds(self, producer_id: int, offset: int) -> bool:
        if producer_id not in self._first_offsets:
            return False
        slot = bisect_right(self._first_offsets[producer_id], offset) - 1
        return slot >= 0 and offset < self._last_offsets[producer_id][slot]


def check_transaction_indexes(files: LogFiles, ledger: Ledger, findings: Findings) -> None:
    """Check that the indexes list every aborted transaction that has a batch left.

    Others may be listed while their marker is in the segment: the pass that took the data away
    still lists them. What lies below the log start nobody reads, and Kafka does not care for.
    """
    segments = files.segments
    markers = {txn.last_offset: txn for txn in ledger.decided if txn.is_aborted}
    listed: set[int] = set()
    for segment in segments:
        previous = -1
        for position, version, entry in _parse(segment, findings, was_clean=files.was_clean):
            if entry.last_offset < files.log_start_offset:
                continue
            invariant = "I20"
            fault = _find_fault(segment, entry, markers.get(entry.last_offset))
            if version != _VERSION:
                fault = f"unknown version {version}"
            elif fault is None and entry.last_offset <= previous:
                fault = f"marker {entry.last_offset} after {previous}: entries must rise"
            elif fault == _NO_MARKER and ledger.has_batch(*entry[:3]):
                invariant = "I19"
                fault = "the marker is gone, though data of the transaction is left"
            if fault is not None:
                findings.violation(
                    invariant,
                    f"producer {entry.producer_id}, {entry.first_offset} to {entry.last_offset}: "
                    f"{fault}",
                    file=segment.name_of(filenames.TRANSACTION_INDEX),
                    position=position,
                    offset=entry.last_offset,
                )
            previous = max(previous, entry.last_offset)
            listed.add(entry.last_offset)
    bases = [segment.base_offset for segment in segments]
    for txn in markers.values():
        is_read = txn.first_offset is not None and txn.last_offset >= files.log_start_offset
        if is_read and txn.last_offset not in listed:
            segment = segments[max(bisect_right(bases, txn.last_offset) - 1, 0)]
            findings.violation(
                "I20",
                f"aborted transaction of producer {txn.producer_id} from {txn.first_offset} to "
                f"{txn.last_offset} is not listed: its data would be read",
                file=segment.name_of(filenames.TRANSACTION_INDEX),
                offset=txn.last_offset,
            )


_NO_MARKER: Final = "no such marker is in the segment"


def _find_fault(segment: SegmentFiles, entry: AbortedTxn, txn: Transaction | None) -> str | None:
    end_offset = segment.end_offset
    is_here = segment.base_offset <= entry.last_offset and (
        end_offset is None or entry.last_offset < end_offset
    )
    if txn is None or not is_here or txn.producer_id != entry.producer_id:
        return _NO_MARKER
    # What is left of a transaction may begin later than it did, never earlier.
    if not txn.previous_marker < entry.first_offset < entry.last_offset:
        return f"cannot have begun at {entry.first_offset}"
    if txn.first_offset is None:
        return None
    if entry.first_offset > txn.first_offset:
        return f"has a batch at {txn.first_offset}, before it begins"
    if entry.last_stable_offset > txn.stable_limit:
        return (
            f"last stable offset {entry.last_stable_offset} is above {txn.stable_limit}, where "
            "another transaction was open"
        )
    return None


def _parse(
    segment: SegmentFiles, findings: Findings, *, was_clean: bool
) -> Iterator[tuple[int, int, AbortedTxn]]:
    data = segment.transaction_index or b""
    extra = len(data) % _ENTRY.size
    if extra:
        is_torn = segment.is_active and not was_clean
        findings.add(
            Severity.WARNING if is_torn else Severity.VIOLATION,
            "I20",
            f"{len(data)} bytes are no multiple of {_ENTRY.size}",
            segment.name_of(filenames.TRANSACTION_INDEX),
            len(data) - extra,
        )
    for number, row in enumerate(_ENTRY.iter_unpack(data[: len(data) - extra])):
        yield number * _ENTRY.size, row[0], AbortedTxn(*row[1:])
