"""What is left of the batches of a chunk, written one after the other."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.explaining import explain
from siltstone.cleaner.key_hasher import Marks
from siltstone.cleaner.output import Written
from siltstone.cleaner.unpacking import Unpacker, is_compressed, pack
from siltstone.log.filesystem import File
from siltstone.records.scan import as_bytes
from siltstone.records.zstd_kernels import ZstdContexts

_FIRST_BYTES: Final = 4 << 20


class Verdict(NamedTuple):
    """What becomes of the batches of one chunk."""

    fates: NDArray[np.uint8]
    has_tombstones: NDArray[np.bool_]


class BatchWriter:
    """Writes chunks into one buffer, over and over; one thread's at a time."""

    def __init__(self, marks: Marks, now_ms: int, new_horizon_ms: int) -> None:
        self._marks = marks
        self._now_ms = now_ms
        self._new_horizon_ms = new_horizon_ms
        self._out = np.empty(_FIRST_BYTES, np.uint8)
        self._unpacker = Unpacker()
        self._zstd = ZstdContexts()

    def write(self, file: File, chunk: Chunk, verdict: Verdict, ordinal: int) -> Written:
        """Write a chunk; valid until the next. `ordinal` is that of its first record."""
        chunk, verdict = self._repacked(file, chunk, verdict, ordinal)
        return self._rewrite(file, chunk, verdict, ordinal, is_unpacked=False)

    def _rewrite(
        self, file: File, chunk: Chunk, verdict: Verdict, ordinal: int, *, is_unpacked: bool
    ) -> Written:
        stays = chunk.batches[verdict.fates != kernels.DISCARDED]
        room = int(stays["size_bytes"].sum(dtype=np.int64))
        room += kernels.RECORD_GROWTH_BYTES * int(stays["record_count"].sum(dtype=np.int64))
        if room > len(self._out):
            self._out = np.empty(room, np.uint8)
        rows = np.empty((len(stays), 4), np.int64)
        position, refused = kernels.rewrite_batches(
            chunk.data,
            chunk.batches,
            chunk.modes,
            verdict.fates,
            verdict.has_tombstones,
            self._marks,
            ordinal,
            self._now_ms,
            self._new_horizon_ms,
            self._out,
            rows,
        )
        if refused >= 0:
            if is_unpacked:
                raise AssertionError(f"batch {refused} of {file.path} was sound before")
            explain(file, chunk, refused)
        return Written(self._out[:position].data, rows)

    def _repacked(
        self, file: File, chunk: Chunk, verdict: Verdict, ordinal: int
    ) -> tuple[Chunk, Verdict]:
        """Rebuild the compressed batches; return the chunk with them, to be copied as they are."""
        todo = np.flatnonzero((verdict.fates == kernels.REBUILT) & is_compressed(chunk.batches))
        if not len(todo):
            return chunk, verdict
        batches = chunk.batches.copy()
        parts: list[bytes | memoryview] = [chunk.view]
        end = len(chunk.view)
        done = 0
        while done < len(todo):
            data, table, count = self._unpacker.unpack(file, chunk, todo[done:])
            numbers = todo[done : done + count]
            fates = np.full(len(verdict.fates), kernels.DISCARDED, np.uint8)
            fates[numbers] = kernels.REBUILT
            written = self._rewrite(
                file,
                chunk._replace(data=data, batches=table),
                Verdict(fates, verdict.has_tombstones),
                ordinal,
                is_unpacked=True,
            )
            packed = pack(written.data, written.rows[:, 0].copy(), self._zstd)
            parts += packed.parts
            ends = end + np.cumsum(packed.sizes)
            batches["position"][numbers] = ends - packed.sizes
            batches["size_bytes"][numbers] = packed.sizes
            batches["max_timestamp_ms"][numbers] = written.rows[:, 3]
            end = int(ends[-1])
            done += count
        fates = verdict.fates.copy()
        fates[todo] = kernels.COPIED
        view = memoryview(b"".join(parts))
        repacked = chunk._replace(view=view, data=as_bytes(view), batches=batches)
        return repacked, Verdict(fates, verdict.has_tombstones)
