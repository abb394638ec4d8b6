"""The `.lock` of a log directory, which keeps out other processes of ours and a running Kafka.

Kafka takes a POSIX record lock, so we do too. Such a lock belongs to the process and is gone with
it, however it ends; it does not keep out the process itself, so what it holds is remembered here.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from siltstone.errors import LogDirLockedError, LogDirOfflineError
from siltstone.log import filenames

# struct flock as the C library lays it out: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("@hhqqi4x")

_held: set[Path] = set()


class DirectoryLock:
    """An exclusive lock on a log directory, held until `release`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        path = self._directory / filenames.LOCK
        if self._directory in _held:
            raise LogDirLockedError(directory, os.getpid())
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LogDirOfflineError(path, f"cannot open: {error.strerror}") from error
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = _find_owner(self._fd)
            os.close(self._fd)
            raise LogDirLockedError(directory, pid) from error
        _held.add(self._directory)

    def release(self) -> None:
        """Let others in; a second call does nothing."""
        if self._directory in _held:
            _held.discard(self._directory)
            # Closing any descriptor of the file ends the lock, so no other may be open.
            os.close(self._fd)


def _find_owner(fd: int) -> int | None:
    """Ask the kernel who holds a lock that conflicts with ours."""
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    lock_type, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
    # 0: held on another machine, behind a network file system.
    return pid if lock_type != fcntl.F_UNLCK and pid > 0 else None
