"""The sources of a pass in large pieces: whole batches, and what transactions say about them."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.batch_modes import BatchModes
from siltstone.errors import CorruptBatchError
from siltstone.log.filesystem import File
from siltstone.records.batch import read_header
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.scan import as_bytes, walk

_CHUNK_BYTES: Final = 2 << 20  # Small enough for a cache, large enough to forget about Python.


class Chunk(NamedTuple):
    """Whole batches of a source; valid until the next chunk is read."""

    position: int  # in the file
    view: memoryview
    data: NDArray[np.uint8]  # the same bytes
    batches: Any  # rows of records.kernels.BATCH_DTYPE
    modes: NDArray[np.uint8]  # what transactions say: kernels.DATA, ABORTED, ...
    crc: int  # of all bytes of the source up to the end of this chunk; 0 if none are checked


class _Piece(NamedTuple):
    """What was read at a position; without batches if one is larger than the buffer."""

    position: int
    data: memoryview
    batches: Any
    stop_position: int
    crc: int


class ChunkReader:
    """Reads sources into two buffers, over and over: fresh memory is what costs most.

    With `reads_ahead` a thread of its own reads and checks the next chunk while the caller works on
    the one before; a second one in `pool` is for the caller.
    """

    def __init__(self, *, reads_ahead: bool = False) -> None:
        self._buffers = [np.empty(_CHUNK_BYTES, np.uint8) for _ in range(1 + reads_ahead)]
        self.pool = ThreadPoolExecutor(2, "ahead") if reads_ahead else None

    def close(self) -> None:
        """End the thread, if there is one."""
        if self.pool is not None:
            self.pool.shutdown()

    def iter_chunks(
        self, file: File, start: int, end: int, modes: BatchModes, *, check_crc: bool
    ) -> Iterator[Chunk]:
        """Yield the batches between two positions; raise CorruptBatchError if one is not sound."""
        pieces = self._iter_pieces(file, start, end, check_crc=check_crc)
        for piece in pieces if self.pool is None else _ahead(self.pool, pieces):
            found_modes = modes.find(file, piece.position, piece.data, piece.batches)
            view = piece.data[: piece.stop_position]
            yield Chunk(piece.position, view, as_bytes(view), piece.batches, found_modes, piece.crc)

    def _iter_pieces(
        self, file: File, start: int, end: int, *, check_crc: bool
    ) -> Iterator[_Piece]:
        position = start
        next_offset = crc = turn = 0
        while position < end:
            buffer = self._buffers[turn].data
            wanted = min(len(buffer), end - position)
            count = file.read_into(position, buffer[:wanted])
            data = buffer[:count]
            found = walk(data, next_offset=next_offset, check_crc=check_crc)
            if found.refusal is not None:
                at = position + found.stop_position
                raise CorruptBatchError(file.path, at, found.refusal.reason)
            if not len(found.batches):
                if count < wanted:
                    raise CorruptBatchError(file.path, position, "the file ends too early")
                self._buffers[turn] = np.empty(_size_at(file, position, data, end), np.uint8)
                continue
            if check_crc:
                crc = crc32c(data[: found.stop_position], crc)
            yield _Piece(position, data, found.batches, found.stop_position, crc)
            position += found.stop_position
            next_offset = int(found.batches["last_offset"][-1]) + 1
            turn = (turn + 1) % len(self._buffers)


def _ahead(pool: ThreadPoolExecutor, pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Yield what an iterator gives, which is one step ahead, in another thread."""

    def step() -> _Piece | None:
        return next(pieces, None)

    coming: Future[_Piece | None] = pool.submit(step)
    try:
        while (piece := coming.result()) is not None:
            # Only now, with two buffers: the caller is done with the one that is filled next.
            coming = pool.submit(step)
            yield piece
    finally:
        coming.cancel() or coming.exception()  # Or it would write into a buffer that is in use.


def _size_at(file: File, position: int, data: memoryview, end: int) -> int:
    """Return the size of a batch that is larger than the buffer; raise if the file ends before."""
    left = end - position
    if len(data) < HEADER_SIZE:
        raise CorruptBatchError(file.path, position, f"{left} bytes left after the last batch")
    size = read_header(data).size_bytes
    if size > left:
        raise CorruptBatchError(file.path, position, f"batch of {size} bytes ends after the file")
    return size
