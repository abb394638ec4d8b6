"""Carry out a retention plan: the owner's step, as after a pass."""

import json
import time
from dataclasses import asdict, dataclass

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.file_mark import read_mark
from siltstone.cleaner.manifest import write_fields
from siltstone.cleaner.retention import RETENTION, RetentionPlan, source_of
from siltstone.clock import Clock
from siltstone.errors import CleaningAbortedError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class CommittedRetention:
    """Segments that are gone now; without a manifest if it was only tried."""

    plan: RetentionPlan
    bytes_before: int
    seconds: float
    manifest: str | None

    @property
    def bytes_after(self) -> int:
        """The size of the log without them."""
        return self.bytes_before - self.plan.removed_bytes


def commit_retention(
    fs: FileSystem, clock: Clock, log: PartitionLog, plan: RetentionPlan
) -> CommittedRetention:
    """Remove the segments of a plan, oldest first, and note it.

    A crash on the way leaves some of them, and the log starts with the first that is left. Their
    files go after `file.delete.delay.ms`. The manifest comes last, so that what it says is true:
    making it durable makes the removals durable that came before it.
    """
    started = time.perf_counter()
    checkpoints = CleanerCheckpoints(fs, log.directory.parent)
    checkpoints.read()  # One that makes no sense is found before anything is gone.
    inputs = _describe_inputs(fs, log, plan)
    with log.exclusively():
        check_removals(log, plan)
        bytes_before = log.size_bytes
        log.remove_oldest_segments(len(plan.removals))
    checkpoints.fit(log.partition, log.log_start_offset, log.log_end_offset)
    seconds = time.perf_counter() - started
    manifest = write_fields(
        fs,
        log.directory,
        plan.pass_id,
        {
            "kind": RETENTION,
            "plan": json.loads(plan.to_json()),
            "inputs": inputs,
            "counts": {
                "segments_removed": len(plan.removals),
                "bytes_removed": plan.removed_bytes,
            },
            "seconds": round(seconds, 6),
        },
        committed_ms=clock.now_ms(),
    )
    return CommittedRetention(plan, bytes_before, seconds, manifest)


def check_removals(log: PartitionLog, plan: RetentionPlan) -> None:
    """Raise CleaningAbortedError unless the oldest segments are the ones that were planned for."""
    segments = list(log.segments)[: len(plan.removals)]
    needs_policy = plan.new_log_start_offset > log.log_start_offset
    if (
        (needs_policy and not log.config.deletes)
        or log.log_start_offset != plan.log_start_offset
        or log.high_watermark < plan.new_log_start_offset
        or [source_of(segment) for segment in segments]
        != [removal.source for removal in plan.removals]
    ):
        raise CleaningAbortedError(str(log.partition))


def _describe_inputs(
    fs: FileSystem, log: PartitionLog, plan: RetentionPlan
) -> list[dict[str, int]]:
    """Read what will be gone; without the lock, for what is read is sealed, or the plan is off."""
    inputs = []
    for removal in plan.removals:
        base_offset, size_bytes = removal.source.base_offset, removal.source.size_bytes
        mark = read_mark(fs, filenames.log_path(log.directory, base_offset), size_bytes)
        if mark is None or mark.size_bytes != size_bytes:
            raise CleaningAbortedError(str(log.partition))
        inputs.append({"base_offset": base_offset, **asdict(mark)})
    return inputs
