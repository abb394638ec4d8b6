"""`silt export`: the last value of each key as Parquet or Iceberg."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from siltstone.cli import output
from siltstone.cli.logs import open_reader, select_partitions
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.table.export import export_parquet
from siltstone.table.iceberg import export_iceberg

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class ExportFormat(StrEnum):
    """What to write."""

    PARQUET = "parquet"
    ICEBERG = "iceberg"


@app.command()
def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The directory to write to.")],
    to: Annotated[ExportFormat, typer.Option("--to", help="The format.")] = ExportFormat.PARQUET,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Write the last value of each key, with the offsets that it goes up to.

    Again to the same directory: only what has changed since is written.
    """
    reader = open_reader(log_dir, config)
    numbers = [partition.partition for partition in select_partitions(reader, topic, None)]
    run = export_parquet if to is ExportFormat.PARQUET else export_iceberg
    result = run(reader, topic, numbers, path)
    if output_format is OutputFormat.JSON:
        output.print_json(
            {
                "topic": topic,
                "path": str(path),
                "format": to.value,
                "rows_changed": result.rows_changed,
                "files_written": result.files_written,
                "end_offsets": {str(n): offset for n, offset in result.end_offsets.items()},
            }
        )
    else:
        output.print_line(f"{result.rows_changed} changed rows of {topic} written to {path}")
