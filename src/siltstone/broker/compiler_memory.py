"""Give back the memory of the kernels' compiler once all kernels are there.

A broker starts without it. Key indexes after a pass need it, as everything does where no kernels
can be stored: that brings in LLVM, 70 MB of code that nobody calls afterwards. The kernel may have
these pages back; should they be needed after all, they are read from the file again.
"""

import contextlib
import ctypes
from pathlib import Path
from typing import Final

_MAPS_PATH: Final = Path("/proc/self/maps")
_LIBRARY: Final = "libllvmlite"
_MADV_DONTNEED: Final = 4
_MADV_PAGEOUT: Final = 21


def release_compiler() -> None:
    """Let go of the compiler's pages; where that is not possible, nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        for line in _MAPS_PATH.read_text().splitlines():
            if _LIBRARY in line:
                addresses, permissions = line.split()[:2]
                begin, end = (int(address, 16) for address in addresses.split("-"))
                # Code is as it is in the file. The rest may hold addresses that the linker has
                # filled in, and must not be thrown away.
                advice = _MADV_DONTNEED if "x" in permissions else _MADV_PAGEOUT
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)
