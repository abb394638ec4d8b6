"""Numbers for producers, none of which is ever given twice.

They are taken in blocks: the end of the block is on disk before its first number is used, so that
a crash costs numbers and never repeats one.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from siltstone.broker.copies import write_copies
from siltstone.errors import CorruptCheckpointError
from siltstone.log.filesystem import FileSystem

FILE_NAME: Final = "silt-producer-ids.json"
_BLOCK_SIZE: Final = 1000


class ProducerIds:
    """The next producer id, kept in every log directory; the highest that is found counts."""

    def __init__(self, fs: FileSystem, log_dirs: Sequence[Path], first_free: int) -> None:
        self._fs = fs
        self._paths: Final = [path / FILE_NAME for path in log_dirs]
        self._lock = threading.Lock()
        self._next = max([first_free, *(_read(fs, path) for path in self._paths)])
        self._block_end = self._next

    def skip_to(self, first_free: int) -> None:
        """Learn that all numbers below one may be taken: another broker may have given them."""
        with self._lock:
            self._next = max(self._next, first_free)
            self._block_end = max(self._next, self._block_end)

    def reserve(self) -> None:
        """Write down that there is a number to take, so that `take` need not wait for the disk."""
        with self._lock:
            self._fill()

    @property
    def needs_disk(self) -> bool:
        """Whether the next call of `take` writes."""
        return self._next >= self._block_end

    def take(self) -> int:
        """Return a number that nobody has."""
        with self._lock:
            self._fill()
            self._next += 1
            return self._next - 1

    def _fill(self) -> None:
        if self._next >= self._block_end:
            self._write(self._next + _BLOCK_SIZE)
            self._block_end = self._next + _BLOCK_SIZE

    def _write(self, end: int) -> None:
        data = json.dumps({"version": 0, "next_producer_id": end}).encode("ascii") + b"\n"
        write_copies(self._fs, self._paths, data)


def _read(fs: FileSystem, path: Path) -> int:
    data = fs.read_file(path)
    if data is None:
        return 0
    try:
        return int(json.loads(data)["next_producer_id"])
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptCheckpointError(path, f"makes no sense: {error}") from error
