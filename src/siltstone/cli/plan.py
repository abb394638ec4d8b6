"""`silt plan`: which logs are due for a pass, and why each of the others is not."""

import typer

from siltstone.cleaner.survey import survey_logs
from siltstone.cli import output
from siltstone.cli.cleaning import (
    IgnoreRatio,
    Now,
    Topics,
    describe_surveyed,
    draw_segments,
    find_partitions,
)
from siltstone.cli.logs import open_reader
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.cli.tables import Column, print_table
from siltstone.clock import SystemClock

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def plan(
    topics: Topics = None,
    now: Now = None,
    ignore_ratio: IgnoreRatio = False,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Explain for every partition whether a pass is due, with the number that decided."""
    reader = open_reader(log_dir, config)
    now_ms = SystemClock().now_ms() if now is None else now
    survey = survey_logs(
        reader, find_partitions(reader, topics), now_ms, ignores_ratio=ignore_ratio
    )
    for partition, error in survey.failures:
        output.print_message(f"silt: warning: {partition} cannot be cleaned: {error}")
    if output_format is OutputFormat.JSON:
        output.print_json_list([describe_surveyed(surveyed) for surveyed in survey.logs])
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
                Column("SEGMENTS (# clean, + dirty, . not yet, > active)"),
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
            ],
        )
    if survey.failures:
        raise typer.Exit(1)
