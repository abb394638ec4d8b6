"""`silt scan`: a topic as a table, in one of its views."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from siltstone.cli import output
from siltstone.cli.as_of import resolve_as_of
from siltstone.cli.described import to_json
from siltstone.cli.isolation import ISOLATIONS, IsolationLevel
from siltstone.cli.logs import open_reader, select_partitions
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat, format_bytes, format_time
from siltstone.cli.relay import BootstrapServer, relay
from siltstone.errors import UsageError
from siltstone.records.batch import TimestampType
from siltstone.table.request import View, ViewRequest
from siltstone.table.scanning import TableView, describe, read_table
from siltstone.table.table import TableRecord

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COLUMNS: Final = ("PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE")


@app.command()
def scan(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    view: Annotated[
        View,
        typer.Option(
            "--view",
            help="latest: the last value of each key. changes: the last value or tombstone of each "
            "key changed since an offset. log: every record.",
        ),
    ] = View.LATEST,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="OFFSET", help="Where changes and log begin.", min=0),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="POINT",
            help='The state before an offset (N, or {"0":N} by partition), or at a time (@MS, or '
            "2026-01-31T12:00:00Z): exact, or refused with the first offset at which it would be.",
        ),
    ] = None,
    key_prefix: Annotated[
        str, typer.Option("--filter", metavar="PREFIX", help="Only keys that begin like this.")
    ] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="So many records at most.", min=1)
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", help="One partition.", min=0)
    ] = None,
    include_tombstones: Annotated[
        bool, typer.Option("--include-tombstones", help="Show deleted keys too, with null.")
    ] = False,
    isolation_level: Annotated[
        IsolationLevel | None,
        typer.Option(
            "--isolation-level",
            help="Whether to leave out what was not committed.",
            show_default="read_uncommitted for log, else read_committed",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Print a topic as a table, by partition and offset.

    JSON begins with a line that holds the bounds: where each partition ends, and from which offset
    on its states are consistent; then comes a line per record.
    """
    if since is not None and view is View.LATEST:
        raise UsageError("--since is for --view changes and --view log")
    if bootstrap_server is not None:
        relay(bootstrap_server)
        return
    reader = open_reader(log_dir, config)
    partitions = select_partitions(reader, topic, partition)
    request = ViewRequest(
        view=view,
        start_offset=since,
        isolation=None if isolation_level is None else ISOLATIONS[isolation_level],
        include_tombstones=include_tombstones,
        include_headers=output_format is OutputFormat.JSON,
        key_prefix=key_prefix.encode("utf-8", "surrogateescape"),
    )
    ends = resolve_as_of(reader, partitions, as_of)
    found = read_table(reader, topic, request, [p.partition for p in partitions], ends)
    if output_format is OutputFormat.JSON:
        output.print_json({"view": view.value, "bounds": [describe(b) for b in found.bounds]})
        for record in _iter_records(found, limit):
            output.print_json(to_json(topic, record))
        return
    output.print_line("\t".join(_COLUMNS))
    for record in _iter_records(found, limit):
        place = (str(record.partition), str(record.offset), format_time(record.timestamp_ms))
        output.print_line("\t".join((*place, format_bytes(record.key), format_bytes(record.value))))


def _iter_records(view: TableView, limit: int | None) -> Iterator[TableRecord]:
    left = -1 if limit is None else limit
    for batch in view.iter_batches():
        columns: dict[str, list[Any]] = {
            name: batch.column(name).to_pylist()
            for name in ("key", "value", "partition", "offset", "timestampType")
        }
        columns["timestamp"] = batch.column("timestamp").cast("int64").to_pylist()
        headers: list[Any] = [()] * batch.num_rows
        if "headers" in batch.schema.names:
            headers = batch.column("headers").to_pylist()
        for number in range(batch.num_rows):
            yield TableRecord(
                columns["key"][number],
                columns["value"][number],
                columns["partition"][number],
                columns["offset"][number],
                columns["timestamp"][number],
                TimestampType(columns["timestampType"][number]),
                tuple((header["key"], header["value"]) for header in headers[number]),
            )
            left -= 1
            if left == 0:
                return
