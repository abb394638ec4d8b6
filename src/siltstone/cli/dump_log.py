"""A `.log` file as Kafka's dump tool shows it: batch by batch, and record by record on request.

Whatever bytes are there are shown, also batches with a wrong checksum. Only where no batch can be
told any more does the dump end: quietly at a torn tail, with an error in the middle of garbage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from siltstone.cli.dumped import FindingKind, Findings, Line, java_boolean, java_optional
from siltstone.cli.output import encode_bytes, format_bytes
from siltstone.errors import ChecksumError, CorruptBatchError, DecodeError, TruncatedDataError
from siltstone.log.filesystem import File
from siltstone.records.batch import Batch, BatchHeader, TimestampType, read_batch, read_header
from siltstone.records.control import decode_control_type, decode_marker
from siltstone.records.layout import MAX_SEQUENCE, NO_SEQUENCE
from siltstone.records.record import Record

_CHUNK_BYTES: Final = 1 << 20
_TIMESTAMP_TYPES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDumpOptions:
    """How much of a log file to show."""

    shows_records: bool = False
    shows_data: bool = False
    shows_metadata: bool = True
    max_bytes: int | None = None


def dump_log(file: File, options: LogDumpOptions, findings: Findings) -> Iterator[Line]:
    """Show the batches of a log file, and their records if asked to."""
    last_offset: int | None = None
    reader = LogFileReader(file, options.max_bytes)
    for position, batch in reader.iter_batches():
        yield _batch_line(position, batch)
        if not options.shows_records:
            continue
        try:
            for record in batch.iter_records():
                if last_offset is not None and record.offset != last_offset + 1:
                    findings.add(FindingKind.OFFSET_GAP, file.path, last_offset, record.offset)
                last_offset = record.offset
                line = _record_line(batch.header, record, options)
                if line is not None:
                    yield line
        except DecodeError as error:
            raise CorruptBatchError(file.path, position, error.reason) from error
    if reader.trailing_bytes and options.max_bytes is None:
        what = "zero" if reader.tail_is_zero else "invalid"
        yield Line(
            f"Found {reader.trailing_bytes} {what} bytes at the end of {file.path.name}",
            {
                "type": "trailing_bytes",
                "position": reader.end_position,
                "size_bytes": reader.trailing_bytes,
                "is_zero": reader.tail_is_zero,
            },
        )


class LogFileReader:
    """Reads batches one after the other, without judging their content."""

    def __init__(self, file: File, max_bytes: int | None = None) -> None:
        size_bytes = file.size_bytes()
        self.end_position = 0  # after the last whole batch, once all were read
        self.tail_is_zero = False
        self._file = file
        self._limit = size_bytes if max_bytes is None else min(size_bytes, max_bytes)

    @property
    def trailing_bytes(self) -> int:
        """How many bytes were left after the last whole batch."""
        return self._limit - self.end_position

    def iter_batches(self) -> Iterator[tuple[int, Batch]]:
        """Yield (position, batch); raise CorruptBatchError where garbage is no torn tail."""
        chunk_bytes = _CHUNK_BYTES
        while (start := self.end_position) < self._limit:
            chunk = self._file.read(start, min(chunk_bytes, self._limit - start))
            try:
                while (at := self.end_position - start) < len(chunk):
                    batch = read_batch(chunk, at)
                    yield self.end_position, batch
                    self.end_position += batch.header.size_bytes
            except TruncatedDataError:
                if start + len(chunk) >= self._limit:
                    return
            except DecodeError as error:
                if self._is_zero(self.end_position):
                    self.tail_is_zero = True
                    return
                raise CorruptBatchError(self._file.path, self.end_position, error.reason) from error
            # A batch larger than a chunk: read what it takes, then go back to normal.
            chunk_bytes = _CHUNK_BYTES
            if self.end_position == start:
                chunk_bytes = read_header(chunk).size_bytes

    def _is_zero(self, position: int) -> bool:
        """Say whether nothing was ever written from a position on, as in a pre-allocated file."""
        while position < self._limit:
            chunk = self._file.read(position, min(_CHUNK_BYTES, self._limit - position))
            if chunk.count(0) != len(chunk):
                return False
            position += len(chunk)
        return True


def _batch_line(position: int, batch: Batch) -> Line:
    header = batch.header
    timestamp_type = _TIMESTAMP_TYPES[header.timestamp_type]
    try:
        batch.check_crc()
        is_valid = True
    except ChecksumError:
        is_valid = False
    text = (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {java_boolean(header.is_transactional)} "
        f"isControl: {java_boolean(header.is_control)} "
        f"deleteHorizonMs: {java_optional(header.delete_horizon_ms)} position: {position} "
        f"{timestamp_type}: {header.max_timestamp_ms} size: {header.size_bytes} "
        f"magic: {header.magic} compresscodec: {header.codec.label} crc: {header.crc} "
        f"isvalid: {java_boolean(is_valid)}"
    )
    document = {
        "type": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "position": position,
        "timestamp_type": timestamp_type,
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "size_bytes": header.size_bytes,
        "magic": header.magic,
        "codec": header.codec.label,
        "crc": header.crc,
        "is_valid": is_valid,
    }
    return Line(text, document)


def _record_line(header: BatchHeader, record: Record, options: LogDumpOptions) -> Line | None:
    """Show a record; None if the options leave nothing of it."""
    document: dict[str, Any] = {"type": "record", "offset": record.offset}
    texts = []
    if options.shows_metadata:
        texts.append(_metadata_text(header, record))
        document |= _metadata_document(header, record)
        if header.is_control:
            text, control = _describe_control(record)
            texts.append(text)
            document |= control
    if options.shows_data and not header.is_control:
        # A null key or value is left out, as Kafka does: the size says -1.
        if record.key is not None:
            texts.append(f"key: {format_bytes(record.key)}")
        if record.value is not None:
            texts.append(f"payload: {format_bytes(record.value)}")
        document |= _data_document(record)
    if not texts:
        return None
    return Line(f"| {' '.join(texts)}", document)


def _metadata_text(header: BatchHeader, record: Record) -> str:
    names = ",".join(name for name, _ in record.headers)
    return (
        f"offset: {record.offset} {_TIMESTAMP_TYPES[header.timestamp_type]}: "
        f"{record.timestamp_ms} keySize: {_size(record.key)} valueSize: {_size(record.value)} "
        f"sequence: {_sequence(header, record)} headerKeys: [{names}]"
    )


def _metadata_document(header: BatchHeader, record: Record) -> dict[str, Any]:
    return {
        "timestamp_type": _TIMESTAMP_TYPES[header.timestamp_type],
        "timestamp_ms": record.timestamp_ms,
        "key_bytes": _size(record.key),
        "value_bytes": _size(record.value),
        "sequence": _sequence(header, record),
        "header_keys": [name for name, _ in record.headers],
    }


def _data_document(record: Record) -> dict[str, Any]:
    key, value = encode_bytes(record.key), encode_bytes(record.value)
    headers = []
    for name, data in record.headers:
        encoded = encode_bytes(data)
        headers.append({"key": name, "value": encoded.text, "value_encoding": encoded.encoding})
    return {
        "key": key.text,
        "key_encoding": key.encoding,
        "value": value.text,
        "value_encoding": value.encoding,
        "headers": headers,
    }


def _describe_control(record: Record) -> tuple[str, dict[str, Any]]:
    marker = decode_marker(record)
    if marker is not None:
        name = marker.control_type.name
        text = f"endTxnMarker: {name} coordinatorEpoch: {marker.coordinator_epoch}"
        return text, {"control_type": name, "coordinator_epoch": marker.coordinator_epoch}
    control_type = decode_control_type(record)
    name = "UNKNOWN" if control_type is None else control_type.name
    return f"controlType: {name}", {"control_type": name}


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _sequence(header: BatchHeader, record: Record) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE
