"""A storage that tells how much is read and written, for progress and for throttling."""

from typing import Final, Protocol

from siltstone.cleaner.storage import PassStorage
from siltstone.log.filesystem import File

_NO_DESCRIPTOR: Final = -1  # The wrapped file has it.


class Meter(Protocol):
    """Is told after every read and write; may keep the caller waiting."""

    def add_read(self, byte_count: int) -> None:
        """Take note of bytes that were read."""
        ...

    def add_written(self, byte_count: int) -> None:
        """Take note of bytes that were written."""
        ...


class MeteredStorage:
    """Another storage, with a meter."""

    def __init__(self, storage: PassStorage, meter: Meter) -> None:
        self._storage = storage
        self._meter = meter

    def open_source(self, base_offset: int) -> File:
        """Open the log file of a segment for reading."""
        return _MeteredFile(self._storage.open_source(base_offset), self._meter)

    def create(self, name: str) -> File:
        """Create a file, or empty the one that an earlier attempt left."""
        return self._storage.create(name)

    def write(self, file: File, position: int, data: bytes | memoryview) -> None:
        """Write bytes; durable only once the owner has flushed them."""
        self._storage.write(file, position, data)
        self._meter.add_written(len(data))

    def delete(self, name: str) -> None:
        """Delete a file that nobody will use."""
        self._storage.delete(name)


class _MeteredFile(File):
    __slots__ = ("_file", "_meter")

    def __init__(self, file: File, meter: Meter) -> None:
        super().__init__(file.path, _NO_DESCRIPTOR)
        self._file = file
        self._meter = meter

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def read(self, position: int, count: int) -> bytes:
        data = self._file.read(position, count)
        self._meter.add_read(len(data))
        return data

    def view(self, position: int, count: int) -> memoryview:
        data = self._file.view(position, count)
        self._meter.add_read(len(data))
        return data

    def keep_views(self) -> None:
        self._file.keep_views()

    def drop_view(self, position: int, count: int) -> None:
        self._file.drop_view(position, count)
