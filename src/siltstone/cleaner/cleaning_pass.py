"""One pass over one log, run by the log's owner: plan -> engine -> commit."""

import logging
from dataclasses import dataclass
from typing import Final

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.commit import check_sources, commit_pass, discard_pass, discard_run
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.manifest import write_manifest
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.clock import Clock
from siltstone.errors import CleaningError, CorruptCheckpointError
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_MEGABYTE: Final = 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class CommittedPass:
    """A pass that is part of the log now; `manifest` is the name of its record."""

    plan: CleaningPlan
    result: PassResult
    manifest: str


class PassCommitter:
    """Commits what an engine has run, on logs that this process owns."""

    def __init__(self, fs: FileSystem, clock: Clock, checkpoints: CleanerCheckpoints) -> None:
        self._fs = fs
        self._clock = clock
        self._checkpoints = checkpoints

    def commit(self, log: PartitionLog, plan: CleaningPlan, result: PassResult) -> CommittedPass:
        """Commit a pass; whatever fails, the log is sound and the plan can be made anew.

        The checkpoint comes after the swap: a crash in between repeats work, and loses nothing.
        """
        try:
            self._checkpoints.read()  # One that makes no sense is found before the swap.
            commit_pass(self._fs, log, plan, result)
        except (CleaningError, CorruptCheckpointError):
            discard_pass(self._fs, log, result)
            raise
        self._checkpoints.put(plan.partition, plan.end_offset)
        manifest = write_manifest(self._fs, plan, result, committed_ms=self._clock.now_ms())
        _log_summary(plan, result)
        return CommittedPass(plan, result, manifest)


class PassRunner(PassCommitter):
    """Runs plans with an engine and commits them."""

    def __init__(
        self, fs: FileSystem, clock: Clock, engine: CleaningEngine, checkpoints: CleanerCheckpoints
    ) -> None:
        super().__init__(fs, clock, checkpoints)
        self._engine = engine

    def run(self, log: PartitionLog, plan: CleaningPlan) -> CommittedPass:
        """Run a plan and commit it."""
        # Or a source that an earlier pass has replaced would look damaged.
        check_sources(log, plan)
        try:
            result = self._engine.run(plan)
        except BaseException:
            # Also Ctrl-C. On a full disk nothing else would ever make room again.
            discard_run(self._fs, plan)
            raise
        return self.commit(log, plan, result)


def _log_summary(plan: CleaningPlan, result: PassResult) -> None:
    """Log the block that operators of Kafka search for."""
    counts = result.counts
    before = plan.source_bytes()
    after = counts.bytes_written + plan.bytes_of(result.unchanged_bases())
    kept = counts.records_kept + counts.markers_kept
    rewrite_seconds = result.seconds - result.index_seconds
    logger.info(
        "Log cleaner cleaned log %s (dirty section = [%d, %d])\n"
        "\t%.1f MB of log processed in %.1f seconds (%.1f MB/sec).\n"
        "\tIndexed %.1f MB in %.1f seconds (%.1f MB/sec, %.1f%% of total time)\n"
        "\tBuffer utilization: %.1f%%\n"
        "\tCleaned %.1f MB in %.1f seconds (%.1f MB/sec, %.1f%% of total time)\n"
        "\tStart size: %.1f MB (%d messages)\n"
        "\tEnd size: %.1f MB (%d messages)\n"
        "\t%.1f%% size reduction (%.1f%% fewer messages)",
        plan.partition,
        plan.first_dirty_offset,
        plan.end_offset,
        *_rate(before, result.seconds),
        *_rate(before, result.index_seconds),
        _share(result.index_seconds, result.seconds),
        0.0,  # The keys have no buffer of a fixed size that could be full.
        *_rate(before, rewrite_seconds),
        _share(rewrite_seconds, result.seconds),
        before / _MEGABYTE,
        counts.records_read,
        after / _MEGABYTE,
        kept,
        100.0 - _share(after, before) if before else 0.0,
        100.0 - _share(kept, counts.records_read) if counts.records_read else 0.0,
    )


def _rate(size_bytes: int, seconds: float) -> tuple[float, float, float]:
    """Return megabytes, seconds, and the one per the other."""
    megabytes = size_bytes / _MEGABYTE
    return megabytes, seconds, megabytes / seconds if seconds else 0.0


def _share(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0
