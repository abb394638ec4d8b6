"""A batch that lost some of its records, or got its delete horizon, written anew."""

from collections.abc import Sequence

from siltstone.records.batch import BatchHeader, TimestampType
from siltstone.records.builder import build_batch
from siltstone.records.record import Record


def rebuild_batch(
    header: BatchHeader, survivors: Sequence[Record], delete_horizon_ms: int | None
) -> bytes:
    """Write the survivors with all that identifies the batch: offsets, producer, epoch, codec.

    The codec's default level is used, as Kafka does, whatever the topic says.
    """
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return build_batch(
        survivors,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        max_timestamp_ms=header.max_timestamp_ms if is_append_time else None,
        delete_horizon_ms=delete_horizon_ms,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )
