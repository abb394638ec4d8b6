"""What may be seen of a log from outside, to hold two views of it against each other."""

import hashlib
from pathlib import Path

from siltstone.log.partition_log import PartitionLog
from tests.support.make_log import (
    format_batch,
)


def take_picture(root: Path) -> dict[str, tuple[int, int, str]]:
    """Note every file below a directory: its size, when it was changed, and what is in it."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            # Never the lock itself: closing any descriptor of it would end its owner's hold.
            hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file() and path.name != ".lock"
            else "",
        )
        for path in sorted([root, *root.rglob("*")])
    }


def describe(log: PartitionLog) -> dict[str, object]:
    """Say everything about a log that a reader may ask for."""
    batches = [batch for segment in log.segments for _, batch in segment.iter_batches()]
    times = sorted({batch.header.max_timestamp_ms for batch in batches})
    return {
        "contents": " | ".join(
            " ".join(format_batch(batch) for _, batch in segment.iter_batches())
            for segment in log.segments
        ),
        "ends": (log.log_start_offset, log.last_stable_offset, log.log_end_offset),
        "aborted": log.collect_aborted(0, 2**62),
        "times": {time_ms: log.find_offset_by_timestamp(time_ms) for time_ms in times},
        "newest": log.find_max_timestamp(),
        "epochs": log.leader_epochs.entries,
        "producers": {
            entry.producer_id: (entry.epoch, entry.last_sequence, entry.current_txn_first_offset)
            for entry in log.producer_state.entries.values()
        },
    }
