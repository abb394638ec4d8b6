"""The first walk over sources: checks every batch and enters every key."""

from collections.abc import Iterator

from siltstone.cleaner.batch_modes import BatchModes
from siltstone.cleaner.chunks import PASS_CHUNK_BYTES, Chunk, iter_chunks
from siltstone.cleaner.crc_combine import combine_crcs
from siltstone.cleaner.key_marks import KeyMarks, Reserved
from siltstone.cleaner.side_by_side import Threads
from siltstone.cleaner.storage import PassStorage


class KeyWalk:
    """Walks through sources, or parts of them, one after the other."""

    def __init__(
        self, storage: PassStorage, keys: KeyMarks, modes: BatchModes, threads: Threads
    ) -> None:
        self.keys = keys
        self.next_offset = 0  # after the last batch
        self._storage = storage
        self._modes = modes
        self._threads = threads

    def enter(self, base_offset: int, start: int, end: int) -> int:
        """Enter the keys between two positions of a source; return the CRC of the bytes there."""
        file = self._storage.open_source(base_offset)

        def numbered() -> Iterator[tuple[Chunk, Reserved]]:
            for chunk in iter_chunks(file, start, end, self._modes, chunk_bytes=PASS_CHUNK_BYTES):
                self.next_offset = int(chunk.batches["last_offset"][-1]) + 1
                yield chunk, self.keys.reserve(chunk)

        def enter(job: tuple[Chunk, Reserved]) -> tuple[int, int]:
            chunk, reserved = job
            return self.keys.enter_reserved(file, chunk, reserved), len(chunk.view)

        crc = 0
        for chunk_crc, size_bytes in self._threads.map(enter, numbered()):
            crc = combine_crcs(crc, chunk_crc, size_bytes)
        return crc
