"""Directories to load: what is in them, and a disk that stops before it is done."""

from collections.abc import Mapping
from pathlib import Path

from siltstone.log.filesystem import File
from siltstone.log.producer_entry import ProducerEntry
from tests.support.make_log import HastyDisk, MadeLog

INDEXES = ("0.index", "0.timeindex", "3.index", "3.timeindex")


def read_indexes(log: MadeLog) -> dict[str, bytes]:
    return {
        name: log.path(name).read_bytes()
        for name in log.names()
        if name.endswith((".index", ".timeindex", ".txnindex"))
    }


def last_batches(entries: Mapping[int, ProducerEntry]) -> dict[int, ProducerEntry]:
    """Leave out what a snapshot does not hold."""
    return {key: entry._replace(batches=entry.batches[-1:]) for key, entry in entries.items()}


def end_of(log: MadeLog) -> str:
    """Stop where any tail would matter, and say what a consumer still gets."""
    log.append("z=9")
    return log.readable()


class PowerLossError(BaseException):
    """Nothing in the code under test may catch it."""


class StoppingDisk(HastyDisk):
    """A disk that works for so many changes, and then not at all."""

    def __init__(self, changes: int) -> None:
        self._changes = changes

    def _change(self) -> None:
        if not self._changes:
            raise PowerLossError
        self._changes -= 1

    def write(self, file: File, position: int, buffers: object) -> None:
        self._change()
        super().write(file, position, buffers)  # type: ignore[arg-type]  # handed on as it came

    def truncate(self, file: File, size_bytes: int) -> None:
        self._change()
        super().truncate(file, size_bytes)

    def rename(self, source: Path, target: Path) -> None:
        self._change()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)
