"""Bring a producer state up to the log: from batches on disk, without a look at most of them.

A state remembers the last five batches of a producer, and where its transaction began. Of a run of
batches of one kind (same producer and epoch, all in a transaction or all outside), only the first
and the last five can leave a trace.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.lazy import LazyModule
from siltstone.log.producer_entry import REMEMBERED_BATCHES
from siltstone.log.producer_state import CompletedTxn, ProducerState
from siltstone.log.segment import Segment
from siltstone.records.batch import read_batch, read_header
from siltstone.records.layout import CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT
from siltstone.records.scan import Batches, Walk, walk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

_CHUNK_BYTES: Final = 8 << 20


def replay_chunk(
    chunk: memoryview, batches: Batches, state: ProducerState, path: Path, position: int
) -> Iterator[CompletedTxn]:
    """Take in the batches that a walk found in a chunk of a file, and yield the ended transactions.

    To be iterated to its end.
    """
    for slot in find_telling(batches):
        at = int(batches["position"][slot])
        batch = read_batch(chunk, at)
        try:
            marker = batch.marker()
        except DecodeError as error:
            raise CorruptBatchError(path, position + at, error.reason) from error
        yield from state.replay(batch.header, marker)
    state.update_map_end_offset(int(batches["last_offset"][-1]) + 1)


def find_telling(batches: Batches) -> "NDArray[np.intp]":
    """Return the slots of the batches without which the state would be another, in log order."""
    slots = np.flatnonzero(batches["producer_id"] >= 0)
    by_producer = slots[np.argsort(batches["producer_id"][slots], kind="stable")]
    found = batches[by_producer]
    producer_ids = found["producer_id"]
    is_data = found["attributes"] & CONTROL_BIT == 0
    data_counts = np.cumsum(is_data)
    last_of_producer = np.searchsorted(producer_ids, producer_ids, side="right") - 1
    later_data = data_counts[last_of_producer] - data_counts
    kind = found["attributes"] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    goes_on = np.zeros(len(found), bool)
    goes_on[1:] = (
        (producer_ids[1:] == producer_ids[:-1])
        & (found["producer_epoch"][1:] == found["producer_epoch"][:-1])
        & (kind[1:] == kind[:-1])
    )
    return np.sort(by_producer[~is_data | ~goes_on | (later_data < REMEMBERED_BATCHES)])


def replay_segment(segment: Segment, state: ProducerState, end_offset: int) -> None:
    """Take a segment's batches into a producer state, from where it is up to an offset."""
    start_offset = max(segment.base_offset, state.map_end_offset)
    state.update_map_end_offset(start_offset)
    stored = segment.find_batch(start_offset)
    if stored is None:
        return
    for position, chunk, found in _iter_walks(segment, stored.position):
        batches = found.batches[found.batches["base_offset"] < end_offset]
        if len(batches):
            for _ in replay_chunk(chunk, batches, state, segment.path, position):
                pass
        if len(batches) < len(found.batches):
            break
        if found.refusal is not None:
            raise CorruptBatchError(
                segment.path, position + found.stop_position, found.refusal.reason
            )


def _iter_walks(segment: Segment, position: int) -> Iterator[tuple[int, memoryview, Walk]]:
    """Yield the sound batches of a segment by chunks: (position, bytes, what is in them)."""
    wanted_bytes = _CHUNK_BYTES
    while position < segment.size_bytes:
        chunk = memoryview(
            segment.file.read(position, min(wanted_bytes, segment.size_bytes - position))
        )
        found = walk(chunk)
        if len(found.batches) or found.refusal is not None:
            yield position, chunk, found
            position += found.stop_position
            wanted_bytes = _CHUNK_BYTES
            continue
        left = segment.size_bytes - position
        wanted_bytes = read_header(chunk).size_bytes if len(chunk) >= HEADER_SIZE else left + 1
        if wanted_bytes > left:
            raise CorruptBatchError(
                segment.path, position, f"batch of {wanted_bytes} bytes ends after the file"
            )
