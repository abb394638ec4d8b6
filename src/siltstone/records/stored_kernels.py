"""The kernels of the append path from a file, for a process that does without their compiler.

Numba and LLVM take half a second to load, and more memory than all the rest of a broker. So another
process compiles, once for each version of the kernels, and the object code is kept where numba
keeps its own.
"""

import ctypes
import functools
import hashlib
import importlib.metadata
import logging
import os
import pickle
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from siltstone.records.kernel_types import BATCH_DTYPE, RECORD_DTYPE
from siltstone.records.object_code import ObjectCode, ObjectCodeError
from siltstone.records.varint import Buffer

logger = logging.getLogger(__name__)

_SOURCES: Final = (
    "exported_kernels.py",
    "kernels.py",
    "crc_kernels.py",
    "intrinsics.py",
    "kernel_types.py",
    "layout.py",
)
_DIGEST_BYTES: Final = 32
_CPU_PATH: Final = Path("/proc/cpuinfo")
_VIEW_WORDS: Final = 16  # a Py_buffer has ten

_I64: Final = ctypes.c_int64
_POINTER: Final = ctypes.c_void_p
_OBJECT: Final = ctypes.py_object
_FOUND: Final = _I64 * 4


class StoredKernels:
    """Has the functions of `kernels` that the append path needs, for any buffer of bytes."""

    def __init__(self, stored: bytes) -> None:
        compiled: dict[str, tuple[str, bytes]] = pickle.loads(stored)
        self._code = {name: ObjectCode(data) for name, (_, data) in compiled.items()}

        def function(prototype: Any, name: str) -> Any:
            return prototype(self._code[name].address(compiled[name][0]))

        # Locked, so that the view may be shared: a batch takes microseconds.
        locked, unlocked = ctypes.PYFUNCTYPE, ctypes.CFUNCTYPE
        self._view = (_I64 * _VIEW_WORDS)()
        self._view_address = ctypes.addressof(self._view)
        self._is_usual_batch = function(
            locked(_I64, _OBJECT, _POINTER, _I64, _I64, _I64), "is_usual_batch"
        )
        self._check_records = function(
            locked(_I64, _OBJECT, _POINTER, *[_I64] * 6, _POINTER), "check_records"
        )
        self._walk_batches = function(
            unlocked(_I64, _POINTER, *[_I64] * 4, _POINTER, _I64, _POINTER), "walk_batches"
        )
        self._index_batches = function(
            unlocked(_I64, _POINTER, _I64, _POINTER, _I64, _POINTER, _I64, _POINTER),
            "index_batches",
        )
        self._index_records = function(
            unlocked(_I64, _POINTER, _I64, _I64, _POINTER, _POINTER, _I64, _I64), "index_records"
        )

    def is_usual_batch(
        self, data: Buffer, needs_keys: bool, oldest_ms: int, newest_ms: int
    ) -> bool:
        """See the kernel of that name."""
        usual: int = self._is_usual_batch(
            data, self._view_address, needs_keys, oldest_ms, newest_ms
        )
        return usual == 1

    def check_records(
        self,
        data: Buffer,
        start: int,
        end: int,
        record_count: int,
        base_timestamp_ms: int,
        needs_keys: bool,
        oldest_ms: int,
        newest_ms: int,
    ) -> tuple[int, int, int, int]:
        """See the kernel of that name; `end` is that of the data."""
        found = _FOUND()
        self._check_records(
            data,
            self._view_address,
            start,
            record_count,
            base_timestamp_ms,
            needs_keys,
            oldest_ms,
            newest_ms,
            ctypes.addressof(found),
        )
        return found[0], found[1], found[2], found[3]

    def walk_batches(
        self, data: Any, start: int, end: int, next_offset: int, check_crc: bool, batches: Any
    ) -> tuple[int, int, int]:
        """See the kernel of that name."""
        assert batches.dtype == BATCH_DTYPE
        found = _FOUND()
        self._walk_batches(
            data.ctypes.data,
            start,
            end,
            next_offset,
            check_crc,
            batches.ctypes.data,
            batches.size,
            ctypes.addressof(found),
        )
        return found[0], found[1], found[2]

    def index_batches(self, data: Any, batches: Any, records: Any) -> tuple[int, int]:
        """See the kernel of that name."""
        assert batches.dtype == BATCH_DTYPE
        assert records.dtype == RECORD_DTYPE
        assert batches.flags.c_contiguous
        found = _FOUND()
        self._index_batches(
            data.ctypes.data,
            data.size,
            batches.ctypes.data,
            batches.size,
            records.ctypes.data,
            records.size,
            ctypes.addressof(found),
        )
        return found[0], found[1]

    def index_records(
        self, data: Any, start: int, end: int, batch: Any, records: Any, first: int
    ) -> int:
        """See the kernel of that name."""
        assert records.dtype == RECORD_DTYPE
        row = bytes(batch)
        assert len(row) == BATCH_DTYPE.itemsize
        end_position: int = self._index_records(
            data.ctypes.data,
            start,
            end,
            ctypes.cast(ctypes.c_char_p(row), ctypes.c_void_p).value,
            records.ctypes.data,
            records.size,
            first,
        )
        return end_position


@functools.cache
def load_stored_kernels() -> StoredKernels | None:
    """Load the kernels, compiled now if they never were; None where that cannot be."""
    if platform.machine() != "x86_64":
        return None
    try:
        name = f"kernels-{_version()}.stored"
    except OSError:
        return None  # There are no sources here, or nobody says which processor this is.
    for directory in _directories():
        stored = _read(directory / name)
        if stored is not None:
            break
    else:
        stored = _compile()
        if stored is None:
            return None
        _keep(name, stored)
    try:
        return StoredKernels(stored)
    except ObjectCodeError as error:
        logger.warning("kernels are compiled anew: %s", error)
        return None


def _version() -> str:
    """Name all that the object code depends on."""
    digest = hashlib.sha256(sys.version.encode())
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(importlib.metadata.version(package).encode())
    for source in _SOURCES:
        digest.update(Path(__file__).with_name(source).read_bytes())
    for line in _CPU_PATH.read_text().splitlines():
        if line.startswith(("model name", "flags")):
            digest.update(line.encode())
        elif not line:
            break  # The first processor speaks for all.
    return digest.hexdigest()[:16]


def _directories() -> list[Path]:
    """Return where object code may be kept: where numba does, or in the user's cache."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return [Path(given)]
    found = [Path(__file__).with_name("__pycache__")]
    if "XDG_CACHE_HOME" in os.environ:
        found.append(Path(os.environ["XDG_CACHE_HOME"]) / "siltstone")
    elif "HOME" in os.environ:
        found.append(Path(os.environ["HOME"]) / ".cache" / "siltstone")
    return found


def _compile() -> bytes | None:
    """Have the kernels compiled; None if that fails, of which this process will see the reason."""
    command = [sys.executable, "-m", "siltstone.records.exported_kernels"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return done.stdout if done.returncode == 0 else None


def _read(path: Path) -> bytes | None:
    """Read what `_keep` has written; None if it is not there, or not whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    stored = content[_DIGEST_BYTES:]
    return stored if hashlib.sha256(stored).digest() == content[:_DIGEST_BYTES] else None


def _keep(name: str, stored: bytes) -> None:
    for directory in _directories():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            partial = directory / f"{name}.{os.getpid()}"
            partial.write_bytes(hashlib.sha256(stored).digest() + stored)
            partial.replace(directory / name)
        except OSError:
            continue  # Not ours to write to.
        return
