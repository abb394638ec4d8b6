"""Whether bytes of a file are in memory, and how they get there."""

import os
from typing import Final

from siltstone.log.filesystem import File

# Where it is refused, as by old kernels, everything counts as cached: slow at worst.
_NO_WAIT: Final = getattr(os, "RWF_NOWAIT", None)
_CHUNK_BYTES: Final = 1 << 17


def is_cached(file: File, position: int, count: int) -> bool:
    """Say whether a read would have to wait for the disk, by its first and its last byte."""
    if _NO_WAIT is None:
        return True
    one = bytearray(1)
    try:
        os.preadv(file.fd, [one], position, _NO_WAIT)
        os.preadv(file.fd, [one], position + count - 1, _NO_WAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def read_ahead(file: File, position: int, count: int) -> None:
    """Bring bytes of a file into memory; waits for the disk, so not for the event loop."""
    end = position + count
    while position < end:
        data = os.pread(file.fd, min(_CHUNK_BYTES, end - position), position)
        if not data:
            return
        position += len(data)
