"""Reads that would wait for the disk are told apart from those that would not."""

import os
from pathlib import Path

import pytest

from siltstone.broker.page_cache import is_cached, read_ahead
from siltstone.log.filesystem import FileSystem

SIZE = 1 << 20


def test_what_was_dropped_from_memory_is_not_cached_until_it_is_read() -> None:
    path = Path(__file__).parent / "page-cache.tmp"  # on a disk, where tmp_path may be memory
    fs = FileSystem()
    file = fs.open(path, create=True)
    try:
        fs.write(file, 0, [b"x" * SIZE])
        assert is_cached(file, 0, SIZE)
        fs.fsync(file)
        os.posix_fadvise(file.fd, 0, SIZE, os.POSIX_FADV_DONTNEED)
        if is_cached(file, 0, SIZE):
            pytest.skip("this file system keeps everything in memory")

        read_ahead(file, 0, SIZE)

        assert is_cached(file, 0, SIZE)
    finally:
        file.close()
        path.unlink()
