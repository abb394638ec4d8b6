import random
import zlib

import cramjam
import pytest
import zstandard

from siltstone.errors import MalformedDataError
from siltstone.records.compression import Codec, compress, decompress

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"siltstone " * 30
NOISE = random.Random(3).randbytes(200_000)


def lz4_block_lengths(frame: bytes) -> list[int]:
    lengths = []
    position = 7
    while (length := int.from_bytes(frame[position : position + 4], "little")) != 0:
        lengths.append(length)
        position += 4 + (length & 0x7FFFFFFF)
    assert position + 4 == len(frame)
    return lengths


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 32_768, 32_769, 65_536, 65_537, 200_000])
def test_a_payload_reads_back_at_and_around_the_size_of_a_block(codec: Codec, size: int) -> None:
    for payload in (NOISE[:size], (TEXT * 700)[:size]):
        compressed = compress(codec, payload)

        assert decompress(codec, compressed) == payload
        assert decompress(codec, memoryview(bytearray(compressed)), size) == payload


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("level", [None, 5])
def test_every_kind_of_buffer_is_compressed(codec: Codec, level: int | None) -> None:
    expected = compress(codec, TEXT, level)

    assert compress(codec, bytearray(TEXT), level) == expected
    assert compress(codec, memoryview(TEXT), level) == expected


@pytest.mark.parametrize(
    ("codec", "start"),
    [
        (Codec.GZIP, "1f8b08000000000000ff"),
        (Codec.SNAPPY, "82534e41505059000000000100000001"),
        (Codec.LZ4, "04224d18604082"),
        (Codec.ZSTD, "28b52ffd0058"),
    ],
)
def test_a_compressed_payload_starts_as_the_java_clients_does(codec: Codec, start: str) -> None:
    assert compress(codec, TEXT).hex().startswith(start)


def test_snappy_is_written_in_blocks_of_32_kib() -> None:
    compressed = compress(Codec.SNAPPY, NOISE[:70_000])

    sizes = []
    position = 16
    while position < len(compressed):
        length = int.from_bytes(compressed[position : position + 4], "big")
        block = compressed[position + 4 : position + 4 + length]
        sizes.append(cramjam.snappy.decompress_raw_len(block))
        position += 4 + length
    assert sizes == [32_768, 32_768, 70_000 - 65_536]


@pytest.mark.parametrize("level", [1, 9, 12])
def test_lz4_is_written_in_independent_blocks_of_64_kib(level: int) -> None:
    frame = compress(Codec.LZ4, TEXT * 700, level)

    first, second, third, fourth = lz4_block_lengths(frame)
    block = frame[7 + 4 + first + 4 :][:second]
    unpacked = bytes(cramjam.lz4.decompress_block(block, output_len=65_536))
    assert unpacked == (TEXT * 700)[65_536:131_072]
    assert frame.endswith(bytes(4))
    assert max(third, fourth) < 65_536


@pytest.mark.parametrize("level", [1, 9, 12])
def test_an_lz4_block_that_does_not_shrink_is_stored_as_it_is(level: int) -> None:
    frame = compress(Codec.LZ4, NOISE[:70_000], level)

    assert lz4_block_lengths(frame) == [65_536 | 1 << 31, (70_000 - 65_536) | 1 << 31]


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -5, 19)]
)
def test_a_level_changes_the_effort_and_not_the_payload(codec: Codec, low: int, high: int) -> None:
    words = random.Random(5).choices([b"silt", b"stone", b"sand", b"clay", b"loam"], k=20_000)
    payload = b" ".join(words)

    fast, small = compress(codec, payload, low), compress(codec, payload, high)

    assert len(small) < len(fast)
    assert decompress(codec, fast) == decompress(codec, small) == payload


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, -1), (Codec.LZ4, 9), (Codec.ZSTD, 3), (Codec.SNAPPY, 7)]
)
def test_the_default_level_is_kafkas(codec: Codec, level: int) -> None:
    assert compress(codec, TEXT) == compress(codec, TEXT, level)


@pytest.mark.parametrize(
    ("codec", "payload", "compressed"),
    [
        # kafka-python: content size, one block.
        (
            Codec.LZ4,
            TEXT,
            "04224d1868402c010000000000008415000000af73696c7473746f6e65200a00ff0b50746f6e6520"
            "00000000",
        ),
        # The lz4 library with all that a frame can have: linked blocks, content size, checksum.
        (
            Codec.LZ4,
            b"siltstone " * 7_000,
            "04224d184c4070110100000000006414010000af73696c7473746f6e65200a00"
            + "ff" * 256
            + "de50696c7473741b0000000f0a00"
            + "ff" * 17
            + "6950746f6e652000000000a913cd67",
        ),
        # The same with a checksum per block.
        (
            Codec.LZ4,
            TEXT,
            "04224d187c402c01000000000000fa15000000af73696c7473746f6e65200a00ff0b50746f6e6520"
            "17b2bfee00000000117307e8",
        ),
        # librdkafka: snappy without any frame.
        (Codec.SNAPPY, TEXT, "ac022473696c7473746f6e6520fe0a00fe0a00fe0a00fe0a00860a00"),
        # zstd with content size and checksum.
        (
            Codec.ZSTD,
            TEXT,
            "28b52ffd642c008d00005073696c7473746f6e652001001f550b12e1c6df2d",
        ),
        # Python's gzip: with a time and another operating system.
        (
            Codec.GZIP,
            TEXT,
            "1f8b08004873fa6a02ff2bcecc29292ec9cf4b55281e6511600100b19b773a2c010000",
        ),
    ],
)
def test_what_other_clients_write_is_read(codec: Codec, payload: bytes, compressed: str) -> None:
    assert decompress(codec, bytes.fromhex(compressed)) == payload


def test_gzip_members_are_read_one_after_the_other() -> None:
    members = compress(Codec.GZIP, b"one ") + compress(Codec.GZIP, b"two")

    assert decompress(Codec.GZIP, members, 7) == b"one two"
    with pytest.raises(MalformedDataError, match="payload exceeds 6 bytes"):
        decompress(Codec.GZIP, members, 6)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [1, 100, 70_000, 1_000_000])
def test_a_payload_one_byte_over_the_limit_is_refused(codec: Codec, size: int) -> None:
    compressed = compress(codec, bytes(size))

    assert decompress(codec, compressed, size) == bytes(size)
    with pytest.raises(MalformedDataError) as caught:
        decompress(codec, compressed, size - 1)
    assert caught.value.reason == f"payload exceeds {size - 1} bytes"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_refused_before_it_unfolds(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))

    with pytest.raises(MalformedDataError, match="payload exceeds 1048576 bytes"):
        decompress(codec, bomb, 1 << 20)


def test_a_snappy_block_that_announces_four_gigabytes_is_refused() -> None:
    with pytest.raises(MalformedDataError, match="payload exceeds 1073741824 bytes"):
        decompress(Codec.SNAPPY, bytes.fromhex("ffffffff0f00"))


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "extended"])
def test_a_damaged_payload_names_its_codec(codec: Codec, damage: str) -> None:
    sound = compress(codec, TEXT)
    data = {
        "cut": sound[:-1],
        "empty": b"",
        "noise": b"\xff\xff\xff\xff\xff" + NOISE[:50],
        "extended": sound + b"\x01\x02\x03",
    }[damage]

    with pytest.raises(MalformedDataError) as caught:
        decompress(codec, data)
    assert str(caught.value) == f"position 0: cannot decompress {codec.label} payload"


def test_zstd_frames_are_read_one_after_the_other() -> None:
    skipped = bytes.fromhex("502a4d1803000000") + b"abc"
    frame = compress(Codec.ZSTD, TEXT)

    assert decompress(Codec.ZSTD, frame + skipped + frame) == 2 * TEXT
    with pytest.raises(MalformedDataError, match="payload exceeds 599 bytes"):
        decompress(Codec.ZSTD, frame + frame, 599)


@pytest.mark.parametrize("payload", [b"", b"a", bytes(300_000), NOISE], ids=len)
@pytest.mark.parametrize("has_size", [False, True])
@pytest.mark.parametrize("has_checksum", [False, True])
def test_a_zstd_frame_ends_where_its_last_block_does(
    payload: bytes, has_size: bool, has_checksum: bool
) -> None:
    encoder = zstandard.ZstdCompressor(write_content_size=has_size, write_checksum=has_checksum)
    frame = encoder.compress(payload)

    assert decompress(Codec.ZSTD, frame) == payload
    for damaged in (frame[:-1], frame + b"\0"):
        with pytest.raises(MalformedDataError, match="cannot decompress zstd payload"):
            decompress(Codec.ZSTD, damaged)


def test_a_zstd_frame_that_claims_to_be_empty_and_is_not_is_refused() -> None:
    frame = compress(Codec.ZSTD, TEXT)
    lie = frame[:4] + bytes([0x20, 0]) + frame[6:]  # a single segment of 0 bytes

    with pytest.raises(MalformedDataError, match="cannot decompress zstd payload"):
        decompress(Codec.ZSTD, lie)


@pytest.mark.parametrize(
    "frame",
    [
        "82534e4150505900000000010000",  # header cut off
        "82534e4150505900000000010000000000000000",  # readable by versions before the first
        "82534e415050590000000001000000010000",  # block length cut off
        "82534e41505059000000000100000001ffffffff",  # negative block length
        "82534e41505059000000000100000001000000ff00",  # block after the end
    ],
)
def test_a_snappy_frame_that_lies_is_refused(frame: str) -> None:
    with pytest.raises(MalformedDataError, match="cannot decompress snappy payload"):
        decompress(Codec.SNAPPY, bytes.fromhex(frame))


def test_a_wrong_checksum_inside_of_gzip_is_noticed() -> None:
    data = bytearray(compress(Codec.GZIP, TEXT))
    assert int.from_bytes(data[-8:-4], "little") == zlib.crc32(TEXT)
    data[-8] ^= 1

    with pytest.raises(MalformedDataError, match="cannot decompress gzip payload"):
        decompress(Codec.GZIP, data)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("none", Codec.NONE),
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_codecs_have_kafkas_names(name: str, codec: Codec) -> None:
    assert Codec.parse(name) is codec


def test_an_unknown_codec_name_says_which_ones_there_are() -> None:
    with pytest.raises(ValueError, match="unknown codec brotli: use one of none, gzip, snappy"):
        Codec.parse("brotli")
