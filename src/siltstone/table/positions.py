"""One record out of a segment's file: read its batch, check it, step to the record."""

from typing import Final, NamedTuple

from siltstone.errors import CorruptBatchError, DecodeError, MalformedDataError
from siltstone.log.filesystem import File
from siltstone.records.batch import Batch, TimestampType, read_batch, read_header
from siltstone.records.layout import HEADER_SIZE, TIMESTAMP_TYPE_BIT
from siltstone.records.record import Record, decode_record
from siltstone.records.varint import Buffer, decode_varint

_WINDOW_BYTES: Final = 16 << 10  # most batches come with the first read


class RecordPosition(NamedTuple):
    """An offset, and the position of the batch that holds it."""

    offset: int
    position: int


class StoredRecord(NamedTuple):
    """A record, and who set its timestamp."""

    record: Record
    timestamp_type: TimestampType


def read_record(file: File, place: RecordPosition) -> StoredRecord | None:
    """Return the record at a place; None if it is not there."""
    batch = _read_batch(file, place.position)
    header = batch.header
    if header.is_control or not header.base_offset <= place.offset <= header.last_offset:
        return None
    try:
        record = _step_to(batch, place.offset)
    except DecodeError as error:
        raise CorruptBatchError(file.path, place.position, error.reason) from error
    return None if record is None else StoredRecord(record, header.timestamp_type)


def _read_batch(file: File, position: int) -> Batch:
    try:
        data = file.read(position, _WINDOW_BYTES)
        size_bytes = read_header(data).size_bytes
        if size_bytes > len(data):
            data = file.read(position, size_bytes)
        batch = read_batch(data)
        batch.check_crc()
    except DecodeError as error:
        raise CorruptBatchError(file.path, position, error.reason) from error
    return batch


def _step_to(batch: Batch, offset: int) -> Record | None:
    """Find a record by stepping over the lengths of those before it."""
    header = batch.header
    payload = batch.payload()
    # Where no offset is missing, the place of a record is known: most batches, and most records
    # of a lookup, need one length each to get there.
    is_dense = header.record_count == header.last_offset_delta + 1
    skipped = offset - header.base_offset if is_dense else 0
    at = 0
    for number in range(skipped):
        at = _step_over(payload, at, number)
    for number in range(skipped, header.record_count):
        record, end = decode_record(
            payload, at, header.base_offset, header.base_timestamp_ms, number
        )
        if record.offset == offset:
            if header.attributes & TIMESTAMP_TYPE_BIT:
                record = record._replace(timestamp_ms=header.max_timestamp_ms)
            return record
        at = end
    return None


def _step_over(payload: Buffer, at: int, number: int) -> int:
    """Return the position after a record."""
    # Nearly all lengths take one or two bytes.
    first = payload[at] if at < len(payload) else 0x80
    if first < 0x80 and not first & 1:
        return at + 1 + (first >> 1)
    length, body = decode_varint(payload, at)
    if not 1 <= length <= len(payload) - body:
        raise MalformedDataError(HEADER_SIZE, f"malformed record {number}: length")
    return body + length
