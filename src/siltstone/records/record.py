"""One record: key, value, headers and timestamp at an offset, and its bytes inside a batch."""

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from siltstone.errors import DecodeError, MalformedDataError
from siltstone.records.varint import (
    Buffer,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
    to_int64,
)

Header: TypeAlias = tuple[str, bytes | None]


class RecordField(StrEnum):
    """The parts of a record, in wire order, as error messages name them."""

    LENGTH = "length"
    ATTRIBUTES = "attributes"
    TIMESTAMP_DELTA = "timestamp delta"
    OFFSET_DELTA = "offset delta"
    KEY_LENGTH = "key length"
    VALUE_LENGTH = "value length"
    HEADER_COUNT = "header count"
    HEADER_KEY_LENGTH = "header key length"
    HEADER_VALUE_LENGTH = "header value length"


class Record(NamedTuple):
    """A record with its place in the log; a null key or value is None, an empty one is b""."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def is_tombstone(self) -> bool:
        """Say whether the record deletes its key."""
        return self.key is not None and self.value is None


def malformed_record(position: int, index: int, field: RecordField) -> MalformedDataError:
    """Make the error for the record that is number `index` (from zero) of its batch."""
    return MalformedDataError(position, f"malformed record {index}: {field}")


def encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Encode a record for a batch that starts at `base_offset`.

    A header key that cannot be UTF-8 gets question marks, as in Java.
    """
    parts = [
        b"\0",  # the attributes of a record have no meaning yet
        encode_varlong(to_int64(record.timestamp_ms - base_timestamp_ms)),
        encode_varint(record.offset - base_offset),
        _encode_nullable(record.key),
        _encode_nullable(record.value),
        encode_varint(len(record.headers)),
    ]
    for key, value in record.headers:
        parts.append(_encode_nullable(key.encode("utf-8", "replace")))
        parts.append(_encode_nullable(value))
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def decode_record(
    buffer: Buffer, position: int, base_offset: int, base_timestamp_ms: int, index: int = 0
) -> tuple[Record, int]:
    """Return the record at `position` and the position after it.

    `index` is the record's number in its batch, for the error message. Whether the offset fits
    the batch is for the caller to check: it depends on the records around.
    """
    reader = _FieldReader(buffer, position, index)
    length = reader.read_varint(RecordField.LENGTH)
    if length < 0 or length > len(buffer) - reader.position:
        raise malformed_record(position, index, RecordField.LENGTH)
    end = reader.position + length
    # From here on no field may reach past the end that the record itself has declared.
    reader.buffer = buffer[:end] if isinstance(buffer, memoryview) else memoryview(buffer)[:end]

    reader.skip_byte(RecordField.ATTRIBUTES)
    timestamp_delta = reader.read_varlong(RecordField.TIMESTAMP_DELTA)
    offset_delta = reader.read_varint(RecordField.OFFSET_DELTA)
    key = reader.read_nullable(RecordField.KEY_LENGTH)
    value = reader.read_nullable(RecordField.VALUE_LENGTH)
    headers = reader.read_headers()
    if reader.position != end:
        raise malformed_record(position, index, RecordField.LENGTH)

    record = Record(
        to_int64(base_offset + offset_delta),
        # Deltas wrap in Java, and two timestamps can be more than 2^63 apart.
        to_int64(base_timestamp_ms + timestamp_delta),
        key,
        value,
        headers,
    )
    return record, end


def _encode_nullable(data: bytes | None) -> bytes:
    if data is None:
        return encode_varint(-1)
    return encode_varint(len(data)) + data


class _FieldReader:
    """Walks the fields of one record and turns every misfit into an error that names the field."""

    def __init__(self, buffer: Buffer, position: int, index: int) -> None:
        self.buffer = buffer
        self.position = position
        self.index = index

    def fail(self, field: RecordField) -> MalformedDataError:
        return malformed_record(self.position, self.index, field)

    def skip_byte(self, field: RecordField) -> None:
        if self.position >= len(self.buffer):
            raise self.fail(field)
        self.position += 1

    def read_varint(self, field: RecordField) -> int:
        try:
            value, self.position = decode_varint(self.buffer, self.position)
        except DecodeError as error:
            raise self.fail(field) from error
        return value

    def read_varlong(self, field: RecordField) -> int:
        try:
            value, self.position = decode_varlong(self.buffer, self.position)
        except DecodeError as error:
            raise self.fail(field) from error
        return value

    def read_nullable(self, field: RecordField) -> bytes | None:
        start = self.position
        length = self.read_varint(field)
        if length == -1:
            return None
        end = self.position + length
        if length < 0 or end > len(self.buffer):
            self.position = start
            raise self.fail(field)
        data = bytes(self.buffer[self.position : end])
        self.position = end
        return data

    def read_headers(self) -> tuple[Header, ...]:
        start = self.position
        count = self.read_varint(RecordField.HEADER_COUNT)
        # Each header takes two bytes or more, so a count that lies is refused before the loop.
        if count < 0 or count > (len(self.buffer) - self.position) // 2:
            self.position = start
            raise self.fail(RecordField.HEADER_COUNT)
        headers: list[Header] = []
        for _ in range(count):
            start = self.position
            key = self.read_nullable(RecordField.HEADER_KEY_LENGTH)
            if key is None:
                self.position = start
                raise self.fail(RecordField.HEADER_KEY_LENGTH)
            value = self.read_nullable(RecordField.HEADER_VALUE_LENGTH)
            headers.append((key.decode("utf-8", "replace"), value))
        return tuple(headers)
