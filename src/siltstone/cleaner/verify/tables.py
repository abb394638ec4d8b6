"""A whole log as arrays, one row for each batch and each record: 33 bytes a record."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.verify.batches import BatchWalker, Chunk
from siltstone.cleaner.verify.files import LogFiles
from siltstone.cleaner.verify.record_blocks import RecordHasher, iter_blocks
from siltstone.errors import DecodeError
from siltstone.records.batch import read_batch
from siltstone.records.control import ControlType
from siltstone.records.kernel_types import BATCH_DTYPE
from siltstone.records.layout import (
    CONTROL_BIT,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
)

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]
Numbers = NDArray[np.intp]

# What `LogTable.marker_types` says about a batch.
NO_MARKER: Final = -1
ABORT: Final = int(ControlType.ABORT)
COMMIT: Final = int(ControlType.COMMIT)

# What a reader knows of the records of a batch.
COMMITTED: Final = 0
ABORTED: Final = 1
UNDECIDED: Final = 2

# Bits of `LogTable.flags`.
NULL_VALUE: Final = 1
KEYLESS: Final = 2
CONTROL: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable:
    """The sound batches of a log and their records, both in the order of their offsets."""

    files: LogFiles
    walker: BatchWalker
    log_end_offset: int
    batches: Any  # rows of BATCH_DTYPE; positions count in the file
    crcs: NDArray[np.uint32]  # as the headers say
    marker_types: NDArray[np.int8]
    offsets: Int64s
    keys: NDArray[np.uint64]
    contents: NDArray[np.uint64]
    flags: NDArray[np.uint8]
    owners: Int64s  # of each record: the number of its batch

    @property
    def has_horizon(self) -> Bools:
        """Whether each batch has a delete horizon; its base timestamp is that, then."""
        has_horizon: Bools = (self.batches["attributes"] & DELETE_HORIZON_BIT) != 0
        return has_horizon


def read_table(
    files: LogFiles, walker: BatchWalker, log_end_offset: int, hasher: RecordHasher
) -> LogTable:
    """Read a log that `walker` has checked; what cannot be decoded is left out."""
    builder = _Builder(hasher)
    for segment in files.segments:
        for chunk in walker.again(segment):
            builder.take(chunk)
    return builder.finish(files, walker, log_end_offset)


class _Builder:
    def __init__(self, hasher: RecordHasher) -> None:
        self._hasher = hasher
        self._batches: list[Any] = [np.empty(0, BATCH_DTYPE)]
        self._crcs: list[NDArray[np.uint32]] = [np.empty(0, np.uint32)]
        self._types: list[NDArray[np.int8]] = [np.empty(0, np.int8)]
        self._offsets: list[Int64s] = [np.empty(0, np.int64)]
        self._keys: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
        self._contents: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
        self._flags: list[NDArray[np.uint8]] = [np.empty(0, np.uint8)]
        self._owners: list[Int64s] = [np.empty(0, np.int64)]
        self._count = 0

    def take(self, chunk: Chunk) -> None:
        rows = chunk.batches.copy()
        rows["position"] += chunk.position
        self._batches.append(rows)
        self._crcs.append(_read_crcs(chunk))
        self._types.append(_read_marker_types(chunk))
        for block in iter_blocks(chunk, lambda *_: None):
            hashes = self._hasher.hash(block)
            self._offsets.append(block.records["offset"].copy())
            self._keys.append(hashes.keys)
            self._contents.append(hashes.contents)
            is_control = (block.batches["attributes"] & CONTROL_BIT) != 0
            self._flags.append(
                (block.records["value_length"] < 0) * np.uint8(NULL_VALUE)
                | (block.records["key_length"] < 0) * np.uint8(KEYLESS)
                | is_control[block.owners] * np.uint8(CONTROL)
            )
            self._owners.append(self._count + block.numbers[block.owners])
        self._count += len(rows)

    def finish(self, files: LogFiles, walker: BatchWalker, log_end_offset: int) -> LogTable:
        batches = np.concatenate(self._batches)
        offsets = np.concatenate(self._offsets)
        owners = np.concatenate(self._owners)
        # They are in order, unless the log is damaged; what follows relies on it.
        by_base = np.argsort(batches["base_offset"], kind="stable")
        places = np.empty(len(by_base), np.int64)
        places[by_base] = np.arange(len(by_base))
        by_offset = np.argsort(offsets, kind="stable")
        return LogTable(
            files=files,
            walker=walker,
            log_end_offset=log_end_offset,
            batches=batches[by_base],
            crcs=np.concatenate(self._crcs)[by_base],
            marker_types=np.concatenate(self._types)[by_base],
            offsets=offsets[by_offset],
            keys=np.concatenate(self._keys)[by_offset],
            contents=np.concatenate(self._contents)[by_offset],
            flags=np.concatenate(self._flags)[by_offset],
            owners=places[owners[by_offset]],
        )


class TransactionView:
    """What the transactional batches of a log, in order, say about each other."""

    def __init__(self, batches: Any, marker_types: NDArray[np.int8]) -> None:
        self.states: NDArray[np.uint8] = np.zeros(len(batches), np.uint8)
        """Whether the records of each batch are COMMITTED, ABORTED or UNDECIDED."""
        self.data_of_markers: dict[int, list[int]] = {}
        """By the number of each marker, the numbers of the data batches that it decides on."""
        open_batches: dict[int, list[int]] = {}
        attributes = batches["attributes"]
        counts = np.flatnonzero(attributes & (TRANSACTIONAL_BIT | CONTROL_BIT))
        producer_ids = batches["producer_id"][counts].tolist()
        types = marker_types[counts].tolist()
        is_control = ((attributes[counts] & CONTROL_BIT) != 0).tolist()
        for slot, number in enumerate(counts.tolist()):
            if not is_control[slot]:
                open_batches.setdefault(producer_ids[slot], []).append(number)
                self.states[number] = UNDECIDED
            elif types[slot] != NO_MARKER:
                data = open_batches.pop(producer_ids[slot], [])
                self.data_of_markers[number] = data
                self.states[data] = ABORTED if types[slot] == ABORT else COMMITTED


def _read_crcs(chunk: Chunk) -> NDArray[np.uint32]:
    data = np.frombuffer(chunk.data, np.uint8)
    positions = chunk.batches["position"][:, None] + np.arange(CRC_POSITION, CRC_POSITION + 4)
    crcs: NDArray[np.uint32] = data[positions].view(">u4")[:, 0].astype(np.uint32)
    return crcs


def _read_marker_types(chunk: Chunk) -> NDArray[np.int8]:
    types = np.full(len(chunk.batches), NO_MARKER, np.int8)
    for number in np.flatnonzero(chunk.batches["attributes"] & CONTROL_BIT):
        try:
            marker = read_batch(chunk.data, int(chunk.batches["position"][number])).marker()
        except DecodeError:
            continue
        if marker is not None:
            types[number] = marker.control_type
    return types
