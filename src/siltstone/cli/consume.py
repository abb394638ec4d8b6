"""`silt consume`: the records of a topic, with kcat's options."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import typer

from siltstone.cli import output
from siltstone.cli.isolation import ISOLATIONS, IsolationLevel
from siltstone.cli.kcat import (
    ConsumedRecord,
    Format,
    StartKind,
    escape_percent,
    parse_delimiter,
    parse_range,
    to_json,
)
from siltstone.cli.logs import open_reader, open_remote, select_partitions
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.cli.record_stream import FileStream, PartitionStream
from siltstone.cli.relay import BootstrapServer
from siltstone.cli.remote_stream import RemoteStream
from siltstone.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_POLL_SECONDS: Final = 0.2

Print = Callable[[ConsumedRecord], None]


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    partition: Annotated[
        int | None, typer.Option("-p", metavar="N", help="Partition; all if not given.", min=0)
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            metavar="OFFSET",
            help="Where to begin: beginning, end, N, -N (that many before the end), or s@MS (a "
            "time). Also e@MS: the time to stop at.",
            show_default="beginning",
        ),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", help="Exit at the end instead of waiting for more.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("-c", metavar="N", help="Exit after so many records.", min=1)
    ] = None,
    record_format: Annotated[
        str | None,
        typer.Option(
            "-f",
            metavar="FORMAT",
            help=r"Print records like this, with their bytes as they are: %s value, %S its length, "
            r"%R its length as 4 bytes, %k key, %K its length, %T timestamp, %h headers, %t topic, "
            r"%p partition, %o offset; \n \r \t \xNN.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("-J", help="Print a JSON object per record.")] = False,
    key_delimiter: Annotated[
        str | None, typer.Option("-K", metavar="DELIM", help="Print keys too, with this behind.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("-D", metavar="DELIM", help="What to print after each record.")
    ] = r"\n",
    shows_null: Annotated[bool, typer.Option("-Z", help="With -f, print null as NULL.")] = False,
    isolation_level: Annotated[
        IsolationLevel,
        typer.Option("--isolation-level", help="Whether to leave out what was not committed."),
    ] = IsolationLevel.READ_COMMITTED,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Print the records of a topic, and wait for more unless told to exit.

    Takes no lock and changes nothing. Keys and values are printed as text, or as 0x... where they
    are not UTF-8, and null as null; -f prints them as they are.
    """
    if as_json and record_format is not None:
        raise UsageError("-J and -f exclude each other")
    wanted = parse_range(offset or [])
    if as_json or output_format is OutputFormat.JSON:
        print_record: Print = _print_json
    else:
        print_record = _printer(
            _parse_format(record_format, key_delimiter, delimiter, shows_null=shows_null)
        )

    isolation = ISOLATIONS[isolation_level]
    with contextlib.ExitStack() as stack:
        streams: list[PartitionStream] = []
        if bootstrap_server is None:
            reader = open_reader(log_dir, config)
            for chosen in select_partitions(reader, topic, partition):
                streams.append(FileStream(reader, chosen, wanted, isolation))
        else:
            remote = stack.enter_context(open_remote(bootstrap_server, config))
            for chosen in select_partitions(remote, topic, partition):
                streams.append(RemoteStream(remote.get_log(chosen), wanted, isolation))
        for stream in streams:
            if wanted.start is StartKind.OFFSET and stream.next_offset != wanted.value:
                output.print_message(
                    f"{stream.partition} has no offset {wanted.value}: "
                    f"starting at {stream.next_offset}"
                )
        _run(streams, print_record, count, follows=not exit_at_end)


def _run(
    streams: Sequence[PartitionStream], print_record: Print, count: int | None, *, follows: bool
) -> None:
    left = -1 if count is None else count
    while streams:
        at_end = True
        for stream in streams:
            records = stream.read()
            if records is None:
                continue
            at_end = False
            for record in records:
                print_record(record)
                left -= 1
                if left == 0:
                    return
        streams = [stream for stream in streams if not stream.is_done]
        if at_end:
            if not follows:
                return
            output.flush()
            time.sleep(_POLL_SECONDS)


def _parse_format(
    text: str | None, key_delimiter: str | None, delimiter: str, *, shows_null: bool
) -> Format:
    if text is not None:
        return Format(text, shows_null=shows_null)
    value_format = f"%s{escape_percent(delimiter)}"
    if key_delimiter is None:
        return Format(value_format, readable=True)
    parse_delimiter("-K", key_delimiter)
    return Format(f"%k{escape_percent(key_delimiter)}{value_format}", readable=True)


def _printer(record_format: Format) -> Print:
    return lambda record: output.write(record_format.render(record))


def _print_json(record: ConsumedRecord) -> None:
    output.print_json(to_json(record))
