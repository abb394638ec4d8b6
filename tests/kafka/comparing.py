"""What Kafka's log and ours look like, in the same words, and how their files compare.

As in `twins`, each place where the two may differ says `Kafka:`.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from siltstone.log.partition_log import PartitionLog
from siltstone.log.producer_entry import BatchMetadata
from tests.kafka.states import LogState, ProducerBatch

PRODUCER_EXPIRATION_MS: Final = 30_000

# Id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset
# of the open transaction.
PRODUCER_ENTRY: Final = struct.Struct(">qhiqiqiq")


def describe_kafka(state: LogState) -> dict[str, Any]:
    """Everything about Kafka's log but its producers, in words that are also ours."""
    return {
        "offsets": (state.log_start_offset, state.log_end_offset),
        "recovery point": state.recovery_point,
        "size": state.size,
        "epochs": state.epochs,
        "segments": [
            {
                "base offset": segment.base_offset,
                "size": segment.size,
                "offset index": segment.offset_index or (),
                "time index": segment.time_index or (),
                "transaction index": tuple(
                    (t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
                    for t in segment.txn_index or ()
                ),
            }
            for segment in state.segments
        ],
    }


def describe_ours(log: PartitionLog) -> dict[str, Any]:
    """The same about ours."""
    return {
        "offsets": (log.log_start_offset, log.log_end_offset),
        "recovery point": log.recovery_point,
        "size": log.size_bytes,
        "epochs": tuple(tuple(entry) for entry in log.leader_epochs.entries),
        "segments": [
            {
                "base offset": segment.base_offset,
                "size": segment.size_bytes,
                "offset index": tuple(
                    tuple(segment.offset_index.get(slot))
                    for slot in range(segment.offset_index.file.count)
                ),
                "time index": tuple(tuple(entry) for entry in segment.time_index.entries()),
                "transaction index": tuple(tuple(t) for t in segment.transaction_index.entries),
            }
            for segment in log.segments
        ],
    }


def compare_producers(log: PartitionLog, state: LogState, *, has_crashed: bool) -> None:
    ours = log.producer_state.entries
    assert sorted(ours) == [producer.producer_id for producer in state.producers]
    for theirs in state.producers:
        entry = ours[theirs.producer_id]
        last_data_offset = entry.last_data_offset
        first_offset = entry.current_txn_first_offset
        assert (
            entry.epoch,
            entry.last_sequence,
            -1 if last_data_offset is None else last_data_offset,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            -1 if first_offset is None else first_offset,
        ) == (
            theirs.producer_epoch,
            theirs.last_sequence,
            theirs.last_data_offset,
            theirs.last_timestamp_ms,
            theirs.coordinator_epoch,
            theirs.current_txn_first_offset,
        ), theirs.producer_id
        batches, known = _batches(entry.batches), _batches(theirs.batches)
        if has_crashed:
            # Kafka: it now knows the last batch only, with the time of the last marker, from a
            # snapshot that it has taken a moment before. We keep what we have read.
            batches = [batch[:-1] for batch in batches[len(batches) - len(known) :]]
            known = [batch[:-1] for batch in known]
        assert batches == known, theirs.producer_id


def _batches(batches: Iterable[ProducerBatch | BatchMetadata]) -> list[tuple[int, ...]]:
    return [
        (b.first_sequence, b.last_sequence, b.first_offset, b.last_offset, b.timestamp_ms)
        for b in batches
    ]


def compare_files(ours: Path, theirs: Path, now_ms: int) -> None:
    """Hold the files of two closed logs against each other, byte by byte."""
    indexes = names_in(theirs, ".index") + names_in(theirs, ".timeindex")
    assert sorted(names_in(ours, ".index") + names_in(ours, ".timeindex")) == sorted(indexes)
    for name in set(names_in(theirs)).intersection(names_in(ours)):
        if name.endswith(".deleted"):
            continue  # of no interest to anybody any more
        found, expected = (ours / name).read_bytes(), (theirs / name).read_bytes()
        if ".snapshot" in name:
            assert _live_entries(found, now_ms) == _live_entries(expected, now_ms), name
        else:
            assert found == expected, name


def names_in(directory: Path, ending: str = "") -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(ending))


def _live_entries(snapshot: bytes, now_ms: int) -> list[tuple[int, ...]]:
    """Give the entries by producer: on disk they are in the order of a Java map.

    Kafka: after a crash it writes snapshots of older segments again, and it skips a replay that
    could bring back producers whom it has forgotten. So both may have some who have expired.
    """
    version, _, count = struct.unpack_from(">hIi", snapshot)
    entries = list(PRODUCER_ENTRY.iter_unpack(snapshot[10:]))
    assert (version, count) == (1, len(entries))
    return sorted(
        entry for entry in entries if entry[7] >= 0 or now_ms - entry[5] < PRODUCER_EXPIRATION_MS
    )
