"""The size and the checksum of a file: what an auditor tells it by from any other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from siltstone.log.filesystem import FileSystem
from siltstone.records.crc32c import crc32c

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FileMark:
    """The size and the checksum of a file."""

    size_bytes: int
    crc32c: int


def read_mark(fs: FileSystem, path: Path, limit_bytes: int | None = None) -> FileMark | None:
    """Read a file in pieces, for it may be larger than memory; None if it is absent.

    Nothing behind the limit counts: the owner may be appending there.
    """
    try:
        file = fs.open(path, writable=False)
    except FileNotFoundError:
        return None
    buffer = np.empty(_CHUNK_BYTES, np.uint8).data
    size = crc = 0
    while limit_bytes is None or size < limit_bytes:
        wanted = buffer if limit_bytes is None else buffer[: limit_bytes - size]
        count = file.read_into(size, wanted)
        if not count:
            break
        crc = crc32c(wanted[:count], crc)
        size += count
    file.close()
    return FileMark(size, crc)
