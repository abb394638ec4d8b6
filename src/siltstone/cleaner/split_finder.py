"""Where a source can be cut: at batches that its offset index knows, and that prove to be some."""

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.slices import Split
from siltstone.errors import DecodeError
from siltstone.log import filenames
from siltstone.log.filesystem import File, FileSystem
from siltstone.records.batch import BatchHeader, read_batch, read_header
from siltstone.records.layout import HEADER_SIZE


class SplitFinder:
    """Finds splits in the sources of a plan; used by the driver alone."""

    def __init__(self, fs: FileSystem, plan: CleaningPlan) -> None:
        self._fs = fs
        self._directory = plan.directory
        self._indexes: dict[int, NDArray[np.uint32]] = {}

    def find(self, base_offset: int, position: int) -> Split | None:
        """Return the last split at or before a position that the index knows, or None.

        An index may be wrong. What it points at is cut at only if it is a whole batch with the
        offset that the index gives; a cut in the middle of one would look like damage.
        """
        entries = self._entries(base_offset)
        slot = int(np.searchsorted(entries[:, 1], position, side="right")) - 1
        if slot < 0:
            return None
        relative_offset, start = entries[slot].tolist()
        try:
            file = self._fs.open(filenames.log_path(self._directory, base_offset), writable=False)
            header = _check(file, start)
        except (DecodeError, FileNotFoundError):
            return None
        if header.last_offset != base_offset + relative_offset:
            return None
        return Split(start, header.base_offset)

    def _entries(self, base_offset: int) -> NDArray[np.uint32]:
        """Return the entries of an offset index: relative offset and position."""
        if base_offset not in self._indexes:
            path = filenames.offset_index_path(self._directory, base_offset)
            data = self._fs.read_file(path) or b""
            entries = np.frombuffer(data[: len(data) // 8 * 8], ">u4").reshape(-1, 2)
            self._indexes[base_offset] = entries.astype(np.uint32)
        return self._indexes[base_offset]


def _check(file: File, position: int) -> BatchHeader:
    """Return the header of the batch at a position; raise DecodeError if there is none."""
    size_bytes = read_header(file.read(position, HEADER_SIZE)).size_bytes
    batch = read_batch(file.read(position, size_bytes))
    batch.check_crc()
    return batch.header
