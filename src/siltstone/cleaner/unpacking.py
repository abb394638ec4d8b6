"""Compressed batches among others: unpacked many at a time, so that kernels see only plain ones.

Each batch keeps its header before its records. Rows of the table then say where it lies unpacked;
its attributes still name its codec.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.chunks import Chunk
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.records.batch import read_batch, read_header
from siltstone.records.builder import encode_batch
from siltstone.records.compression import compress
from siltstone.records.layout import CODEC_MASK, HEADER_SIZE
from siltstone.records.scan import as_bytes

MAX_UNPACKED_BYTES: Final = 32 << 20
"""What is unpacked at a time, and one batch more: a chunk of bombs unfolds to gigabytes."""

Bytes = NDArray[np.uint8]


def is_compressed(batches: Any) -> NDArray[np.bool_]:
    """Say which batches have a codec."""
    found: NDArray[np.bool_] = (batches["attributes"] & CODEC_MASK) != 0
    return found


def unpack(file: File, chunk: Chunk, numbers: Iterable[int]) -> tuple[Bytes, Any, int]:
    """Unpack batches of a chunk until there is enough.

    Return their bytes, a table of all batches of the chunk in which the rows of those that were
    unpacked are right, and how many they are. Raise CorruptBatchError if one cannot be unpacked.
    """
    table = chunk.batches.copy()
    parts: list[Any] = []
    position = 0
    count = 0
    for number in numbers:
        batch = read_batch(chunk.view, int(chunk.batches["position"][number]))
        try:
            payload = batch.payload()
        except DecodeError as error:
            at = chunk.position + int(chunk.batches["position"][number])
            raise CorruptBatchError(file.path, at, error.reason) from error
        parts += (batch.data[:HEADER_SIZE], payload)
        table["position"][number] = position
        table["size_bytes"][number] = HEADER_SIZE + len(payload)
        position += HEADER_SIZE + len(payload)
        count += 1
        if position >= MAX_UNPACKED_BYTES:
            break
    return as_bytes(b"".join(parts)), table, count


def pack(data: Bytes, sizes: Sequence[int]) -> list[bytes]:
    """Compress plain batches that lie one after the other, each with the codec it names."""
    packed = []
    view = data.data
    position = 0
    for size in sizes:
        header = read_header(view, position)
        payload = view[position + HEADER_SIZE : position + size]
        packed.append(encode_batch(header, compress(header.codec, payload)))
        position += size
    return packed
