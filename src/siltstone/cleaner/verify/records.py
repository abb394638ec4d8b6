"""What takes every record to check: I1 to the last byte, I9, and I15 of tombstones."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.verify.batches import BatchWalker, Chunk
from siltstone.cleaner.verify.files import LogFiles
from siltstone.cleaner.verify.findings import MOST_OF_A_KIND, Findings, Severity
from siltstone.cleaner.verify.record_blocks import (
    Block,
    RecordHasher,
    find_records,
    iter_blocks,
)
from siltstone.cleaner.verify.transactions import AbortedRanges
from siltstone.records.layout import CONTROL_BIT, DELETE_HORIZON_BIT
from siltstone.records.scan import Batches

Bools = NDArray[np.bool_]

_OLDEST: Final = -(2**63)


class RecordCheck:
    """Goes through all records of a log, batch by batch in order.

    What lies below `clean_offset`, the first dirty offset, has been through a pass;
    `is_own_pass` says that it was one of ours.
    """

    def __init__(
        self,
        findings: Findings,
        aborted: AbortedRanges,
        *,
        log_start_offset: int,
        clean_offset: int,
        now_ms: int,
        is_own_pass: bool,
    ) -> None:
        self.tombstone_count = 0  # below the first dirty offset
        self.expired_count = 0  # of them, those that a pass would remove now
        self._findings = findings
        self._aborted = aborted
        self._log_start_offset = log_start_offset
        self._clean_offset = clean_offset
        self._now_ms = now_ms
        self._is_own_pass = is_own_pass
        self._hasher = RecordHasher()
        self._keys: list[NDArray[np.uint64]] = []
        self._offsets: list[NDArray[np.int64]] = []

    def take(self, chunk: Chunk) -> None:
        """Take in the sound batches of a chunk."""
        for block in iter_blocks(chunk, self._refuse):
            aborted = self._aborted.mask(block.batches)
            is_null = block.records["value_length"] < 0
            null_counts = np.bincount(block.owners[is_null], minlength=len(block.batches))
            self._check_timestamps(chunk, block)
            self._check_horizons(chunk, block, null_counts)
            if int(block.batches["base_offset"][0]) < self._clean_offset:
                self._enter(chunk, block, aborted)

    def finish(self, walker: BatchWalker, files: LogFiles) -> None:
        """Find the keys that are there twice."""
        if not self._keys:
            return
        keys = np.concatenate(self._keys)
        offsets = np.concatenate(self._offsets)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        again = np.flatnonzero(keys[1:] == keys[:-1])
        pairs = sorted((int(offsets[order[i]]), int(offsets[order[i + 1]])) for i in again)
        shown = pairs[:MOST_OF_A_KIND]
        found = find_records(walker, files, [offset for pair in shown for offset in pair])
        for offset, next_offset in shown:
            first, second = found[offset], found[next_offset]
            if first.record.key != second.record.key:
                continue  # two keys with one hash
            self._findings.violation(
                "I9",
                f"key {format_key(first.record.key)} comes again at offset {next_offset}, also "
                f"below the first dirty offset {self._clean_offset}",
                file=first.place.file,
                position=first.place.position,
                offset=offset,
            )
        self._findings.add_count(Severity.VIOLATION, "I9", len(pairs) - len(shown))

    def _refuse(self, chunk: Chunk, number: int, reason: str) -> None:
        self._note("I1", reason, chunk, number)

    def _check_timestamps(self, chunk: Chunk, block: Block) -> None:
        """Check the max timestamp, by which look-ups go, and with it every timestamp."""
        newest = np.full(len(block.batches), _OLDEST, np.int64)
        np.maximum.at(newest, block.owners, block.records["timestamp_ms"])
        rows = block.batches
        is_wrong = (rows["record_count"] > 0) & (newest != rows["max_timestamp_ms"])
        for slot in np.flatnonzero(is_wrong):
            self._note(
                "I1",
                f"header says max timestamp {rows['max_timestamp_ms'][slot]}, the newest record "
                f"has {newest[slot]}",
                chunk,
                int(block.numbers[slot]),
            )

    def _check_horizons(self, chunk: Chunk, block: Block, null_counts: NDArray[np.int64]) -> None:
        rows = block.batches
        is_data = (rows["attributes"] & CONTROL_BIT) == 0
        has_horizon = (rows["attributes"] & DELETE_HORIZON_BIT) != 0
        # Once its tombstones are gone, a batch keeps its horizon. But of this one nothing is gone.
        is_complete = rows["record_count"] == rows["last_offset"] - rows["base_offset"] + 1
        for slot in np.flatnonzero(is_data & has_horizon & is_complete & (null_counts == 0)):
            self._note(
                "I15",
                "has a delete horizon, but no tombstone and never had one",
                chunk,
                int(block.numbers[slot]),
            )
        is_clean = self._is_clean(rows["last_offset"])
        waits = is_data & is_clean & (null_counts > 0)
        self.tombstone_count += int(null_counts[waits].sum())
        is_due = has_horizon & (rows["base_timestamp_ms"] <= self._now_ms)
        self.expired_count += int(null_counts[waits & is_due].sum())
        # Kafka before 3.1 did not know horizons.
        severity = Severity.VIOLATION if self._is_own_pass else Severity.WARNING
        for slot in np.flatnonzero(waits & ~has_horizon):
            self._note(
                "I15",
                "has a tombstone and no delete horizon, though a pass has been here",
                chunk,
                int(block.numbers[slot]),
                severity,
            )

    def _enter(self, chunk: Chunk, block: Block, aborted: Bools) -> None:
        """Note the keys of the committed records that a pass has seen."""
        is_data = (block.batches["attributes"] & CONTROL_BIT) == 0
        offsets = block.records["offset"]
        counts = (is_data & ~aborted)[block.owners] & self._is_clean(offsets)
        is_keyless = counts & (block.records["key_length"] < 0)
        for slot in np.unique(block.owners[is_keyless]):
            self._note(
                "I9",
                "has a record without a key, though a pass has been here",
                chunk,
                int(block.numbers[slot]),
            )
        counts &= ~is_keyless
        self._keys.append(self._hasher.hash(block).keys[counts])
        self._offsets.append(offsets[counts])

    def _is_clean(self, offsets: NDArray[np.int64]) -> Bools:
        clean: Bools = (offsets >= self._log_start_offset) & (offsets < self._clean_offset)
        return clean

    def _note(
        self,
        invariant: str,
        message: str,
        chunk: Chunk,
        number: int,
        severity: Severity = Severity.VIOLATION,
    ) -> None:
        rows: Batches = chunk.batches
        self._findings.add(
            severity,
            invariant,
            message,
            chunk.segment.name,
            chunk.position + int(rows["position"][number]),
            int(rows["base_offset"][number]),
        )


def format_key(key: bytes | None) -> str:
    """Write a key so that it can be told from any other."""
    if key is None:
        return "null"
    try:
        return repr(key.decode("utf-8"))
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
