"""The four codecs of a batch's payload, framed as Kafka's Java client frames them.

Written frames are the ones that every Kafka client reads. Read are also the frames of other
clients: raw snappy (librdkafka), lz4 frames with linked blocks, checksums or a content size
(kafka-python, librdkafka), zstd frames with a content size.

Compressed bytes depend on the versions of the libraries: compare payloads after decompression.
"""

import struct
import threading
import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Final

import cramjam
import zstandard

from siltstone.errors import MalformedDataError
from siltstone.records.varint import Buffer

# The size bound for a payload when a caller has none of its own. It is what gzip, at its best
# ratio of about 1030 to 1, makes of a batch of max.message.bytes (1 MiB by default): honest
# batches stay below, and what is above was made to fill our memory.
MAX_PAYLOAD_BYTES: Final = 1 << 30

DEFAULT_GZIP_LEVEL: Final = -1
DEFAULT_LZ4_LEVEL: Final = 9
DEFAULT_ZSTD_LEVEL: Final = 3

# Method deflate, no flags, no time, and "unknown" as the operating system, like Java 16 and later.
_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_GZIP_TRAILER: Final = struct.Struct("<II")  # CRC-32, input size

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = struct.Struct(">ii")  # version, lowest version that can read this
_XERIAL_VERSION: Final = 1
_XERIAL_HEADER: Final = _XERIAL_MAGIC + _XERIAL_VERSIONS.pack(_XERIAL_VERSION, _XERIAL_VERSION)
_XERIAL_LENGTH: Final = struct.Struct(">i")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

# Magic, flags (version 1, independent blocks), block size code (64 KiB), header checksum. Frames
# are put together here because cramjam's own link their blocks, which Kafka's reader refuses.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_LENGTH: Final = struct.Struct("<I")
_LZ4_STORED_BIT: Final = 1 << 31
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_END_MARK: Final = bytes(4)

_ZSTD_START: Final = struct.Struct("<IB")  # magic, flags
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_CHECKSUM_BIT: Final = 4
_ZSTD_BLOCK_HEADER_BYTES: Final = 3
_ZSTD_KIND: Final = 6
_ZSTD_REPEATED_BYTE: Final = 2  # The kind of block whose size is not that of its bytes.

# How cramjam says that the output buffer was too small, the one failure worth a second try.
_OUTPUT_FULL: Final = "failed to write whole buffer"
_FIRST_GUESS_BYTES: Final = 64 * 1024
_GROWTH: Final = 4


class Codec(IntEnum):
    """How the records of a batch are compressed, by the number in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> "Codec":
        """Parse Kafka's name of a codec; raise ValueError for any other."""
        if name == "uncompressed":
            return cls.NONE
        for codec in cls:
            if name == codec.label:
                return codec
        names = ", ".join(codec.label for codec in cls)
        raise ValueError(f"unknown codec {name}: use one of {names}")

    @property
    def label(self) -> str:
        """Return Kafka's name of the codec."""
        return self.name.lower()


LAST_CODEC: Final = max(Codec).value


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress a payload; without a level, at the codec's default, as Kafka's cleaner does."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _compress_gzip(data, DEFAULT_GZIP_LEVEL if level is None else level)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, DEFAULT_LZ4_LEVEL if level is None else level)
        case Codec.ZSTD:
            return _compress_zstd(data, DEFAULT_ZSTD_LEVEL if level is None else level)


def decompress(codec: Codec, data: Buffer, limit_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
    """Decompress a payload, and stop with an error as soon as it exceeds `limit_bytes`."""
    match codec:
        case Codec.NONE:
            if len(data) > limit_bytes:
                raise _too_large(limit_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, limit_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit_bytes)
        case Codec.LZ4:
            return _decompress_lz4(data, limit_bytes)
        case Codec.ZSTD:
            return _decompress_zstd(data, limit_bytes)


def _compress_gzip(data: Buffer, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_GZIP_HEADER, deflate.compress(data), deflate.flush(), trailer))


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    members: list[bytes] = []
    room_bytes = limit_bytes
    rest: Buffer = data
    while rest or not members:
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            # One byte more than there is room for: that it comes shows that the limit is passed.
            member = inflate.decompress(rest, room_bytes + 1)
        except zlib.error as error:
            raise _undecodable(Codec.GZIP) from error
        if len(member) > room_bytes:
            raise _too_large(limit_bytes)
        if not inflate.eof:
            raise _undecodable(Codec.GZIP)
        members.append(member)
        room_bytes -= len(member)
        rest = inflate.unused_data
    return b"".join(members)


def _compress_snappy(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    for block in _blocks(data, _XERIAL_BLOCK_BYTES):
        compressed = bytes(cramjam.snappy.compress_raw(block))
        parts += (_XERIAL_LENGTH.pack(len(compressed)), compressed)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit_bytes, limit_bytes)

    if len(view) < len(_XERIAL_HEADER):
        raise _undecodable(Codec.SNAPPY)
    _, readable_since = _XERIAL_VERSIONS.unpack_from(view, len(_XERIAL_MAGIC))
    if readable_since < _XERIAL_VERSION:
        raise _undecodable(Codec.SNAPPY)
    blocks: list[bytes] = []
    room_bytes = limit_bytes
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _XERIAL_LENGTH.size:
            raise _undecodable(Codec.SNAPPY)
        (length,) = _XERIAL_LENGTH.unpack_from(view, position)
        position += _XERIAL_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise _undecodable(Codec.SNAPPY)
        block = _decompress_snappy_block(
            view[position : position + length], room_bytes, limit_bytes
        )
        blocks.append(block)
        room_bytes -= len(block)
        position += length
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, room_bytes: int, limit_bytes: int) -> bytes:
    try:
        # The block starts with the size of its output: believed only when it is within bounds.
        if cramjam.snappy.decompress_raw_len(block) > room_bytes:
            raise _too_large(limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _undecodable(Codec.SNAPPY) from error


def _compress_lz4(data: Buffer, level: int) -> bytes:
    blocks = _blocks(data, _LZ4_BLOCK_BYTES)
    # To Kafka the default level means the fast compressor, and any other the thorough one.
    encode = _lz4_fast_block if level == DEFAULT_LZ4_LEVEL else partial(_lz4_thorough_block, level)
    return b"".join((_LZ4_HEADER, *map(encode, blocks), _LZ4_END_MARK))


def _lz4_fast_block(block: memoryview) -> bytes:
    compressed = bytes(cramjam.lz4.compress_block(block, store_size=False))
    if len(compressed) < len(block):
        return _LZ4_LENGTH.pack(len(compressed)) + compressed
    return _LZ4_LENGTH.pack(len(block) | _LZ4_STORED_BIT) + block


def _lz4_thorough_block(level: int, block: memoryview) -> bytes:
    # cramjam takes a level only for whole frames, and its frames have checksums that Kafka's have
    # not. So the one block is cut out of a frame of its own.
    encoder = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    encoder.compress(bytes(block))
    frame = bytes(encoder.finish())
    start = len(_LZ4_HEADER)
    (length,) = _LZ4_LENGTH.unpack_from(frame, start)
    return frame[start : start + _LZ4_LENGTH.size + (length & ~_LZ4_STORED_BIT)]


def _decompress_lz4(data: Buffer, limit_bytes: int) -> bytes:
    """Take a frame such as ours and Kafka's apart by its blocks; any other as a whole."""
    blocks = _take_lz4_blocks(memoryview(data), limit_bytes)
    if blocks is None:
        return _decompress_bounded(Codec.LZ4, cramjam.lz4.decompress_into, data, limit_bytes)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _take_lz4_blocks(view: memoryview, limit_bytes: int) -> list[bytes] | None:
    """Decompress block by block, which takes half as long; None if anything is unusual."""
    if view[: len(_LZ4_HEADER)] != _LZ4_HEADER:
        return None
    blocks: list[bytes] = []
    room_bytes = limit_bytes
    position = len(_LZ4_HEADER)
    while len(view) - position >= _LZ4_LENGTH.size:
        (length,) = _LZ4_LENGTH.unpack_from(view, position)
        position += _LZ4_LENGTH.size
        if length == 0:
            return blocks if position == len(view) and room_bytes >= 0 else None
        end = position + (length & ~_LZ4_STORED_BIT)
        if end > len(view):
            return None
        if length & _LZ4_STORED_BIT:
            block = bytes(view[position:end])
        else:
            try:
                count = cramjam.lz4.decompress_block_into(view[position:end], _scratch.lz4_block)
            except cramjam.DecompressionError:
                return None
            block = bytes(_scratch.lz4_block[:count])
        blocks.append(block)
        room_bytes -= len(block)
        position = end
    return None


def _compress_zstd(data: Buffer, level: int) -> bytes:
    # As Kafka does it: without the content size in the frame, and flushed before its end, which
    # leaves an empty last block.
    encoder = _scratch.zstd_compressor(level).compressobj()
    return b"".join(
        (encoder.compress(data), encoder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), encoder.flush())
    )


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    """Decompress a single frame at once; what is more than that, or wrong, the long way."""
    view = memoryview(data)
    if _is_one_zstd_frame(view):
        guess_bytes = min(max(_FIRST_GUESS_BYTES, _GROWTH * len(view)), limit_bytes)
        try:
            # Of a frame that says it is empty the library would not look at the blocks.
            if 0 != zstandard.frame_content_size(view) <= limit_bytes:
                return _scratch.zstd_decompressor.decompress(view, max_output_size=guess_bytes)
        except zstandard.ZstdError:
            pass
    return _decompress_bounded(Codec.ZSTD, cramjam.zstd.decompress_into, data, limit_bytes)


def _is_one_zstd_frame(view: memoryview) -> bool:
    """Walk over the blocks of the first frame, and say whether it ends where the payload does.

    The library takes what comes after a frame for granted.
    """
    if len(view) < _ZSTD_START.size:
        return False
    magic, flags = _ZSTD_START.unpack_from(view)
    if magic != _ZSTD_MAGIC:
        return False
    is_single_segment = flags >> 5 & 1
    position = _ZSTD_START.size + (0, 1, 2, 4)[flags & 3]  # dictionary
    position += 0 if is_single_segment else 1  # window
    position += (is_single_segment, 2, 4, 8)[flags >> 6]  # content size
    last_header = len(view) - _ZSTD_BLOCK_HEADER_BYTES
    while position <= last_header:
        # One bit says whether it is the last, two are its kind, the others its size.
        low = view[position]
        if low & _ZSTD_KIND == _ZSTD_REPEATED_BYTE:
            size = 1
        else:
            size = low >> 3 | view[position + 1] << 5 | view[position + 2] << 13
        position += _ZSTD_BLOCK_HEADER_BYTES + size
        if low & 1:
            checksum_bytes: int = flags & _ZSTD_CHECKSUM_BIT  # It happens to be their number.
            return position + checksum_bytes == len(view)
    return False


class _Scratch(threading.local):
    """What takes longer to make than to use, for each thread."""

    def __init__(self) -> None:
        self.lz4_block = memoryview(bytearray(_LZ4_BLOCK_BYTES))
        self.zstd_decompressor = zstandard.ZstdDecompressor()
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}

    def zstd_compressor(self, level: int) -> zstandard.ZstdCompressor:
        if level not in self._compressors:
            self._compressors[level] = zstandard.ZstdCompressor(level, write_content_size=False)
        return self._compressors[level]


_scratch: Final = _Scratch()


def _decompress_bounded(
    codec: Codec,
    decompress_into: Callable[[Buffer, bytearray], int],
    data: Buffer,
    limit_bytes: int,
) -> bytes:
    """Decompress into a buffer that grows up to the limit, for frames that hide their size."""
    size = min(max(_FIRST_GUESS_BYTES, _GROWTH * len(data)), limit_bytes)
    while True:
        output = bytearray(size)
        try:
            count = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _undecodable(codec) from error
            if size == limit_bytes:
                raise _too_large(limit_bytes) from error
            size = min(_GROWTH * size, limit_bytes)
        else:
            return bytes(memoryview(output)[:count])


def _blocks(data: Buffer, size: int) -> list[memoryview]:
    view = memoryview(data)
    return [view[start : start + size] for start in range(0, len(view), size)]


def _undecodable(codec: Codec) -> MalformedDataError:
    return MalformedDataError(0, f"cannot decompress {codec.label} payload")


def _too_large(limit_bytes: int) -> MalformedDataError:
    return MalformedDataError(0, f"payload exceeds {limit_bytes} bytes")
