"""A part of a file that is mapped into memory, and what the system is told about its pages.

The system is asked past Python: `mmap.madvise` keeps all other threads waiting until it is done,
and it takes a while to map what a pass reads at a time.
"""

import ctypes
import mmap
import os
import sys
from typing import Final, NamedTuple

WINDOW_BYTES: Final = 32 << 20

_CACHESTAT: Final = 451  # the number of a call of Linux 6.5, on every processor


class _Range(ctypes.Structure):
    """What `cachestat` is asked about."""

    _fields_ = (("start", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    """What it answers."""

    _fields_ = (
        ("cached_pages", ctypes.c_uint64),
        ("dirty_pages", ctypes.c_uint64),
        ("written_pages", ctypes.c_uint64),
        ("evicted_pages", ctypes.c_uint64),
        ("recently_evicted_pages", ctypes.c_uint64),
    )


class _Buffer(ctypes.Structure):
    """Where an object has its bytes: `Py_buffer`, as Python's stable ABI has it."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("size_bytes", ctypes.c_ssize_t),
        ("item_bytes", ctypes.c_ssize_t),
        ("is_readonly", ctypes.c_int),
        ("dimension_count", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer: Final = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer: Final = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None
_libc: Final = ctypes.CDLL(None, use_errno=True)
_madvise: Final = _libc.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class FileWindow(NamedTuple):
    """A part of a file that is mapped: enough for many views, and not much memory."""

    start: int
    mapped: mmap.mmap
    address: int  # of the first byte

    @classmethod
    def open(cls, fd: int, position: int, end: int, *, is_whole: bool) -> "FileWindow":
        """Map the file from a position to an end or further; or all of it."""
        size_bytes = os.fstat(fd).st_size
        start = 0 if is_whole else _round_down(position, mmap.ALLOCATIONGRANULARITY)
        stop = size_bytes if is_whole else min(max(start + WINDOW_BYTES, end), size_bytes)
        mapped = mmap.mmap(fd, stop - start, access=mmap.ACCESS_READ, offset=start)
        return cls(start, mapped, _address_of(mapped))

    @property
    def end(self) -> int:
        """The position in the file after the last byte."""
        return self.start + len(self.mapped)

    def advise(self, advice: int, position: int, end: int) -> None:
        """Advise the system on the pages that have bytes between two positions of the file."""
        first = _round_down(position, mmap.PAGESIZE)
        if _madvise(self.address + first - self.start, end - first, advice):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def is_cached(fd: int, position: int, end: int) -> bool:
    """Say whether all pages with bytes between two positions are in memory.

    If nobody knows, they are not: the system may be older, or tell only the owner of the file.
    """
    if sys.platform != "linux":
        return False
    first = _round_down(position, mmap.PAGESIZE)
    asked = _Range(first, end - first)
    found = _CacheStat()
    if _libc.syscall(_CACHESTAT, fd, ctypes.byref(asked), ctypes.byref(found), 0):
        return False
    return int(found.cached_pages) >= -(-(end - first) // mmap.PAGESIZE)


def _address_of(mapped: mmap.mmap) -> int:
    buffer = _Buffer()
    _get_buffer(mapped, ctypes.byref(buffer), 0)
    address = int(buffer.address)
    _release_buffer(ctypes.byref(buffer))
    return address


def _round_down(position: int, unit: int) -> int:
    return position // unit * unit
