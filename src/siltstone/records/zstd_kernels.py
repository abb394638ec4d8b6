"""zstd frames, many a call: the library's own functions, called by kernels without Python's lock.

The package that wraps the library takes the lock for each frame, and threads wait for it longer
than for the codec. So a kernel is given the addresses of the functions. Frames come out the same,
byte for byte, as those of `compression`, the twin, which also reads whatever is refused here, or
says what is wrong with it.
"""

import ctypes
import functools
import importlib.util
import weakref
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from siltstone.records.compression import DEFAULT_ZSTD_LEVEL
from siltstone.records.lz4_kernels import FULL, REFUSED

_LIBRARY: Final = "zstandard._cffi"  # The module of the package that shows the library's names.

# Slots of the addresses that a kernel is given; all are zero if there is no library to call.
_DECOMPRESS: Final = 0
_COMPRESS: Final = 1
_RESET: Final = 2
_DECODER: Final = 3  # a context
_ENCODER: Final = 4  # a context
_SLOTS: Final = 5

# Of the library: parameters, directives, and errors, which are negative as signed numbers.
_LEVEL: Final = 100
_CONTENT_SIZE_FLAG: Final = 200
_RESET_SESSION: Final = 1
_CONTINUE: Final = 0
_FLUSH: Final = 1
_END: Final = 2
_LOWEST_ERROR: Final = -120
_NO_ROOM: Final = -70


@functools.cache
def _load_library() -> ctypes.CDLL | None:
    try:
        spec = importlib.util.find_spec(_LIBRARY)
        library = ctypes.CDLL(spec.origin) if spec is not None else None
    except (ImportError, OSError):
        return None
    if library is None or not hasattr(library, "ZSTD_decompressDCtx"):
        return None
    for name in ("createDCtx", "createCCtx"):
        getattr(library, f"ZSTD_{name}").restype = ctypes.c_void_p
    for name in ("freeDCtx", "freeCCtx"):
        getattr(library, f"ZSTD_{name}").argtypes = [ctypes.c_void_p]
    library.ZSTD_CCtx_setParameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    return library


class ZstdContexts:
    """What the library needs to decode and to encode; one thread's at a time."""

    def __init__(self) -> None:
        self.addresses = np.zeros(_SLOTS, np.int64)
        library = _load_library()
        if library is None:
            return
        decoder, encoder = library.ZSTD_createDCtx(), library.ZSTD_createCCtx()
        weakref.finalize(self, library.ZSTD_freeDCtx, decoder)
        weakref.finalize(self, library.ZSTD_freeCCtx, encoder)
        library.ZSTD_CCtx_setParameter(encoder, _LEVEL, DEFAULT_ZSTD_LEVEL)
        library.ZSTD_CCtx_setParameter(encoder, _CONTENT_SIZE_FLAG, 0)
        functions = ("ZSTD_decompressDCtx", "ZSTD_compressStream2", "ZSTD_CCtx_reset")
        pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in functions]
        self.addresses[:] = [*(pointer.value for pointer in pointers), decoder, encoder]


@intrinsic
def _call(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call the function at an address with a tuple of numbers or addresses."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        i64 = ir.IntType(64)
        count = len(signature.args[1])
        kind = ir.FunctionType(i64, [i64] * count)
        function = builder.inttoptr(values[0], kind.as_pointer())
        given = [builder.extract_value(values[1], number) for number in range(count)]
        return builder.call(function, given)

    return types.int64(types.int64, arguments), generate


@njit(cache=True, nogil=True)
def has_library(addresses: Any) -> bool:
    """Say whether there is a library to call."""
    return bool(addresses[_DECOMPRESS] != 0)


@njit(cache=True, nogil=True)
def decode_frames(
    addresses: Any, data: Any, start: int, end: int, out: Any, position: int, limit: int
) -> int:
    """Decode `data[start:end]` to `out[position:]`; return the position after it.

    Or FULL, or REFUSED: also if it unfolds to more than `limit` bytes. Twin: `decompress`.
    """
    if start == end:
        return REFUSED  # Of no bytes the library makes no bytes.
    room = min(out.size - position, limit)
    size: Any = _call(
        addresses[_DECOMPRESS],
        (
            addresses[_DECODER],
            np.int64(out.ctypes.data) + position,
            room,
            np.int64(data.ctypes.data) + start,
            end - start,
        ),
    )
    if _LOWEST_ERROR <= size < 0:
        return FULL if size == _NO_ROOM and room < limit else REFUSED
    return position + size


@njit(cache=True, nogil=True)
def frame_room(size: int) -> int:
    """Return how many bytes a frame of so many can take, at most."""
    return size + (size >> 8) + 256


@njit(cache=True, nogil=True)
def encode_frame(
    addresses: Any, data: Any, start: int, end: int, out: Any, position: int, room: int
) -> int:
    """Encode `data[start:end]` to `out[position:]`; return the position after it, or REFUSED.

    As Kafka does it: flushed before its end, which leaves an empty last block. Twin: `compress`.
    """
    encoder = addresses[_ENCODER]
    _call(addresses[_RESET], (encoder, np.int64(_RESET_SESSION)))
    # Two structures of the library: the output and the input, each an address, a size, a position.
    buffers = np.zeros(6, np.int64)
    buffers[0] = np.int64(out.ctypes.data) + position
    buffers[1] = room
    buffers[3] = np.int64(data.ctypes.data) + start
    buffers[4] = end - start
    output = np.int64(buffers.ctypes.data)
    left = np.int64(0)
    for directive in (_CONTINUE, _FLUSH, _END):
        left = _call(addresses[_COMPRESS], (encoder, output, output + 24, np.int64(directive)))
    return position + buffers[2] if left == 0 else REFUSED
