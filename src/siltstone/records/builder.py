"""Records -> batch bytes, equal to the ones that Kafka writes.

Three kinds of batches need care. Where a delete horizon is set, it takes the place of the base
timestamp and all deltas count from it. With LogAppendTime the records keep the timestamps that the
producer gave them, but nobody reads them: the max timestamp counts. What compaction has thinned out
keeps the span of offsets of the original batch.
"""

from collections.abc import Iterable
from typing import Final

from siltstone.records.batch import BatchHeader, TimestampType
from siltstone.records.compression import Codec, compress
from siltstone.records.control import ControlType, Marker, encode_marker
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    LENGTH_POSITION,
    MAGIC,
    MAX_LENGTH,
    MAX_RELATIVE_OFFSET,
    MIN_LENGTH,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    STAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from siltstone.records.record import Record, encode_record
from siltstone.records.varint import Buffer

_TO_BE_COMPUTED: Final = 0


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset_delta: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Build a batch of at least one record; the offsets in the records are absolute and rise.

    Base offset, last offset delta and max timestamp follow from the records unless they are given,
    as they must be for a batch that compaction has thinned out.
    """
    contents = list(records)
    if not contents:
        raise ValueError("a batch needs a record: build_empty_batch makes one without")
    if base_offset is None:
        base_offset = contents[0].offset
    if last_offset_delta is None:
        last_offset_delta = contents[-1].offset - base_offset
    if max_timestamp_ms is None:
        max_timestamp_ms = max(record.timestamp_ms for record in contents)
    base_timestamp_ms = contents[0].timestamp_ms
    if delete_horizon_ms is not None:
        base_timestamp_ms = delete_horizon_ms
    header = BatchHeader(
        base_offset=base_offset,
        length=_TO_BE_COMPUTED,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=_TO_BE_COMPUTED,
        attributes=codec
        | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0),
        last_offset_delta=last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(contents),
    )
    _check_offsets(contents, header)
    _check_producer(header)
    payload = b"".join(encode_record(record, base_offset, base_timestamp_ms) for record in contents)
    return encode_batch(header, compress(codec, payload, level))


def build_marker(
    control_type: ControlType,
    *,
    offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Build the control batch that ends a transaction."""
    record = encode_marker(Marker(control_type, coordinator_epoch), offset, timestamp_ms)
    return build_batch(
        [record],
        delete_horizon_ms=delete_horizon_ms,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_empty_batch(header: BatchHeader) -> bytes:
    """Build what is left of a batch that lost all of its records but whose offsets must stay.

    It keeps the span, the producer's place and the max timestamp; it has no codec, no base
    timestamp and so no delete horizon.
    """
    kept_bits = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
    empty = header._replace(
        attributes=header.attributes & kept_bits,
        base_timestamp_ms=NO_TIMESTAMP,
        record_count=0,
    )
    return encode_batch(empty, b"")


def encode_batch(header: BatchHeader, payload: Buffer) -> bytes:
    """Put a header before a payload that is compressed already, with new length, magic and CRC."""
    length = MIN_LENGTH + len(payload)
    if length > MAX_LENGTH:
        raise ValueError(f"a batch of {length} bytes does not fit the length field")
    fields = header._replace(length=length, magic=MAGIC, crc=_TO_BE_COMPUTED)
    crc = crc32c(payload, crc32c(HEADER.pack(*fields)[ATTRIBUTES_POSITION:]))
    return HEADER.pack(*fields._replace(crc=crc)) + payload


def stamp(data: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """Return the bytes to put in the place of the first 16 of a batch, before its magic.

    The CRC does not cover them, so a leader assigns offset and epoch without touching the rest:
    what goes into the log is `stamp(data, ...)` and then `data[16:]`.
    """
    length = int.from_bytes(data[LENGTH_POSITION : LENGTH_POSITION + 4], "big")
    return STAMP.pack(base_offset, length, leader_epoch)


def _check_offsets(records: list[Record], header: BatchHeader) -> None:
    if not 0 <= header.last_offset_delta <= MAX_RELATIVE_OFFSET:
        raise ValueError(f"last offset delta {header.last_offset_delta} does not fit a batch")
    lowest = header.base_offset
    for record in records:
        if not lowest <= record.offset <= header.last_offset:
            raise ValueError(
                f"offset {record.offset} is not between {lowest} and {header.last_offset}"
            )
        lowest = record.offset + 1


def _check_producer(header: BatchHeader) -> None:
    """Refuse what Kafka refuses to build: a producer without its epoch or its sequence."""
    if header.has_producer_id:
        if header.producer_epoch < 0:
            raise ValueError(f"producer {header.producer_id} has no epoch")
        if header.base_sequence < 0 and not header.is_control:
            raise ValueError(f"producer {header.producer_id} has no sequence")
    elif header.is_transactional:
        raise ValueError("a transactional batch needs a producer id")
