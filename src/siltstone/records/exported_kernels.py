"""The kernels of the append path as functions for C: they can be stored, and loaded without numba.

`python -m siltstone.records.exported_kernels` writes their object code to its standard output.
A buffer comes as the Python object that has it, for functions that are called with the interpreter
locked; as an address for those that are not.
"""

import pickle
import sys
from typing import Any, Final

import numba
from numba import cfunc, from_dtype, types
from numba.core.cgutils import voidptr_t
from numba.extending import intrinsic

from siltstone.records import kernels
from siltstone.records.kernel_types import BATCH_DTYPE, RECORD_DTYPE

# Numba's stubs know little of what is said in types.
_I64: Final[Any] = types.int64
_pointer_to: Final[Any] = types.CPointer
_BYTES: Final[Any] = _pointer_to(types.uint8)
_NUMBERS: Final[Any] = _pointer_to(types.int64)
_BATCHES: Final[Any] = _pointer_to(from_dtype(BATCH_DTYPE))
_RECORDS: Final[Any] = _pointer_to(from_dtype(RECORD_DTYPE))
_OBJECT: Final[Any] = types.voidptr

_get_buffer: Any = types.ExternalFunction(
    "PyObject_GetBuffer", types.int32(_OBJECT, _NUMBERS, types.int32)
)
_release_buffer: Any = types.ExternalFunction("PyBuffer_Release", types.void(_NUMBERS))
# Of a Py_buffer, in words of 8 bytes.
_ADDRESS: Final = 0
_LENGTH: Final = 2
_REFUSED: Final = -1  # Python has the exception


carray: Any = vars(numba)["carray"]


@intrinsic
def _intrinsic_pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], voidptr_t)

    return _BYTES(_I64), generate


_as_pointer: Any = _intrinsic_pointer


@cfunc(_I64(_OBJECT, _NUMBERS, _I64, _I64, _I64))
def is_usual_batch(data: Any, view: Any, needs_keys: int, oldest_ms: int, newest_ms: int) -> int:
    """Return 1 or 0; -1 if there are no bytes in `data`."""
    if _get_buffer(data, view, 0) != 0:
        return _REFUSED
    array = carray(_as_pointer(view[_ADDRESS]), view[_LENGTH])
    result: int = _I64(kernels.is_usual_batch(array, needs_keys != 0, oldest_ms, newest_ms))
    _release_buffer(view)
    return result


@cfunc(_I64(_OBJECT, _NUMBERS, _I64, _I64, _I64, _I64, _I64, _I64, _NUMBERS))
def check_records(
    data: Any,
    view: Any,
    start: int,
    record_count: int,
    base_timestamp_ms: int,
    needs_keys: int,
    oldest_ms: int,
    newest_ms: int,
    found: Any,
) -> int:
    """Put what was found into `found`; -1 if there are no bytes in `data`."""
    if _get_buffer(data, view, 0) != 0:
        return _REFUSED
    size = view[_LENGTH]
    end, keyless, untimely, max_timestamp_ms = kernels.check_records(
        carray(_as_pointer(view[_ADDRESS]), size),
        start,
        size,
        record_count,
        base_timestamp_ms,
        needs_keys != 0,
        oldest_ms,
        newest_ms,
    )
    found[0], found[1], found[2], found[3] = end, keyless, untimely, max_timestamp_ms
    _release_buffer(view)
    return 0


@cfunc(_I64(_BYTES, _I64, _I64, _I64, _I64, _BATCHES, _I64, _NUMBERS))
def walk_batches(
    data: Any,
    start: int,
    end: int,
    next_offset: int,
    check_crc: int,
    batches: Any,
    room: int,
    found: Any,
) -> int:
    """Put what was found into `found`."""
    count, position, why = kernels.walk_batches(
        carray(data, end), start, end, next_offset, check_crc != 0, carray(batches, room)
    )
    found[0], found[1], found[2] = count, position, why
    return 0


@cfunc(_I64(_BYTES, _I64, _BATCHES, _I64, _RECORDS, _I64, _NUMBERS))
def index_batches(
    data: Any, size: int, batches: Any, count: int, records: Any, room: int, found: Any
) -> int:
    """Put what was found into `found`."""
    found[0], found[1] = kernels.index_batches(
        carray(data, size), carray(batches, count), carray(records, room)
    )
    return 0


@cfunc(_I64(_BYTES, _I64, _I64, _BATCHES, _RECORDS, _I64, _I64))
def index_records(
    data: Any, start: int, end: int, batch: Any, records: Any, room: int, first: int
) -> int:
    """Return what the kernel does."""
    position: int = kernels.index_records(
        carray(data, end), start, end, carray(batch, 1)[0], carray(records, room), first
    )
    return position


EXPORTED: Final[tuple[Any, ...]] = (
    is_usual_batch,
    check_records,
    walk_batches,
    index_batches,
    index_records,
)


def compile_kernels() -> dict[str, tuple[str, bytes]]:
    """Return, for each function, its name in the object code, and that."""
    compiled = {}
    for function in EXPORTED:
        library = function._library
        machine = library.codegen._tm
        compiled[function.__name__] = (
            function._wrapper_name,
            machine.emit_object(library._final_module),
        )
    return compiled


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(compile_kernels()))
