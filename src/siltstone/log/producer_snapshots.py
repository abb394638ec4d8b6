"""The `.snapshot` files of a log: which exist, which is the newest that can be trusted."""

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from siltstone.errors import CorruptCheckpointError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.producer_state import ProducerState

logger = logging.getLogger(__name__)


class ProducerSnapshots:
    """Writes a log's producer state to files named after the offset it was taken at, and back.

    Losing a file does no harm: without one, or with a damaged one, the state is replayed from
    further back. In a directory of somebody else's (`writable=False`) nothing is changed.
    """

    def __init__(
        self, fs: FileSystem, directory: Path, names: Iterable[str], *, writable: bool
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._writable = writable
        self.offsets: set[int] = set()
        for name in names:
            file = filenames.parse_segment_file(name)
            if file is not None and file.extension == filenames.SNAPSHOT and not file.suffix:
                self.offsets.add(file.base_offset)

    @property
    def latest_offset(self) -> int | None:
        """The highest offset that there is a snapshot of."""
        return max(self.offsets, default=None)

    def take(self, state: ProducerState, *, durable: bool) -> None:
        """Write the state as it is now, unless that was done already."""
        offset = state.map_end_offset
        if offset <= (self.latest_offset or 0):
            return
        if self._writable:
            path = filenames.snapshot_path(self._directory, offset)
            self._fs.write_file(path, state.write_snapshot(), durable=durable)
            self.offsets.add(offset)

    def flush(self, offset: int) -> None:
        """Make a snapshot durable that was written in a hurry; it may be gone by now."""
        try:
            file = self._fs.open(filenames.snapshot_path(self._directory, offset))
        except FileNotFoundError:
            return
        self._fs.fsync(file)

    def load_latest(
        self,
        state: ProducerState,
        *,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        """Set the state to the newest sound snapshot in (log start, end], else to nothing.

        `state.map_end_offset` says from where on the log must be replayed.
        """
        usable = (o for o in self.offsets if log_start_offset < o <= end_offset)
        for offset in sorted(usable, reverse=True):
            path = filenames.snapshot_path(self._directory, offset)
            data = self._fs.read_file(path)
            try:
                if data is not None:
                    state.load_snapshot(path, data, now_ms, expiration_ms)
                    state.update_map_end_offset(offset)
                    return
            except CorruptCheckpointError as error:
                logger.warning("%s; an older snapshot and a longer replay take its place", error)
            self.delete(offset)
        state.truncate_fully_and_start_at(log_start_offset)

    def mark_deleted(self, offset: int) -> Path | None:
        """Rename the snapshot of a segment that goes; None if there is none."""
        if offset not in self.offsets:
            return None
        self.offsets.discard(offset)
        target = filenames.snapshot_path(self._directory, offset, filenames.DELETED)
        self._fs.rename(filenames.snapshot_path(self._directory, offset), target)
        return target

    def delete(self, offset: int) -> None:
        """Delete the snapshot of one offset, if there is one."""
        self.offsets.discard(offset)
        if self._writable:
            self._fs.unlink(filenames.snapshot_path(self._directory, offset))

    def delete_outside(self, log_start_offset: int, end_offset: int) -> None:
        """Delete what lies at or below the log start, or beyond the end."""
        for offset in sorted(self.offsets):
            if not log_start_offset < offset <= end_offset:
                self.delete(offset)

    def delete_strays(self, base_offsets: Collection[int]) -> None:
        """Keep what belongs to a segment, and the newest one if it lies after the last of them."""
        strays = sorted(self.offsets.difference(base_offsets))
        if strays and strays[-1] > max(base_offsets, default=-1):
            strays.pop()
        for offset in strays:
            self.delete(offset)
