"""The small files of a partition and a log directory, shown line by line."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from siltstone.cli.dumped import Line, java_optional
from siltstone.log import filenames
from siltstone.log.checkpoint import parse_epochs, parse_offsets
from siltstone.log.filesystem import FileSystem
from siltstone.log.identity import parse_partition_metadata
from siltstone.log.producer_snapshot import read_snapshot
from siltstone.log.transaction_index import TransactionIndex

_TXN_INDEX_VERSION: Final = 0


def dump_transaction_index(fs: FileSystem, path: Path, base_offset: int) -> Iterator[Line]:
    """Show the aborted transactions of a segment."""
    for txn in TransactionIndex(fs, path, base_offset, writable=False).entries:
        yield Line(
            f"version: {_TXN_INDEX_VERSION} producerId: {txn.producer_id} "
            f"firstOffset: {txn.first_offset} lastOffset: {txn.last_offset} "
            f"lastStableOffset: {txn.last_stable_offset}",
            {"type": "aborted_transaction", **txn._asdict()},
        )


def dump_snapshot(path: Path, data: bytes) -> Iterator[Line]:
    """Show the producers in a snapshot, each with its last batch."""
    for entry in read_snapshot(path, data):
        text = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {java_optional(entry.current_txn_first_offset)} "
            f"lastTimestamp: {entry.last_timestamp_ms}"
        )
        document = {
            "type": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
            "last_timestamp_ms": entry.last_timestamp_ms,
        }
        if entry.batches:
            last = entry.batches[-1]
            text += (
                f" firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
                f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} "
                f"timestamp: {last.timestamp_ms}"
            )
            document |= {
                "first_sequence": last.first_sequence,
                "last_sequence": last.last_sequence,
                "last_offset": last.last_offset,
                "offset_delta": last.offset_delta,
            }
        yield Line(text, document)


def dump_epochs(path: Path, data: bytes) -> Iterator[Line]:
    """Show which leader epoch began where."""
    for epoch, start_offset in parse_epochs(path, data):
        yield Line(
            f"epoch: {epoch} startOffset: {start_offset}",
            {"type": "leader_epoch", "epoch": epoch, "start_offset": start_offset},
        )


def dump_offsets(path: Path, data: bytes) -> Iterator[Line]:
    """Show a checkpoint of offsets by partition."""
    for partition, offset in sorted(parse_offsets(path, data).items()):
        yield Line(
            f"topic: {partition.topic} partition: {partition.partition} offset: {offset}",
            {
                "type": "checkpoint_entry",
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
            },
        )


def dump_partition_metadata(path: Path, data: bytes) -> Iterator[Line]:
    """Show which topic a partition directory belongs to."""
    topic_id = str(parse_partition_metadata(path, data))
    yield Line(f"topicId: {topic_id}", {"type": "partition_metadata", "topic_id": topic_id})


# By the whole name of the file.
SMALL_FILES: Final[Mapping[str, Callable[[Path, bytes], Iterator[Line]]]] = MappingProxyType(
    {
        filenames.LEADER_EPOCHS: dump_epochs,
        filenames.PARTITION_METADATA: dump_partition_metadata,
        filenames.CLEANER_OFFSETS: dump_offsets,
        filenames.RECOVERY_POINTS: dump_offsets,
        filenames.LOG_START_OFFSETS: dump_offsets,
        filenames.HIGH_WATERMARKS: dump_offsets,
    }
)
