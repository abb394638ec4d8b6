"""One record out of a segment's file: read its batch, check it, step to the record."""

from typing import Final, NamedTuple

from siltstone.errors import CorruptBatchError, DecodeError, MalformedDataError
from siltstone.log.filesystem import File
from siltstone.records.batch import Batch, TimestampType, read_batch, read_header
from siltstone.records.layout import HEADER_SIZE, TIMESTAMP_TYPE_BIT
from siltstone.records.record import Record, decode_record
from siltstone.records.varint import decode_varint, decode_varlong

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
    at = 0
    for number in range(header.record_count):
        length, body = decode_varint(payload, at)
        if not 1 <= length <= len(payload) - body:
            raise MalformedDataError(HEADER_SIZE, f"malformed record {number}: length")
        _, after = decode_varlong(payload, body + 1)
        delta, _ = decode_varint(payload, after)
        if header.base_offset + delta == offset:
            record, _ = decode_record(
                payload, at, header.base_offset, header.base_timestamp_ms, number
            )
            if header.attributes & TIMESTAMP_TYPE_BIT:
                record = record._replace(timestamp_ms=header.max_timestamp_ms)
            return record
        at = body + length
    return None
