"""Reads that would wait for the disk are told apart from those that would not."""

import os
import time
from pathlib import Path

from siltstone.broker.page_cache import is_cached, read_ahead
from siltstone.log.filesystem import File, FileSystem

SIZE = 1 << 20


def drop(file: File) -> None:
    """Have the system forget the file; another processor may hold on to its pages for a moment."""
    deadline = time.monotonic() + 120
    while is_cached(file, 0, SIZE):
        assert time.monotonic() < deadline, f"{file.path} is on a disk that is memory itself"
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(0.01)


def test_what_was_dropped_from_memory_is_not_cached_until_it_is_read() -> None:
    path = Path(__file__).parent / "page-cache.tmp"  # on a disk, where tmp_path may be memory
    fs = FileSystem()
    file = fs.open(path, create=True)
    try:
        fs.write(file, 0, [b"x" * SIZE])
        assert is_cached(file, 0, SIZE)
        fs.fsync(file)
        drop(file)

        read_ahead(file, 0, SIZE)

        assert is_cached(file, 0, SIZE)
    finally:
        file.close()
        path.unlink()
