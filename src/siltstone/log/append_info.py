"""Where an append went."""

from collections.abc import Sequence
from typing import NamedTuple

from siltstone.log.producer_entry import BatchMetadata
from siltstone.records.batch import BatchHeader
from siltstone.records.layout import NO_TIMESTAMP


class AppendInfo(NamedTuple):
    """Where an append went; a repeated batch gets the answer of the first time."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int  # -1: the producer's timestamps stand
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False

    @classmethod
    def of_duplicate(
        cls, duplicate: BatchMetadata, log_start_offset: int, size_bytes: int
    ) -> "AppendInfo":
        """Answer for a batch that is in the log already."""
        return cls(
            first_offset=duplicate.first_offset,
            last_offset=duplicate.last_offset,
            max_timestamp_ms=duplicate.timestamp_ms,
            # Whoever set it: which of the two is not remembered, and Kafka answers the same.
            log_append_time_ms=duplicate.timestamp_ms,
            log_start_offset=log_start_offset,
            size_bytes=size_bytes,
            is_duplicate=True,
        )

    @classmethod
    def of_batches(
        cls, headers: Sequence[BatchHeader], log_start_offset: int, size_bytes: int
    ) -> "AppendInfo":
        """Answer for batches that had their offsets and times before."""
        return cls(
            first_offset=headers[0].base_offset,
            last_offset=headers[-1].last_offset,
            max_timestamp_ms=max(header.max_timestamp_ms for header in headers),
            log_append_time_ms=NO_TIMESTAMP,
            log_start_offset=log_start_offset,
            size_bytes=size_bytes,
        )
