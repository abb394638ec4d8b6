"""I20: the producers as the log tells them, and as the snapshots do.

The state of a log is its newest snapshot and what was appended since. If the snapshots are lost, it
is rebuilt from the batches alone, and must be the same for every producer that is still active: its
next sequence must follow on the last. That is why a pass keeps the last batch of such a producer,
without records if need be. What a pass may take along is what only markers told: the epoch of a
producer without data, and the epoch of its coordinator.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.survival import LastRecord
from siltstone.cleaner.verify.files import LogFiles
from siltstone.cleaner.verify.findings import Findings, Severity
from siltstone.cleaner.verify.transactions import Place
from siltstone.errors import CorruptCheckpointError, RequestError
from siltstone.log import filenames
from siltstone.log.producer_entry import ProducerEntry
from siltstone.log.producer_snapshot import read_snapshot
from siltstone.log.producer_state import ProducerState
from siltstone.records.batch import BatchHeader
from siltstone.records.control import Marker
from siltstone.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from siltstone.records.scan import Batches

PRODUCER_EXPIRATION_MS: Final = 86_400_000  # `producer.id.expiration.ms`, a broker's setting
_NEVER_MS: Final = 2**63 - 1


def rows_that_count(batches: Batches) -> NDArray[np.intp]:
    """Return the numbers of the batches that a replay must look at.

    All of transactions; of those without, the last of each producer: it says all there is to say.
    """
    attributes = batches["attributes"]
    producer_ids = batches["producer_id"]
    is_transactional = (attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)) != 0
    plain = np.flatnonzero((producer_ids >= 0) & ~is_transactional)
    if not len(plain):
        return np.flatnonzero(is_transactional)
    _, last = np.unique(producer_ids[plain][::-1], return_index=True)
    kept = plain[len(plain) - 1 - last]
    return np.sort(np.concatenate([np.flatnonzero(is_transactional), kept]))


class ProducerCheck:
    """Builds the state of a log twice, from all batches and from its newest snapshot on."""

    def __init__(
        self, files: LogFiles, findings: Findings, now_ms: int, *, is_own_pass: bool
    ) -> None:
        self._files = files
        # A broker of somebody else's may forget its producers sooner than ours does.
        self._if_missing = Severity.VIOLATION if is_own_pass else Severity.WARNING
        self._findings = findings
        self._now_ms = now_ms
        self._rebuilt = ProducerState(files.partition)
        self._snapshot_offset: int | None = None
        self._known = ProducerState(files.partition)
        self._load_newest()

    def take(self, place: Place, header: BatchHeader, marker: Marker | None) -> None:
        """Take in the next batch that counts."""
        if not header.has_producer_id:
            return
        try:
            self._rebuilt.replay(header, marker)
        except RequestError as error:
            self._findings.violation(
                "I19", str(error), file=place.file, position=place.position, offset=place.offset
            )
        if self._snapshot_offset is not None and header.base_offset >= self._snapshot_offset:
            try:
                self._known.replay(header, marker)
            except RequestError:
                self._snapshot_offset = None  # said already, or the snapshot makes no sense

    def finish(self, log_end_offset: int) -> None:
        """Compare both states."""
        offset = self._snapshot_offset
        if offset is None:
            return
        if offset > log_end_offset:
            self._findings.add(
                Severity.VIOLATION if self._files.was_clean else Severity.WARNING,
                "I20",
                f"snapshot of offset {offset}, but the log ends at {log_end_offset}",
                filenames.SegmentFile(offset, filenames.SNAPSHOT).name,
            )
            return
        for producer_id, known in self._known.entries.items():
            if not known.is_expired(self._now_ms, PRODUCER_EXPIRATION_MS):
                self._compare(known, self._rebuilt.entries.get(producer_id))
        for producer_id, rebuilt in self._rebuilt.entries.items():
            first_offset = self._open_since(rebuilt)
            if producer_id not in self._known.entries and first_offset is not None:
                self._note(rebuilt, f"has a transaction open since offset {first_offset}", "none")

    def _compare(self, known: ProducerEntry, rebuilt: ProducerEntry | None) -> None:
        first_offset = self._files.log_start_offset
        last_offset = known.last_data_offset
        if last_offset is not None and last_offset >= first_offset:
            if rebuilt is None or rebuilt.last_data_offset != last_offset:
                found = None if rebuilt is None else rebuilt.last_data_offset
                self._note(
                    known, f"has its last batch at {found}", str(last_offset), self._if_missing
                )
            elif (rebuilt.epoch, rebuilt.last_sequence) != (known.epoch, known.last_sequence):
                self._note(
                    known,
                    f"has epoch {rebuilt.epoch} and sequence {rebuilt.last_sequence}",
                    f"epoch {known.epoch} and sequence {known.last_sequence}",
                )
        found, expected = self._open_since(rebuilt), self._open_since(known)
        if found != expected:
            self._note(known, f"has a transaction open since {found}", str(expected))

    def _open_since(self, entry: ProducerEntry | None) -> int | None:
        """Return where an open transaction begins, unless part of it is below the log start."""
        offset = None if entry is None else entry.current_txn_first_offset
        if offset is None or offset < self._files.log_start_offset:
            return None
        return offset

    def _note(
        self,
        entry: ProducerEntry,
        found: str,
        expected: str,
        severity: Severity = Severity.VIOLATION,
    ) -> None:
        assert self._snapshot_offset is not None
        self._findings.add(
            severity,
            "I20",
            f"producer {entry.producer_id} {found} by the batches of the log, {expected} by the "
            "newest snapshot and what follows it",
            filenames.SegmentFile(self._snapshot_offset, filenames.SNAPSHOT).name,
            offset=entry.last_data_offset,
        )

    def _load_newest(self) -> None:
        for offset, data in sorted(self._files.snapshots.items(), reverse=True):
            name = filenames.SegmentFile(offset, filenames.SNAPSHOT).name
            path = self._files.directory / name
            try:
                if self._snapshot_offset is None:
                    # None leaves out as expired: that is decided by what follows the snapshot.
                    self._known.load_snapshot(path, data, 0, _NEVER_MS)
                    self._snapshot_offset = offset
                else:
                    read_snapshot(path, data)
            except CorruptCheckpointError as error:
                self._findings.add(
                    Severity.VIOLATION if self._files.was_clean else Severity.WARNING,
                    "I20",
                    f"cannot be read: {error.reason}",
                    name,
                )


class LastBatchCheck:
    """Checks that the batches are left on which, by a manifest, the state of a producer hung."""

    def __init__(self, wanted: Iterable[LastRecord], first_offset: int, end_offset: int) -> None:
        self._missing = {
            (record.producer_id, record.last_data_offset)
            for record in wanted
            if record.last_data_offset is not None
            and first_offset <= record.last_data_offset < end_offset
        }
        self._offsets = np.array([offset for _, offset in self._missing], np.int64)

    def take(self, batches: Batches) -> None:
        """Take in batches of the log."""
        if not len(self._offsets):
            return
        for slot in np.flatnonzero(np.isin(batches["last_offset"], self._offsets)):
            key = int(batches["producer_id"][slot]), int(batches["last_offset"][slot])
            self._missing.discard(key)

    def finish(self, manifest: str, findings: Findings, severity: Severity) -> None:
        """Note what has not come by."""
        for producer_id, offset in sorted(self._missing):
            findings.add(
                severity,
                "I20",
                f"the last batch of producer {producer_id}, which {manifest} names, is gone",
                offset=offset,
            )
