"""Find out what of one segment can be trusted after an unclean stop, and index it anew.

The whole file is walked, every CRC checked, in large chunks by the kernels of `records`. The first
batch that is torn, damaged or out of order ends the segment: what follows was never acknowledged
with a flush, or a reader could not get past the damage.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.lazy import LazyModule
from siltstone.log.index_entries import IndexBuilder
from siltstone.log.leader_epochs import LeaderEpochs
from siltstone.log.producer_state import ProducerState
from siltstone.log.replay import replay_chunk
from siltstone.log.segment import Segment
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import is_legacy_batch, read_header
from siltstone.records.layout import HEADER_SIZE, MAX_RELATIVE_OFFSET
from siltstone.records.scan import Walk, walk

if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")

_CHUNK_BYTES: Final = 8 << 20


class SegmentOverflowError(Exception):
    """An offset does not fit the segment's base; caught by the loader, which splits the segment."""


@dataclass(frozen=True, slots=True)
class SegmentRecovery:
    """What was found in one segment."""

    next_offset: int
    cut_bytes: int
    reason: str | None  # why anything was cut


def recover_segment(
    segment: Segment, state: ProducerState, epochs: LeaderEpochs
) -> SegmentRecovery:
    """Walk a segment, rebuild its indexes, and forget what follows the last sound batch.

    `state` must be that before the segment; it and `epochs` move on to the segment's end. Raises
    CorruptBatchError, and changes nothing, for batches of an old format: they are sound, and
    cutting them would lose data.
    """
    return _Recovery(segment, state, epochs).run()


class _Recovery:
    def __init__(self, segment: Segment, state: ProducerState, epochs: LeaderEpochs) -> None:
        self._segment = segment
        self._state = state
        self._epochs = epochs
        self._position = 0
        self._next_offset = segment.base_offset
        self._index = IndexBuilder(segment.base_offset, segment.index_interval_bytes)

    def run(self) -> SegmentRecovery:
        segment = self._segment
        # Whatever is in the file counts, not what somebody believed to be its size.
        file_bytes = segment.file.size_bytes()
        segment.transaction_index.reset()
        reason = None
        buffer = bytearray(min(_CHUNK_BYTES, file_bytes))
        while self._position < file_bytes:
            count = segment.file.read_into(self._position, memoryview(buffer))
            chunk = memoryview(buffer)[:count]
            found = walk(chunk, next_offset=self._next_offset)
            self._take(chunk, found)
            if found.refusal is not None:
                self._refuse_legacy(chunk[found.stop_position :])
                reason = found.refusal.reason
                break
            if not len(found.batches):
                size = self._missing_bytes(chunk, file_bytes)
                if size is None:
                    reason = f"{file_bytes - self._position} bytes left after the last batch"
                    break
                buffer = bytearray(size)
        self._rebuild_indexes()
        segment.set_recovered(self._position, self._index.newest)
        return SegmentRecovery(self._next_offset, file_bytes - self._position, reason)

    def _take(self, chunk: memoryview, found: Walk) -> None:
        """Take in the sound batches of a chunk."""
        batches = found.batches
        if not len(batches):
            return
        segment = self._segment
        last_offsets = batches["last_offset"]
        if int(last_offsets[-1]) - segment.base_offset > MAX_RELATIVE_OFFSET:
            raise SegmentOverflowError(segment.path)
        self._index.add(
            batches["position"] + self._position, last_offsets, batches["max_timestamp_ms"]
        )
        self._replay(chunk, batches)
        self._next_offset = int(last_offsets[-1]) + 1
        self._position += found.stop_position

    def _replay(self, chunk: memoryview, batches: Any) -> None:
        epochs = batches["leader_epoch"]
        for slot in np.flatnonzero(np.diff(epochs, prepend=-1)):
            latest = self._epochs.latest()
            epoch = int(epochs[slot])
            if epoch >= 0 and (latest is None or epoch > latest.epoch):
                self._epochs.assign(epoch, int(batches["base_offset"][slot]))
        for txn in replay_chunk(chunk, batches, self._state, self._segment.path, self._position):
            if txn.is_aborted:
                self._segment.transaction_index.append(
                    AbortedTxn(
                        txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
                    )
                )

    def _missing_bytes(self, chunk: memoryview, file_bytes: int) -> int | None:
        """Return the size of a batch that is larger than the chunk, None if the file ends first."""
        if self._position + len(chunk) >= file_bytes or len(chunk) < HEADER_SIZE:
            return None
        size = read_header(chunk).size_bytes
        return size if self._position + size <= file_bytes else None

    def _refuse_legacy(self, rest: memoryview) -> None:
        if is_legacy_batch(rest):
            try:
                read_header(rest)
            except DecodeError as error:
                raise CorruptBatchError(self._segment.path, self._position, error.reason) from error

    def _rebuild_indexes(self) -> None:
        index = self._index
        self._segment.offset_index.replace(index.offset_entries())
        self._segment.time_index.replace(index.time_entries())
