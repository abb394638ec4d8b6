"""What a leader does to a producer's batch before it is appended: check it, and stamp it.

The batch stays the bytes that the producer sent. Base offset and leader epoch lie outside of the
CRC, so they are written in front of the rest without a copy; only a batch whose header must change,
or whose codec is not the topic's, is made anew. The rules are those of Kafka's LogValidator.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from siltstone.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    TruncatedDataError,
)
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.origin import AppendOrigin
from siltstone.records.batch import Batch, BatchHeader, TimestampType, read_batch
from siltstone.records.builder import build_batch
from siltstone.records.control import Marker
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    STAMP,
    TIMESTAMP_TYPE_BIT,
)
from siltstone.records.scan import check_batch, check_records
from siltstone.records.varint import Buffer

_CRC: Final = struct.Struct(">I")


class ValidBatch(NamedTuple):
    """A batch that may be appended: its stamped header, and the bytes to write."""

    header: BatchHeader
    buffers: Sequence[bytes | memoryview]
    log_append_time_ms: int  # -1: the producer's timestamps stand
    marker: Marker | None = None


def read_single_batch(
    partition: TopicPartition, data: Buffer, config: LogConfig, origin: AppendOrigin
) -> Batch:
    """Return the one batch in `data`; raise unless it is whole, sound and small enough.

    A client's header is checked as well, but none of its records.
    """
    batch = read_batch(data)
    header = batch.header
    if origin is AppendOrigin.CLIENT and header.base_offset != 0:
        raise InvalidRecordError(
            str(partition), f"base offset is {header.base_offset}, a producer's must be 0"
        )
    if header.size_bytes > config.max_message_bytes:
        raise RecordTooLargeError(
            str(partition), header.size_bytes, "max.message.bytes", config.max_message_bytes
        )
    batch.check_crc()
    if header.size_bytes != len(data):
        raise InvalidRecordError(str(partition), "more than one batch in a request")
    if origin is AppendOrigin.CLIENT:
        _check_client_header(partition, header)
    return batch


def _check_client_header(partition: TopicPartition, header: BatchHeader) -> None:
    reason = None
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        reason = (
            f"header says {header.record_count} records in {header.last_offset_delta + 1} offsets"
        )
    elif header.is_control:
        reason = "clients must not write control batches"
    elif header.has_producer_id and header.base_sequence < 0:
        reason = f"producer {header.producer_id} sent no sequence"
    if reason is not None:
        raise InvalidRecordError(str(partition), reason)


def validate(
    partition: TopicPartition,
    batch: Batch,
    config: LogConfig,
    origin: AppendOrigin,
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> ValidBatch:
    """Check the records of a batch and give it its place in the log."""
    header = batch.header
    marker = batch.marker() if header.is_control else None
    if origin is AppendOrigin.REPLICATION:
        return _stamped(batch, base_offset, leader_epoch, NO_TIMESTAMP, marker)

    max_timestamp_ms = _check_records(partition, batch, config, now_ms)
    is_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    log_append_time_ms = now_ms if is_append_time else NO_TIMESTAMP
    if is_append_time:
        max_timestamp_ms = now_ms
    if config.compression_type in (None, header.codec) or header.is_control:
        batch = _with_timestamps(batch, config.message_timestamp_type, max_timestamp_ms)
    else:
        batch = _recompressed(partition, batch, config, log_append_time_ms)
    return _stamped(batch, base_offset, leader_epoch, log_append_time_ms, marker)


def _check_records(partition: TopicPartition, batch: Batch, config: LogConfig, now_ms: int) -> int:
    """Check every record, and return the newest timestamp."""
    is_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    # To Kafka the timestamps of such a batch are all its max timestamp: if that is a time, and the
    # producer's times count here, it is as good as any.
    header = batch.header
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and (
        is_append_time or header.max_timestamp_ms == NO_TIMESTAMP
    ):
        raise InvalidTimestampError(
            str(partition), "a producer must not set the timestamp type to LogAppendTime"
        )
    oldest_ms = now_ms - config.message_timestamp_before_max_ms
    newest_ms = min(now_ms + config.message_timestamp_after_max_ms, _MAX_LONG)
    found = check_records(
        batch,
        needs_keys=config.is_compacted,
        oldest_ms=-_MAX_LONG if is_append_time else oldest_ms,
        newest_ms=_MAX_LONG if is_append_time else newest_ms,
        limit_bytes=MAX_UNCOMPRESSED_BYTES,
    )
    if found.untimely is not None:
        raise InvalidTimestampError(
            str(partition),
            f"timestamp is outside of {oldest_ms} to {newest_ms} "
            "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
            found.untimely,
        )
    if found.keyless is not None:
        raise InvalidRecordError(
            str(partition), "a compacted topic takes no record without a key", found.keyless
        )
    return found.max_timestamp_ms


_MAX_LONG: Final = 2**63 - 1
# One request's records in memory at once; far above what any client puts into a batch.
MAX_UNCOMPRESSED_BYTES: Final = 512 << 20


def _with_timestamps(batch: Batch, timestamp_type: TimestampType, max_timestamp_ms: int) -> Batch:
    """Correct the header where the producer's is not what the records, or the topic, say."""
    header = batch.header
    if header.timestamp_type is timestamp_type and header.max_timestamp_ms == max_timestamp_ms:
        return batch
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    header = header._replace(attributes=attributes, max_timestamp_ms=max_timestamp_ms)
    data = bytearray(batch.data)
    HEADER.pack_into(data, 0, *header)
    crc = crc32c(memoryview(data)[ATTRIBUTES_POSITION:])
    _CRC.pack_into(data, CRC_POSITION, crc)
    return Batch(header._replace(crc=crc), memoryview(data))


def _recompressed(
    partition: TopicPartition, batch: Batch, config: LogConfig, log_append_time_ms: int
) -> Batch:
    """Build the batch anew with the topic's codec and level."""
    header = batch.header
    assert config.compression_type is not None
    plain = header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_BIT)
    data = build_batch(
        list(Batch(plain, batch.data).iter_records(MAX_UNCOMPRESSED_BYTES)),
        codec=config.compression_type,
        level=config.compression_level,
        timestamp_type=config.message_timestamp_type,
        max_timestamp_ms=log_append_time_ms if log_append_time_ms >= 0 else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    if len(data) > config.max_message_bytes:
        raise RecordTooLargeError(
            str(partition), len(data), "max.message.bytes", config.max_message_bytes
        )
    return read_batch(data)


def _stamped(
    batch: Batch,
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int,
    marker: Marker | None,
) -> ValidBatch:
    header = batch.header
    length = header.length
    # By position, which takes a third of the time of `_replace`.
    stamped = BatchHeader(base_offset, length, leader_epoch, *header[3:])
    stamp = STAMP.pack(base_offset, length, leader_epoch)
    return ValidBatch(stamped, (stamp, batch.data[MAGIC_POSITION:]), log_append_time_ms, marker)


def split_batches(data: Buffer) -> list[Batch]:
    """Return the whole batches of a leader's answer; a last one that was cut off is left out."""
    batches = []
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            # With a header that loading would take for damage, whatever its CRC says.
            batch = check_batch(data, position, next_offset=0)
        except TruncatedDataError:
            break
        batches.append(batch)
        position += batch.header.size_bytes
    return batches
