"""Batches as bytes: the 61-byte header, the checksum, and the records inside.

Nothing is copied until somebody asks for records: a header is one unpacked tuple, a batch is a view
of the bytes it came from. Positions in errors count from the start of the buffer that the failing
call was given; a `Batch` was given its own bytes. Inside of a compressed payload a position means
nothing to anybody else, so errors there point at the payload.
"""

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from siltstone.errors import ChecksumError, DecodeError, MalformedDataError, TruncatedDataError
from siltstone.records.compression import LAST_CODEC, MAX_PAYLOAD_BYTES, Codec, decompress
from siltstone.records.control import Marker, decode_marker
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_SEQUENCE,
    MIN_LEGACY_LENGTH,
    MIN_LENGTH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from siltstone.records.record import Record, RecordField, decode_record, malformed_record
from siltstone.records.varint import Buffer

_PREFIX: Final = struct.Struct(">iib")  # length, leader epoch (or the CRC of old formats), magic
_PREFIX_END: Final = MAGIC_POSITION + 1


class TimestampType(IntEnum):
    """Who set the timestamps of a batch."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of a batch, in wire order.

    After compaction `record_count` may be less than the offset span, and zero.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole batch."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Return the last offset of the span, whether a record is left there or not."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Return the codec of the payload."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Return who set the timestamps."""
        if self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Say whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Say whether the batch holds control records, which no consumer gets to see."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return when tombstones and markers of this batch may go, if a pass has set it."""
        if self.attributes & DELETE_HORIZON_BIT:
            return self.base_timestamp_ms
        return None

    @property
    def has_producer_id(self) -> bool:
        """Say whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record; sequences go on at 0 after 2^31-1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def is_empty(self) -> bool:
        """Say whether a pass has discarded every record and kept only the header."""
        return self.record_count == 0


class Batch(NamedTuple):
    """One whole batch: its header, and a view of all of its bytes, header included."""

    header: BatchHeader
    data: memoryview

    def check_crc(self) -> None:
        """Raise ChecksumError unless the bytes are the ones that were signed."""
        found = crc32c(self.data[ATTRIBUTES_POSITION:])
        if found != self.header.crc:
            raise ChecksumError(
                0, f"header says CRC 0x{self.header.crc:08x}, bytes give 0x{found:08x}"
            )

    def payload(self, limit_bytes: int = MAX_PAYLOAD_BYTES) -> Buffer:
        """Return the bytes of the records, decompressed; uncompressed ones are not copied."""
        payload = self.data[HEADER_SIZE:]
        # A header without records has no compressed stream either, whatever its codec.
        if not self.header.attributes & CODEC_MASK or not payload:
            return payload
        try:
            return decompress(self.header.codec, payload, limit_bytes)
        except DecodeError as error:
            raise MalformedDataError(HEADER_SIZE, error.reason) from error

    def iter_records(self, limit_bytes: int = MAX_PAYLOAD_BYTES) -> Iterator[Record]:
        """Yield the records, each one checked, and at the end that there is nothing else.

        Records come before the ones after them are checked: whoever must not act on a batch that
        is half wrong takes the whole list first.
        """
        header = self.header
        is_compressed = header.codec is not Codec.NONE
        # Positions count from the start of the batch; see the top of the module.
        buffer, position = (
            (self.payload(limit_bytes), 0) if is_compressed else (self.data, HEADER_SIZE)
        )
        try:
            yield from _iter_records(buffer, position, header)
        except DecodeError as error:
            if not is_compressed:
                raise
            raise MalformedDataError(HEADER_SIZE, error.reason) from error

    def marker(self) -> Marker | None:
        """Return the transaction marker in this batch, or None if it holds none."""
        if not self.header.is_control:
            return None
        record = next(self.iter_records(), None)
        return None if record is None else decode_marker(record)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`, and check length, magic and codec, but not the CRC.

    The rest of the batch need not be there: `read_batch` checks that.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise _refused_header(buffer, position)
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if (
        header.magic != MAGIC
        or header.length < MIN_LENGTH
        or header.attributes & CODEC_MASK > LAST_CODEC
    ):
        raise _refused_header(buffer, position)
    return header


def _refused_header(buffer: Buffer, position: int) -> DecodeError:
    """Say what is wrong with a header."""
    left = len(buffer) - position
    if left < _PREFIX_END:
        return TruncatedDataError(position, f"{left} bytes left after the last batch")
    length, _, magic = _PREFIX.unpack_from(buffer, position + LENGTH_POSITION)
    # An old batch may be smaller than our header, so it is looked for first.
    if magic in (0, 1) and length >= MIN_LEGACY_LENGTH:
        return MalformedDataError(
            position,
            f"magic {magic} is not supported: let a Kafka copy the topic into a new one, "
            "which rewrites it as magic 2",
        )
    if left < HEADER_SIZE:
        return TruncatedDataError(position, f"{left} bytes left after the last batch")
    if length < MIN_LEGACY_LENGTH or (magic == MAGIC and length < MIN_LENGTH):
        return MalformedDataError(position, f"batch length {length} is too small")
    if magic != MAGIC:
        return MalformedDataError(position, f"unknown magic {magic}")
    attributes = BatchHeader._make(HEADER.unpack_from(buffer, position)).attributes
    return MalformedDataError(position, f"unknown codec {attributes & CODEC_MASK}")


def read_batch(buffer: Buffer, position: int = 0) -> Batch:
    """Read the batch at `position` as a view of the buffer; the CRC is not checked."""
    header = read_header(buffer, position)
    end = position + header.length + LOG_OVERHEAD
    if end > len(buffer):
        raise TruncatedDataError(
            position, f"batch of {header.size_bytes} bytes ends after the file"
        )
    return Batch(header, memoryview(buffer)[position:end])


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, Batch]]:
    """Yield each batch with its position, up to the end of the buffer; no CRC is checked."""
    while position < len(buffer):
        batch = read_batch(buffer, position)
        yield position, batch
        position += batch.header.size_bytes


def is_legacy_batch(buffer: Buffer) -> bool:
    """Say whether the bytes begin with a sound batch of magic 0 or 1, rather than with garbage."""
    if len(buffer) < _PREFIX_END:
        return False
    length, crc, magic = _PREFIX.unpack_from(buffer, LENGTH_POSITION)
    end = LOG_OVERHEAD + length
    if magic not in (0, 1) or length < MIN_LEGACY_LENGTH or end > len(buffer):
        return False
    found = zlib.crc32(buffer[MAGIC_POSITION:end])
    return bool(found == crc & 0xFFFFFFFF)


def _iter_records(buffer: Buffer, position: int, header: BatchHeader) -> Iterator[Record]:
    previous_delta = -1
    for index in range(header.record_count):
        if position == len(buffer):
            raise _wrong_count(position, header, index)
        start = position
        record, position = decode_record(
            buffer, position, header.base_offset, header.base_timestamp_ms, index
        )
        # Rising, but not without gaps: compaction takes records out and leaves offsets alone.
        delta = record.offset - header.base_offset
        if not previous_delta < delta <= header.last_offset_delta:
            raise malformed_record(start, index, RecordField.OFFSET_DELTA)
        previous_delta = delta
        if header.attributes & TIMESTAMP_TYPE_BIT:
            record = record._replace(timestamp_ms=header.max_timestamp_ms)
        yield record
    if header.record_count < 0:
        raise _wrong_count(position, header, 0)
    if position != len(buffer):
        left = len(buffer) - position
        raise MalformedDataError(position, f"{left} bytes after the last record")


def _wrong_count(position: int, header: BatchHeader, found: int) -> MalformedDataError:
    return MalformedDataError(position, f"header says {header.record_count} records, found {found}")
