"""What transactions say about each batch: data, aborted, a marker that is needed or is not.

It takes all batches of a log in order to tell. A pass in one process follows them as it reads.
Where many tasks share a log, each notes what it sees, the driver goes through the notes of all in
order, and the tasks that come after are given the answer.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.cleaner.transactions import TransactionTracker
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import BatchHeader, read_batch
from siltstone.records.control import ControlType, Marker
from siltstone.records.layout import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)

Modes = NDArray[np.uint8]

NOTE_DTYPE: Final = np.dtype(
    [
        ("last_offset", np.int64),
        ("producer_id", np.int64),
        ("attributes", np.int16),
        ("is_empty", np.bool_),
        ("control_type", np.int8),  # -1: the batch ends no transaction
    ]
)
"""What the tracker must know of a batch that is transactional or holds control records."""

_NO_MARKER: Final = -1


class BatchModes(Protocol):
    """Tells the mode of each batch; ask for every batch, in order, once."""

    @property
    def kept_aborts(self) -> list[AbortedTxn]:
        """Aborted transactions whose marker stays, so far; the caller may empty the list."""
        ...

    def find(self, file: File, position: int, data: memoryview, batches: Any) -> Modes:
        """Return the modes of batches, read from a position of a file."""
        ...

    def copy(self) -> "BatchModes":
        """Return one that goes on from here by itself."""
        ...


class TrackedModes:
    """Follows the transactions from batch to batch."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._tracker = TransactionTracker(aborted)

    @property
    def kept_aborts(self) -> list[AbortedTxn]:
        """Aborted transactions whose marker stays."""
        return self._tracker.kept_aborts

    def find(self, file: File, position: int, data: memoryview, batches: Any) -> Modes:
        """Return the modes of batches, read from a position of a file."""
        modes = np.zeros(len(batches), np.uint8)
        for number in _of_transactions(batches):
            at = int(batches["position"][number])
            batch = read_batch(data, at)
            try:
                marker = batch.marker()
            except DecodeError as error:
                raise CorruptBatchError(file.path, position + at, error.reason) from error
            modes[number] = self.judge(batch.header, marker)
        return modes

    def judge(self, header: BatchHeader, marker: Marker | None) -> int:
        """Return the mode of one batch."""
        if not header.is_control:
            return kernels.ABORTED if self._tracker.is_aborted(header) else kernels.DATA
        is_spent = self._tracker.is_marker_discardable(header, marker)
        return kernels.SPENT_MARKER if is_spent else kernels.MARKER

    def copy(self) -> "TrackedModes":
        """Return one that goes on from here by itself."""
        other = TrackedModes(())
        other._tracker = copy.deepcopy(self._tracker)
        return other


class NotedModes(TrackedModes):
    """Follows the transactions through a part of a log, and notes what it has seen and said.

    It knows only which transactions were aborted. So what it says of data is right, unless markers
    are where they should not be; what it says of markers is not to be relied on.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        super().__init__(aborted)
        self._notes: list[tuple[int, int, int, bool, int]] = []
        self._modes: list[int] = []

    def judge(self, header: BatchHeader, marker: Marker | None) -> int:
        """Return the mode of one batch, and note it."""
        mode = super().judge(header, marker)
        control_type = _NO_MARKER if marker is None else int(marker.control_type)
        self._notes.append(
            (
                header.last_offset,
                header.producer_id,
                header.attributes,
                header.is_empty,
                control_type,
            )
        )
        self._modes.append(mode)
        return mode

    def notes(self) -> NDArray[Any]:
        """Return what was seen: rows of NOTE_DTYPE."""
        return np.array(self._notes, NOTE_DTYPE)

    def modes(self) -> Modes:
        """Return what was said about each."""
        return np.array(self._modes, np.uint8)


class GivenModes:
    """Tells what was found out before.

    `modes` are those of the batches that are transactional or hold control records, in order;
    `aborts` are the transactions to keep, by the number of their marker in `modes`.
    """

    def __init__(self, modes: Modes, aborts: Mapping[int, AbortedTxn]) -> None:
        self.kept_aborts: list[AbortedTxn] = []
        self._modes = modes
        self._aborts = aborts
        self._next = 0

    def find(self, file: File, position: int, data: memoryview, batches: Any) -> Modes:
        """Return the modes of batches, read from a position of a file."""
        modes = np.zeros(len(batches), np.uint8)
        numbers = _of_transactions(batches)
        end = self._next + len(numbers)
        modes[numbers] = self._modes[self._next : end]
        if self._aborts:
            found = (self._aborts.get(number) for number in range(self._next, end))
            self.kept_aborts.extend(txn for txn in found if txn is not None)
        self._next = end
        return modes

    def copy(self) -> "GivenModes":
        """Return one that goes on from here by itself."""
        other = GivenModes(self._modes, self._aborts)
        other.kept_aborts = list(self.kept_aborts)
        other._next = self._next
        return other


def replay(
    aborted: Iterable[AbortedTxn], parts: Iterable[NDArray[Any]]
) -> Iterator[tuple[Modes, dict[int, AbortedTxn]]]:
    """Go through the notes of all parts of a log; yield modes and aborts to keep of each part."""
    tracked = TrackedModes(aborted)
    for notes in parts:
        modes = np.zeros(len(notes), np.uint8)
        aborts: dict[int, AbortedTxn] = {}
        for number, (header, marker) in enumerate(map(_read_note, notes)):
            modes[number] = tracked.judge(header, marker)
            if tracked.kept_aborts:
                aborts[number] = tracked.kept_aborts.pop()
        yield modes, aborts


def _of_transactions(batches: Any) -> NDArray[np.int64]:
    return np.flatnonzero(batches["attributes"] & (TRANSACTIONAL_BIT | CONTROL_BIT))


def _read_note(note: Any) -> tuple[BatchHeader, Marker | None]:
    """Make up a header with the fields that the tracker looks at."""
    header = BatchHeader(
        base_offset=int(note["last_offset"]),
        length=HEADER_SIZE - LOG_OVERHEAD,
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=int(note["attributes"]),
        last_offset_delta=0,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=int(note["producer_id"]),
        producer_epoch=0,
        base_sequence=0,
        record_count=0 if note["is_empty"] else 1,
    )
    if note["control_type"] == _NO_MARKER:
        return header, None
    return header, Marker(ControlType(int(note["control_type"])), coordinator_epoch=0)
