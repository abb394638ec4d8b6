"""Where a run reads segments and writes new files: the only I/O that a task does."""

from pathlib import Path
from typing import Protocol

from siltstone.log import filenames
from siltstone.log.filesystem import File, FileSystem


class PassStorage(Protocol):
    """A place with the segments of one log, seen alike by the planner and by every worker."""

    def open_source(self, base_offset: int) -> File:
        """Open the log file of a segment for reading."""
        ...

    def create(self, name: str) -> File:
        """Create a file, or empty the one that an earlier attempt left."""
        ...

    def write(self, file: File, position: int, data: bytes | memoryview) -> None:
        """Write bytes; durable only once the owner has flushed them."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file that nobody will use."""
        ...


class DirectoryStorage:
    """A partition directory on a disk that all workers share."""

    def __init__(self, directory: Path, fs: FileSystem | None = None) -> None:
        self._directory = directory
        self._fs = fs or FileSystem()
        self._sources: dict[int, File] = {}

    def open_source(self, base_offset: int) -> File:
        """Open the log file of a segment for reading; once, for it is read twice."""
        if base_offset not in self._sources:
            path = filenames.log_path(self._directory, base_offset)
            self._sources[base_offset] = self._fs.open(path, writable=False)
        return self._sources[base_offset]

    def create(self, name: str) -> File:
        """Create a file, or empty the one that an earlier attempt left."""
        file = self._fs.open(self._directory / name, create=True)
        self._fs.truncate(file, 0)
        return file

    def write(self, file: File, position: int, data: bytes | memoryview) -> None:
        """Write bytes; durable only once the owner has flushed them."""
        self._fs.write(file, position, [data])

    def delete(self, name: str) -> None:
        """Delete a file that nobody will use."""
        self._fs.unlink(self._directory / name)
