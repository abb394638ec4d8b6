"""`silt plan`: which logs are due for a pass, and why each of the others is not."""

from collections.abc import Sequence
from typing import Annotated

import typer

from siltstone.cleaner.retention import RetentionPlan
from siltstone.cleaner.selection import Reason
from siltstone.cleaner.survey import survey_logs
from siltstone.cli import output
from siltstone.cli.cleaning import (
    IgnoreRatio,
    Now,
    Topics,
    describe_damaged,
    describe_surveyed,
    draw_segments,
    find_partitions,
    knows_retention,
)
from siltstone.cli.logs import open_reader
from siltstone.cli.options import LogDirs, Output, Overrides, parse_config
from siltstone.cli.output import OutputFormat
from siltstone.cli.relay import BootstrapServer, relay
from siltstone.cli.tables import Column, print_table
from siltstone.clock import SystemClock

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def plan(
    topics: Topics = None,
    now: Now = None,
    ignore_ratio: IgnoreRatio = False,
    force: Annotated[
        bool, typer.Option("--force", help="As if the active segments were rolled first.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Explain for every partition whether a pass is due, with the number that decided."""
    if bootstrap_server is not None:
        relay(bootstrap_server)
        return
    reader = open_reader(log_dir, config)
    now_ms = SystemClock().now_ms() if now is None else now
    overridden = parse_config(config)
    survey = survey_logs(
        reader,
        find_partitions(reader, topics),
        now_ms,
        ignores_ratio=ignore_ratio or force,
        as_if_rolled=force,
        has_retention=lambda topic: knows_retention(reader.describe(topic), overridden),
    )
    if output_format is OutputFormat.JSON:
        output.print_json_list(
            [
                *map(describe_surveyed, survey.logs),
                *(describe_damaged(partition, error) for partition, error in survey.failures),
            ]
        )
    else:
        print_table(
            [
                Column("PARTITION"),
                Column("ELIGIBLE"),
                Column("WHY"),
                Column("CLEAN", is_number=True),
                Column("DIRTY", is_number=True),
                Column("RATIO", is_number=True),
                Column("WAITING", is_number=True),
                Column("SEGMENTS (x expired, # clean, t tombstones, + dirty, . not yet, > active)"),
            ],
            [
                (
                    str(surveyed.log.partition),
                    "yes" if surveyed.assessment.is_eligible else "no",
                    f"{surveyed.assessment.reason.value}: {surveyed.assessment.explanation}",
                    output.format_size(surveyed.assessment.clean_bytes),
                    output.format_size(surveyed.assessment.dirty_bytes),
                    f"{surveyed.assessment.dirty_ratio:.2f}",
                    str(surveyed.waiting.count),
                    draw_segments(surveyed),
                )
                for surveyed in survey.logs
            ]
            + [
                (str(partition), "no", f"{Reason.UNCLEANABLE.value}: {error}", *"-----")
                for partition, error in survey.failures
            ],
        )
        _print_retention(survey.retention_plans())
    if survey.failures:
        raise typer.Exit(1)


def _print_retention(plans: Sequence[RetentionPlan]) -> None:
    """List the segments that go, each with the number that decided."""
    if not plans:
        return
    output.print_line("")
    print_table(
        [
            Column("PARTITION"),
            Column("EXPIRED SEGMENT", is_number=True),
            Column("UP TO OFFSET", is_number=True),
            Column("SIZE", is_number=True),
            Column("WHY"),
        ],
        [
            (
                str(plan.partition),
                str(removal.source.base_offset),
                str(removal.end_offset),
                output.format_size(removal.source.size_bytes),
                f"{removal.rule}: {removal.explanation}",
            )
            for plan in plans
            for removal in plan.removals
        ],
    )
