"""Compressed batches among others: unpacked many at a time, so that kernels see only plain ones.

Each batch keeps its header before its records. Rows of the table then say where it lies unpacked;
its attributes still name its codec.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.chunks import Chunk
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.records.compression import Codec, compress, decompress
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD
from siltstone.records.scan import as_bytes

MAX_UNPACKED_BYTES: Final = 32 << 20
"""What is unpacked at a time, and one batch more: a chunk of bombs unfolds to gigabytes."""

_CODECS: Final = tuple(Codec)
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_LENGTH_POSITION: Final = 8
_CRC_POSITION: Final = 17

Bytes = NDArray[np.uint8]


def is_compressed(batches: Any) -> NDArray[np.bool_]:
    """Say which batches have a codec."""
    found: NDArray[np.bool_] = (batches["attributes"] & CODEC_MASK) != 0
    return found


def unpack(file: File, chunk: Chunk, numbers: NDArray[np.int64]) -> tuple[Bytes, Any, int]:
    """Unpack batches of a chunk until there is enough.

    Return their bytes, a table of all batches of the chunk in which the rows of those that were
    unpacked are right, and how many they are. Raise CorruptBatchError if one cannot be unpacked.
    """
    rows = chunk.batches[numbers]
    starts = rows["position"].tolist()
    sizes = rows["size_bytes"].tolist()
    codecs = [_CODECS[codec] for codec in (rows["attributes"] & CODEC_MASK).tolist()]

    def read(slot: int) -> bytes | memoryview:
        payload = chunk.view[starts[slot] + HEADER_SIZE : starts[slot] + sizes[slot]]
        # A header without records has no compressed stream either, whatever its codec.
        if not payload:
            return payload
        try:
            return decompress(codecs[slot], payload)
        except DecodeError as error:
            at = chunk.position + starts[slot]
            raise CorruptBatchError(file.path, at, error.reason) from error

    parts: list[bytes | memoryview] = []
    unpacked_sizes: list[int] = []
    total = 0
    for slot in range(len(numbers)):
        if total >= MAX_UNPACKED_BYTES:
            break
        payload = read(slot)
        parts += (chunk.view[starts[slot] : starts[slot] + HEADER_SIZE], payload)
        unpacked_sizes.append(HEADER_SIZE + len(payload))
        total += HEADER_SIZE + len(payload)
    table = chunk.batches.copy()
    done = numbers[: len(unpacked_sizes)]
    table["size_bytes"][done] = unpacked_sizes
    table["position"][done] = np.cumsum(unpacked_sizes) - unpacked_sizes
    return as_bytes(b"".join(parts)), table, len(done)


def pack(view: memoryview, sizes: Sequence[int]) -> list[bytes]:
    """Compress plain batches that lie one after the other, each with the codec it names."""
    starts = np.cumsum(sizes) - sizes

    def write(start: int, size: int) -> bytes:
        header = bytearray(view[start : start + HEADER_SIZE])
        codec = _CODECS[header[ATTRIBUTES_POSITION + 1] & CODEC_MASK]
        payload = compress(codec, view[start + HEADER_SIZE : start + size])
        _LENGTH.pack_into(header, _LENGTH_POSITION, HEADER_SIZE - LOG_OVERHEAD + len(payload))
        crc = crc32c(payload, crc32c(header[ATTRIBUTES_POSITION:]))
        _CRC.pack_into(header, _CRC_POSITION, crc)
        return bytes(header) + payload

    return [write(start, size) for start, size in zip(starts.tolist(), sizes, strict=True)]
