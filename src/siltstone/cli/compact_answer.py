"""What `silt compact` answers: a table for people, a list for programs."""

from typing import Any

from siltstone.cleaner.result import PassCounts
from siltstone.cleaner.retention import RETENTION
from siltstone.cleaner.retention_commit import CommittedRetention
from siltstone.cli import output
from siltstone.cli.compaction import Cleaned, Outcome
from siltstone.cli.tables import Column, print_table


def describe(outcome: Outcome) -> list[dict[str, Any]]:
    """Return what was done for `--output json`, in the order in which it was done."""
    return [
        *map(_describe_removed, outcome.removed),
        *map(_describe_cleaned, outcome.cleaned),
    ]


def print_text(outcome: Outcome, *, dry_run: bool) -> None:
    """Print what was done."""
    if not outcome.cleaned and not outcome.removed:
        output.print_line("Nothing to clean; silt plan says why.")
        return
    if outcome.removed:
        _print_removed(outcome.removed)
    if outcome.cleaned:
        _print_cleaned(outcome.cleaned)
    if dry_run:
        output.print_line("Nothing was changed: this was a dry run.")


def _describe_cleaned(cleaned: Cleaned) -> dict[str, Any]:
    return {
        "topic": cleaned.plan.partition.topic,
        "partition": cleaned.plan.partition.partition,
        "kind": "compaction",
        **_counts(cleaned.result.counts),
        "segments_removed": 0,
        "bytes_before": cleaned.plan.source_bytes(),
        "bytes_after": cleaned.bytes_after,
        "seconds": round(cleaned.result.seconds, 6),
        "manifest": cleaned.manifest,
    }


def _describe_removed(removed: CommittedRetention) -> dict[str, Any]:
    return {
        "topic": removed.plan.partition.topic,
        "partition": removed.plan.partition.partition,
        "kind": RETENTION,
        **_counts(PassCounts()),  # no record is looked at
        "segments_removed": len(removed.plan.removals),
        "log_start_offset": removed.plan.new_log_start_offset,
        "bytes_before": removed.bytes_before,
        "bytes_after": removed.bytes_after,
        "seconds": round(removed.seconds, 6),
        "manifest": removed.manifest,
    }


def _counts(counts: PassCounts) -> dict[str, int | None]:
    fields = counts.as_dict()
    del fields["bytes_read"], fields["bytes_written"]
    return fields


def _print_cleaned(cleaned: list[Cleaned]) -> None:
    print_table(
        [
            Column("PARTITION"),
            Column("RECORDS", is_number=True),
            Column("KEPT", is_number=True),
            Column("SUPERSEDED", is_number=True),
            Column("TOMBSTONES KEPT", is_number=True),
            Column("REMOVED", is_number=True),
            Column("BEFORE", is_number=True),
            Column("AFTER", is_number=True),
            Column("SECONDS", is_number=True),
        ],
        [
            (
                str(one.plan.partition),
                str(one.result.counts.records_read),
                str(one.result.counts.records_kept),
                str(one.result.counts.superseded),
                str(one.result.counts.tombstones_kept),
                str(one.result.counts.tombstones_removed),
                output.format_size(one.plan.source_bytes()),
                output.format_size(one.bytes_after),
                f"{one.result.seconds:.2f}",
            )
            for one in cleaned
        ],
    )


def _print_removed(removed: list[CommittedRetention]) -> None:
    print_table(
        [
            Column("PARTITION"),
            Column("SEGMENTS REMOVED", is_number=True),
            Column("BY"),
            Column("LOG START", is_number=True),
            Column("BEFORE", is_number=True),
            Column("AFTER", is_number=True),
        ],
        [
            (
                str(one.plan.partition),
                str(len(one.plan.removals)),
                one.plan.reason,
                str(one.plan.new_log_start_offset),
                output.format_size(one.bytes_before),
                output.format_size(one.bytes_after),
            )
            for one in removed
        ],
    )
