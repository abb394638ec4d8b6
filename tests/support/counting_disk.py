"""A disk that counts what is made durable."""

from pathlib import Path

from siltstone.log.filesystem import File
from tests.support.make_log import HastyDisk


class CountingDisk(HastyDisk):
    """Notes what was flushed."""

    def __init__(self) -> None:
        self.flushed: list[str] = []

    def fsync(self, file: File) -> None:
        self.flushed.append(file.path.name)

    def fsync_dir(self, path: Path) -> None:
        self.flushed.append(path.name)
