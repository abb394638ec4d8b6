"""What `silt compact` answers: a table for people, a list for programs."""

from collections.abc import Sequence
from typing import Any

from siltstone.cleaner.retention import RETENTION
from siltstone.cli import output
from siltstone.cli.output import OutputFormat
from siltstone.cli.tables import Column, print_table


def print_done(
    done: Sequence[dict[str, Any]], output_format: OutputFormat, *, dry_run: bool
) -> None:
    """Print what was done, as `Outcome.describe` tells it."""
    if output_format is OutputFormat.JSON:
        output.print_json_list(done)
        return
    if not done:
        output.print_line("Nothing to clean; silt plan says why.")
        return
    removed = [one for one in done if one["kind"] == RETENTION]
    cleaned = [one for one in done if one["kind"] != RETENTION]
    if removed:
        _print_removed(removed)
    if cleaned:
        _print_cleaned(cleaned)
    if dry_run:
        output.print_line("Nothing was changed: this was a dry run.")


def _print_cleaned(cleaned: Sequence[dict[str, Any]]) -> None:
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
                f"{one['topic']}-{one['partition']}",
                str(one["records_read"]),
                str(one["records_kept"]),
                str(one["superseded"]),
                str(one["tombstones_kept"]),
                str(one["tombstones_removed"]),
                output.format_size(one["bytes_before"]),
                output.format_size(one["bytes_after"]),
                f"{one['seconds']:.2f}",
            )
            for one in cleaned
        ],
    )


def _print_removed(removed: Sequence[dict[str, Any]]) -> None:
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
                f"{one['topic']}-{one['partition']}",
                str(one["segments_removed"]),
                one["reason"],
                str(one["log_start_offset"]),
                output.format_size(one["bytes_before"]),
                output.format_size(one["bytes_after"]),
            )
            for one in removed
        ],
    )
