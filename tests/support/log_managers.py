"""Log managers of a test: a disk that can be made to refuse, and what is in their logs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from siltstone.errors import (
    LogDirOfflineError,
)
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import File
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from tests.support.clock import START_MS
from tests.support.make_log import HastyDisk, format_batch, parse_records


class BrokenDisk(HastyDisk):
    """A disk that refuses everything below some directories."""

    def __init__(self) -> None:
        self.broken: set[Path] = set()

    def _check(self, path: Path) -> None:
        if self.broken & {path, *path.parents}:
            raise LogDirOfflineError(path, "cannot reach: Input/output error")

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        self._check(path)
        return super().open(path, create=create, writable=writable)

    def write(self, file: File, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        self._check(file.path)
        super().write(file, position, buffers)

    def truncate(self, file: File, size_bytes: int) -> None:
        self._check(file.path)
        super().truncate(file, size_bytes)

    def fsync(self, file: File) -> None:
        self._check(file.path)

    def fsync_dir(self, path: Path) -> None:
        self._check(path)

    def rename(self, source: Path, target: Path) -> None:
        self._check(source)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._check(path)
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._check(path)
        super().mkdir(path)

    def remove_dir(self, path: Path) -> None:
        self._check(path)
        super().remove_dir(path)

    def list_names(self, path: Path) -> list[str]:
        self._check(path)
        return super().list_names(path)

    def read_file(self, path: Path) -> bytes | None:
        self._check(path)
        return super().read_file(path)


OpenManager = Callable[..., LogManager]


def crash(manager: LogManager) -> None:
    """End the manager as the end of its process would."""
    for directory in manager.directories:
        directory.release()
    manager.directories = []


def append(manager: LogManager, topic: str, text: str, partition: int = 0) -> None:
    log = manager.get_log(TopicPartition(topic, partition))
    for token in text.split():
        log.append(build_batch(parse_records(token, START_MS)))
    log.update_high_watermark(log.log_end_offset)


def read(manager: LogManager, topic: str, partition: int = 0) -> str:
    log = manager.get_log(TopicPartition(topic, partition))
    return " ".join(
        format_batch(batch) for segment in log.segments for _, batch in segment.iter_batches()
    )


def partition_dirs(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())
