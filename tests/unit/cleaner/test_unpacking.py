"""Batches of all codecs, unpacked and packed many at a time, against each for itself."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import cramjam
import numpy as np
import pytest

from siltstone.cleaner import unpacking
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.unpacking import Unpacker, pack
from siltstone.errors import CorruptBatchError
from siltstone.log.filesystem import File
from siltstone.records import zstd_kernels
from siltstone.records.batch import read_batch
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec, compress
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import ATTRIBUTES_POSITION, HEADER_SIZE
from siltstone.records.record import Record
from siltstone.records.scan import as_bytes, walk
from siltstone.records.zstd_kernels import ZstdContexts

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
NOISE = random.Random(7).randbytes(300_000)
FILE = File(Path("00000000000000000000.log"), -1)


def batch_of(codec: Codec, offset: int, size: int) -> bytes:
    values = (NOISE[: size // 2], bytes(size - size // 2))
    records = [Record(offset + i, 5, b"key", value) for i, value in enumerate(values)]
    return build_batch(records, codec=codec)


def with_payload(batch: bytes, payload: bytes) -> bytes:
    """Return the batch with other records, signed."""
    header = bytearray(batch[:HEADER_SIZE])
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12 + len(payload))
    signed = bytes(header[ATTRIBUTES_POSITION:]) + payload
    struct.pack_into(">I", header, 17, crc32c(signed))
    return bytes(header) + payload


def chunk_of(batches: Sequence[bytes]) -> Chunk:
    data = b"".join(batches)
    found = walk(data).batches
    assert len(found) == len(batches)
    return Chunk(1000, memoryview(data), as_bytes(data), found, np.zeros(len(found), np.uint8))


def unpack_all(chunk: Chunk, unpacker: Unpacker) -> list[bytes]:
    """Unpack all batches, in as many calls as it takes."""
    batches: list[bytes] = []
    while len(batches) < len(chunk.batches):
        numbers = np.arange(len(batches), len(chunk.batches))
        data, table, count = unpacker.unpack(FILE, chunk, numbers)
        assert count > 0
        for row in table[numbers[:count]]:
            batches.append(data[row["position"] : row["position"] + row["size_bytes"]].tobytes())
    return batches


def plain(batch: bytes) -> bytes:
    return batch[:HEADER_SIZE] + bytes(read_batch(batch).payload())


def mixed_batches() -> list[bytes]:
    codecs = [*COMPRESSED, Codec.LZ4, Codec.LZ4, *reversed(COMPRESSED), Codec.LZ4]
    sizes = [0, 1, 40, 3000, 70_000, 140_000, 200_000]
    return [batch_of(codec, 2 * i, sizes[i % len(sizes)]) for i, codec in enumerate(codecs)]


@pytest.mark.parametrize("first_bytes", [1, 100_000, 8 << 20])
def test_batches_of_all_codecs_are_unpacked_whatever_the_room_at_first(
    monkeypatch: pytest.MonkeyPatch, first_bytes: int
) -> None:
    monkeypatch.setattr(unpacking, "_FIRST_BYTES", first_bytes)
    batches = mixed_batches()

    assert unpack_all(chunk_of(batches), Unpacker()) == [plain(batch) for batch in batches]


def test_a_first_batch_that_needs_more_room_than_there_is_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "_FIRST_BYTES", 1)
    batch = batch_of(Codec.LZ4, 0, 300_000)

    assert unpack_all(chunk_of([batch]), Unpacker()) == [plain(batch)]


def test_no_more_is_unpacked_than_enough_and_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED_BYTES", 100_000)
    batches = [batch_of(Codec.LZ4, 2 * i, 60_000) for i in range(5)]
    chunk = chunk_of(batches)
    unpacker = Unpacker()

    _, _, count = unpacker.unpack(FILE, chunk, np.arange(5))

    assert count == 2
    assert unpack_all(chunk, unpacker) == [plain(batch) for batch in batches]


def test_lz4_frames_of_other_writers_are_unpacked_between_ours() -> None:
    batches = [batch_of(Codec.LZ4, 2 * i, 90_000) for i in range(3)]
    payload = bytes(read_batch(batches[1]).payload())
    batches[1] = with_payload(batches[1], bytes(cramjam.lz4.compress(payload)))

    unpacked = unpack_all(chunk_of(batches), Unpacker())

    assert unpacked[1][HEADER_SIZE:] == payload
    assert unpacked[::2] == [plain(batch) for batch in batches[::2]]


def test_a_header_without_records_has_nothing_to_unpack() -> None:
    batches = [batch_of(Codec.LZ4, 0, 50), with_payload(batch_of(Codec.LZ4, 2, 50), b"")]

    assert unpack_all(chunk_of(batches), Unpacker()) == [plain(batches[0]), batches[1]]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_cannot_be_unpacked_is_named_by_its_position(codec: Codec) -> None:
    batches = [batch_of(codec, 2 * i, 5000) for i in range(3)]
    batches[1] = with_payload(batches[1], compress(codec, b"records")[:-1])

    with pytest.raises(CorruptBatchError) as caught:
        unpack_all(chunk_of(batches), Unpacker())

    assert caught.value.position == 1000 + len(batches[0])
    assert caught.value.reason == f"cannot decompress {codec.label} payload"


def test_batches_are_packed_as_they_were_built() -> None:
    batches = mixed_batches()
    unpacked = [plain(batch) for batch in batches]

    packed = pack(
        memoryview(b"".join(unpacked)), np.array([len(batch) for batch in unpacked]), ZstdContexts()
    )

    assert packed.sizes.tolist() == [len(batch) for batch in batches]
    assert b"".join(packed.parts) == b"".join(batches)


def test_without_a_zstd_library_to_call_the_bytes_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zstd_kernels, "_load_library", lambda: None)
    batches = mixed_batches()
    unpacked = [plain(batch) for batch in batches]

    assert unpack_all(chunk_of(batches), Unpacker()) == unpacked
    sizes = np.array([len(batch) for batch in unpacked])
    packed = pack(memoryview(b"".join(unpacked)), sizes, ZstdContexts())
    assert b"".join(packed.parts) == b"".join(batches)
