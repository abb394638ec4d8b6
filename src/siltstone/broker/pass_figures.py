"""What the passes over one log have done, for those who watch the broker."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from siltstone.cleaner.manifest import read_newest_manifest
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog

_REASONS: Final = {
    "superseded": "superseded",
    "keyless_removed": "keyless",
    "aborted_removed": "aborted",
    "tombstones_removed": "tombstone",
    "markers_removed": "marker",
}


@dataclass(slots=True)
class LastPass:
    """What the last pass over a log left, also if an earlier process made it."""

    committed_ms: int
    seconds: float
    live_keys: int
    live_records: int
    tombstones: int
    bytes_read: int
    bytes_written: int
    oldest_tombstone_ms: int | None  # when its waiting began

    @classmethod
    def from_counts(
        cls, counts: dict[str, Any], delete_retention_ms: int, *, committed_ms: int, seconds: float
    ) -> "LastPass":
        """Take the figures from what a pass has counted: of each key, one record is left."""
        horizon_ms = counts["earliest_horizon_ms"]
        return cls(
            committed_ms=committed_ms,
            seconds=seconds,
            live_keys=counts["records_kept"] - counts["tombstones_kept"],
            live_records=counts["records_kept"],
            tombstones=counts["tombstones_kept"],
            bytes_read=counts["bytes_read"],
            bytes_written=counts["bytes_written"],
            oldest_tombstone_ms=None if horizon_ms is None else horizon_ms - delete_retention_ms,
        )


@dataclass(slots=True)
class PassFigures:
    """What the passes over one log have done since the broker started, and what the last left."""

    pass_count: int = 0
    failure_count: int = 0
    removed_bytes: int = 0
    removed_records: Counter[str] = field(default_factory=Counter)  # by reason
    last: LastPass | None = None

    def note(self, plan: CleaningPlan, result: PassResult, now_ms: int) -> None:
        """Count a pass that was committed."""
        counts = result.counts.as_dict()
        self.pass_count += 1
        unchanged_bytes = plan.bytes_of(result.unchanged_bases())
        self.removed_bytes += plan.source_bytes() - result.counts.bytes_written - unchanged_bytes
        for name, reason in _REASONS.items():
            self.removed_records[reason] += counts[name] or 0
        self.last = LastPass.from_counts(
            counts, plan.delete_retention_ms, committed_ms=now_ms, seconds=round(result.seconds, 6)
        )


def recall_figures(fs: FileSystem, log: PartitionLog) -> PassFigures:
    """Return the figures of a log that nobody has cleaned since the broker started."""
    manifest = read_newest_manifest(fs, log.directory)
    if manifest is None:
        return PassFigures()
    fields = manifest.fields
    return PassFigures(
        last=LastPass.from_counts(
            fields["counts"],
            fields["plan"]["delete_retention_ms"],
            committed_ms=fields["committed_ms"],
            seconds=fields["seconds"],
        )
    )
