"""The sources of a pass in large pieces: whole batches, and what transactions say about them."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.batch_modes import BatchModes
from siltstone.errors import CorruptBatchError
from siltstone.log.filesystem import File
from siltstone.records.batch import read_header
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.scan import as_bytes, walk

_CHUNK_BYTES: Final = 8 << 20


class Chunk(NamedTuple):
    """Whole batches of a source; valid until the next chunk is read."""

    position: int  # in the file
    view: memoryview
    data: NDArray[np.uint8]  # the same bytes
    batches: Any  # rows of records.kernels.BATCH_DTYPE
    modes: NDArray[np.uint8]  # what transactions say: kernels.DATA, ABORTED, ...


class ChunkReader:
    """Reads sources into one buffer, over and over: fresh memory is what costs most."""

    def __init__(self) -> None:
        self._buffer = bytearray(_CHUNK_BYTES)

    def iter_chunks(
        self, file: File, start: int, end: int, modes: BatchModes, *, check_crc: bool
    ) -> Iterator[Chunk]:
        """Yield the batches between two positions; raise CorruptBatchError if one is not sound."""
        position = start
        next_offset = 0
        while position < end:
            wanted = min(len(self._buffer), end - position)
            count = file.read_into(position, memoryview(self._buffer)[:wanted])
            data = memoryview(self._buffer)[:count]
            found = walk(data, next_offset=next_offset, check_crc=check_crc)
            if found.refusal is not None:
                at = position + found.stop_position
                raise CorruptBatchError(file.path, at, found.refusal.reason)
            if not len(found.batches):
                if count < wanted:
                    raise CorruptBatchError(file.path, position, "the file ends too early")
                self._make_room(file, position, data, end)
                continue
            found_modes = modes.find(file, position, data, found.batches)
            view = data[: found.stop_position]
            yield Chunk(position, view, as_bytes(view), found.batches, found_modes)
            position += found.stop_position
            next_offset = int(found.batches["last_offset"][-1]) + 1

    def _make_room(self, file: File, position: int, data: memoryview, end: int) -> None:
        """Grow for a batch that is larger than the buffer; raise if the file ends before it."""
        left = end - position
        if len(data) < HEADER_SIZE:
            raise CorruptBatchError(file.path, position, f"{left} bytes left after the last batch")
        size = read_header(data).size_bytes
        if size > left:
            raise CorruptBatchError(
                file.path, position, f"batch of {size} bytes ends after the file"
            )
        self._buffer = bytearray(size)
