"""Small files of the broker, with a copy in every log directory."""

from collections.abc import Iterable
from pathlib import Path

from siltstone.errors import LogDirOfflineError
from siltstone.log.filesystem import FileSystem


def write_copies(fs: FileSystem, paths: Iterable[Path], data: bytes) -> None:
    """Replace a file in every directory that takes it; raise LogDirOfflineError if none does.

    The others miss it: whoever reads the copies has to know which one is the newest.
    """
    failure: LogDirOfflineError | None = None
    is_written = False
    for path in paths:
        try:
            fs.write_atomically(path, data)
            is_written = True
        except LogDirOfflineError as error:
            failure = error
    if failure is not None and not is_written:
        raise failure
