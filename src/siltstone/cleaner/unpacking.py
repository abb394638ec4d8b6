"""Compressed batches among others: unpacked many at a time, so that kernels see only plain ones.

Each batch keeps its header before its records. Rows of the table then say where it lies unpacked;
its attributes still name its codec.
"""

import itertools
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import packing_kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.records.compression import MAX_PAYLOAD_BYTES, Codec, compress, decompress
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
)
from siltstone.records.scan import as_bytes
from siltstone.records.zstd_kernels import ZstdContexts

MAX_UNPACKED_BYTES: Final = 32 << 20
"""What is unpacked at a time, and one batch more: a chunk of bombs unfolds to gigabytes."""

_FIRST_BYTES: Final = 8 << 20
_MAX_KEPT_BYTES: Final = 2 * MAX_UNPACKED_BYTES
_GROWTH: Final = 2
_CODECS: Final = tuple(Codec)
_IN_KERNELS: Final = (Codec.LZ4, Codec.ZSTD)
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")

Bytes = NDArray[np.uint8]


def is_compressed(batches: Any) -> NDArray[np.bool_]:
    """Say which batches have a codec."""
    found: NDArray[np.bool_] = (batches["attributes"] & CODEC_MASK) != 0
    return found


class Unpacker:
    """Unpacks batches into one buffer, over and over; one thread's at a time."""

    def __init__(self) -> None:
        self._out = np.empty(_FIRST_BYTES, np.uint8)
        self._zstd = ZstdContexts()

    def unpack(
        self, file: File, chunk: Chunk, numbers: NDArray[np.int64]
    ) -> tuple[Bytes, Any, int]:
        """Unpack batches of a chunk until there is enough.

        Return their bytes, which are valid until the next call, a table of all batches of the chunk
        in which the rows of those that were unpacked are right, and how many they are. Raise
        CorruptBatchError if one cannot be unpacked.
        """
        if len(self._out) > _MAX_KEPT_BYTES:
            self._out = np.empty(_FIRST_BYTES, np.uint8)
        table = chunk.batches.copy()
        places: list[_Place] = []
        slot = 0
        end = 0
        while slot < len(numbers) and end < MAX_UNPACKED_BYTES:
            slot, end, why = packing_kernels.unpack_batches(
                chunk.data,
                table,
                numbers,
                slot,
                self._zstd.addresses,
                self._out,
                end,
                MAX_UNPACKED_BYTES,
                MAX_PAYLOAD_BYTES,
            )
            if why == packing_kernels.NO_ROOM:
                self._make_room(end, len(self._out) + 1)
            elif why == packing_kernels.LEFT:
                places = places or _find_places(chunk.batches[numbers])
                run = _unpack_run(file, chunk, itertools.islice(places, slot, None), end)
                sizes = np.array(run.sizes)
                ends = end + np.cumsum(sizes)
                done = numbers[slot : slot + len(sizes)]
                table["position"][done] = ends - sizes
                table["size_bytes"][done] = sizes
                self._append(end, b"".join(run.parts))
                end = int(ends[-1])
                slot += len(sizes)
        return as_bytes(self._out[:end].data), table, slot

    def _append(self, end: int, data: bytes) -> None:
        self._make_room(end, len(data))
        self._out[end : end + len(data)] = as_bytes(data)

    def _make_room(self, end: int, size: int) -> None:
        """See to it that so many bytes more have room."""
        if len(self._out) - end < size:
            out = np.empty(max(_GROWTH * len(self._out), end + size), np.uint8)
            out[:end] = self._out[:end]
            self._out = out


class _Place(NamedTuple):
    """Where a batch lies in its chunk, and what it is packed with."""

    start: int
    stop: int
    codec: Codec


def _find_places(rows: Any) -> list[_Place]:
    stops = rows["position"] + rows["size_bytes"]
    codecs = [_CODECS[codec] for codec in (rows["attributes"] & CODEC_MASK).tolist()]
    return list(map(_Place, rows["position"].tolist(), stops.tolist(), codecs))


class _Run(NamedTuple):
    """Neighbours that were unpacked with the libraries of their codecs."""

    parts: list[bytes | memoryview]
    sizes: list[int]


def _unpack_run(file: File, chunk: Chunk, places: Iterable[_Place], total: int) -> _Run:
    """Unpack one batch, and all that follow up to one for the kernels, until there is enough."""
    parts: list[bytes | memoryview] = []
    sizes: list[int] = []
    for start, stop, codec in places:
        if sizes and (codec in _IN_KERNELS or total >= MAX_UNPACKED_BYTES):
            break
        payload: bytes | memoryview = chunk.view[start + HEADER_SIZE : stop]
        # A header without records has no compressed stream either, whatever its codec.
        if payload:
            try:
                payload = decompress(codec, payload)
            except DecodeError as error:
                raise CorruptBatchError(file.path, chunk.position + start, error.reason) from error
        parts += (chunk.view[start : start + HEADER_SIZE], payload)
        sizes.append(HEADER_SIZE + len(payload))
        total += sizes[-1]
    return _Run(parts, sizes)


class Packed(NamedTuple):
    """Batches that were packed, one after the other."""

    parts: list[bytes | memoryview]
    sizes: NDArray[np.int64]


def pack(view: memoryview, sizes: NDArray[np.int64], zstd: ZstdContexts) -> Packed:
    """Compress plain batches that lie one after the other, each with the codec it names."""
    data = as_bytes(view)
    parts: list[bytes | memoryview] = []
    packed_sizes = np.empty(len(sizes), np.int64)
    slot = 0
    start = 0
    while slot < len(sizes):
        slot, start, packed = packing_kernels.pack_batches(
            data, sizes, slot, start, zstd.addresses, packed_sizes
        )
        parts.append(packed.data)
        if slot < len(sizes):
            end = start + int(sizes[slot])
            parts.append(_pack_one(view[start:end]))
            packed_sizes[slot] = len(parts[-1])
            slot += 1
            start = end
    return Packed(parts, packed_sizes)


def _pack_one(batch: memoryview) -> bytes:
    """Pack a batch with the library of its codec."""
    header = bytearray(batch[:HEADER_SIZE])
    payload = compress(_codec_at(batch, 0), batch[HEADER_SIZE:])
    _LENGTH.pack_into(header, LENGTH_POSITION, HEADER_SIZE - LOG_OVERHEAD + len(payload))
    crc = crc32c(payload, crc32c(header[ATTRIBUTES_POSITION:]))
    _CRC.pack_into(header, CRC_POSITION, crc)
    return bytes(header) + payload


def _codec_at(view: memoryview, start: int) -> Codec:
    return _CODECS[view[start + ATTRIBUTES_POSITION + 1] & CODEC_MASK]
