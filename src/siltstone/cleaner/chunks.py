"""The sources of a pass in large pieces: whole batches, and what transactions say about them."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.batch_modes import BatchModes
from siltstone.errors import CorruptBatchError
from siltstone.log.filesystem import File
from siltstone.records.batch import Batch, read_batch, read_header
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.scan import as_bytes, walk

CHUNK_BYTES: Final = 2 << 20
"""Small enough for a cache."""

PASS_CHUNK_BYTES: Final = 8 << 20
"""Large enough to forget about Python: threads that pass its lock around wait for each other."""


class Chunk(NamedTuple):
    """Whole batches of a source; only their headers have been looked at."""

    position: int  # in the file
    view: memoryview
    data: NDArray[np.uint8]  # the same bytes
    batches: Any  # rows of kernel_types.BATCH_DTYPE
    modes: NDArray[np.uint8]  # what transactions say: kernels.DATA, ABORTED, ...

    def batch_at(self, number: int) -> Batch:
        """Return one of the batches."""
        return read_batch(self.view, int(self.batches["position"][number]))


def iter_chunks(
    file: File,
    start: int,
    end: int,
    modes: BatchModes,
    *,
    is_sealed: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """Yield the batches between two positions; raise CorruptBatchError if a header is not sound.

    The bytes of a sealed file are not copied. Any other may be cut short by its owner, and then
    they would be gone.
    """
    position = start
    next_offset = 0
    wanted_bytes = chunk_bytes
    while position < end:
        wanted = min(wanted_bytes, end - position)
        view = file.view(position, wanted) if is_sealed else memoryview(file.read(position, wanted))
        found = walk(view, next_offset=next_offset, check_crc=False)
        if found.refusal is not None:
            at = position + found.stop_position
            raise CorruptBatchError(file.path, at, found.refusal.reason)
        if not len(found.batches):
            if len(view) < wanted:
                raise CorruptBatchError(file.path, position, "the file ends too early")
            wanted_bytes = _size_at(file, position, view, end)
            continue
        found_modes = modes.find(file, position, view, found.batches)
        view = view[: found.stop_position]
        yield Chunk(position, view, as_bytes(view), found.batches, found_modes)
        position += found.stop_position
        next_offset = int(found.batches["last_offset"][-1]) + 1
        wanted_bytes = chunk_bytes


def _size_at(file: File, position: int, data: memoryview, end: int) -> int:
    """Return the size of a batch that is larger than a chunk; raise if the file ends before."""
    left = end - position
    if len(data) < HEADER_SIZE:
        raise CorruptBatchError(file.path, position, f"{left} bytes left after the last batch")
    size = read_header(data).size_bytes
    if size > left:
        raise CorruptBatchError(file.path, position, f"batch of {size} bytes ends after the file")
    return size
