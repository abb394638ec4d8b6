"""`silt count`: records, live keys and tombstones, counted and not guessed from offsets."""

from dataclasses import asdict
from typing import Annotated, Final

import typer

from siltstone.cli import output
from siltstone.cli.logs import open_reader, select_partitions
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.cli.relay import BootstrapServer, relay
from siltstone.cli.tables import Column, print_table
from siltstone.table.request import ViewRequest
from siltstone.table.scanning import describe
from siltstone.table.snapshot import open_snapshot
from siltstone.table.views import count_keys

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COUNTS: Final = ("records", "live_keys", "tombstones", "keyless")
_OFFSETS: Final = ("log_start_offset", "first_offset", "end_offset", "consistent_from")


@app.command()
def count(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", help="One partition.", min=0)
    ] = None,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Count what a consumer of committed records gets: offsets say little of a compacted log.

    A live key has a value; a tombstone is a deleted key whose deletion is still in the log. The
    first offset is that of the first record which is left, at or after the start of the log.
    """
    if bootstrap_server is not None:
        relay(bootstrap_server)
        return
    reader = open_reader(log_dir, config)
    rows = []
    for chosen in select_partitions(reader, topic, partition):
        counts, bounds = count_keys(open_snapshot(reader, chosen), ViewRequest())
        rows.append({**describe(bounds), **asdict(counts)})
    totals = {name: sum(row[name] for row in rows) for name in _COUNTS}
    if output_format is OutputFormat.JSON:
        output.print_json({"topic": topic, **totals, "partitions": rows})
        return
    names = ("partition", *_COUNTS, *_OFFSETS)
    columns = [Column(name.replace("_", " ").upper(), is_number=True) for name in names]
    lines = [["" if row[name] is None else str(row[name]) for name in names] for row in rows]
    lines.append(["all", *(str(totals[name]) for name in _COUNTS), *("" for _ in _OFFSETS)])
    print_table(columns, lines)
