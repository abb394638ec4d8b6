"""Give back the memory of the kernels' compiler once all kernels are there.

Loading compiled kernels brings in LLVM, 70 MB of code that nobody calls afterwards. The kernel may
have these pages back; should they be needed after all, they are read from the file again.
"""

import contextlib
import ctypes
from pathlib import Path
from typing import Final

_MAPS_PATH: Final = Path("/proc/self/maps")
_LIBRARY: Final = "libllvmlite"
_MADV_PAGEOUT: Final = 21


def release_compiler() -> None:
    """Let go of the compiler's pages; where that is not possible, nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        for line in _MAPS_PATH.read_text().splitlines():
            if _LIBRARY in line:
                begin, end = (int(address, 16) for address in line.split()[0].split("-"))
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_PAGEOUT)
