"""`silt produce`: records from standard input or files, with kcat's options."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Final

import typer

from siltstone.cli import output
from siltstone.cli.command_group import did_you_mean
from siltstone.cli.kcat import parse_delimiter, parse_header
from siltstone.cli.logs import check_topic, open_owner
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat, format_size
from siltstone.cli.record_batches import (
    AppendedLog,
    ByKey,
    Fixed,
    PartitionChooser,
    TopicWriter,
)
from siltstone.cli.record_input import InputFormat, iter_pieces, open_file, read_files
from siltstone.cli.relay import BootstrapServer
from siltstone.clock import SystemClock
from siltstone.errors import StorageError, UsageError
from siltstone.ids import TopicPartition
from siltstone.records.compression import Codec
from siltstone.records.partitioner import DEFAULT_PARTITIONER, PARTITIONERS

if TYPE_CHECKING:
    from siltstone.cli.remote_topics import RemoteTopics
    from siltstone.log.log_manager import LogManager

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_ANY_PARTITION: Final = -1  # kcat's way to say: let the partitioner choose
_JAVA: Final = "java"  # the default, by the name that people look for


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic; it must be there.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Files instead of standard input, each one record unless -l is given.",
        ),
    ] = None,
    partition: Annotated[
        int,
        typer.Option(
            "-p", metavar="N", help="Partition for all records; -1: by key.", min=_ANY_PARTITION
        ),
    ] = _ANY_PARTITION,
    delimiter: Annotated[
        str, typer.Option("-D", metavar="DELIM", help="What stands between records.")
    ] = r"\n",
    key_delimiter: Annotated[
        str | None, typer.Option("-K", metavar="DELIM", help="What stands between key and value.")
    ] = None,
    fixed_key: Annotated[
        str | None, typer.Option("-k", metavar="KEY", help="Key of records that bring none.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "-H", metavar="NAME=VALUE", help="Header for all records; NAME alone: null. Repeatable."
        ),
    ] = None,
    empty_is_null: Annotated[
        bool,
        typer.Option("-Z", help="With -K, an empty value is null: a tombstone. An empty key too."),
    ] = False,
    codec: Annotated[
        str,
        typer.Option("-z", metavar="CODEC", help="Compress with gzip, snappy, lz4 or zstd."),
    ] = Codec.NONE.label,
    count: Annotated[
        int | None, typer.Option("-c", metavar="N", help="Exit after so many records.", min=1)
    ] = None,
    splits_files: Annotated[
        bool, typer.Option("-l", help="Take files apart at the delimiter, like standard input.")
    ] = False,
    partitioner: Annotated[
        str,
        typer.Option(
            "--partitioner",
            metavar="NAME",
            help=f"How keys find their partition: {_JAVA} ({DEFAULT_PARTITIONER}), or "
            f"librdkafka's {', '.join(PARTITIONERS)}.",
        ),
    ] = _JAVA,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Append records from standard input or files to a topic.

    Empty lines are left out. All records are durable when the command ends, or earlier, where the
    input pauses; through a broker, they are acknowledged by then.
    """
    check_topic(topic)
    input_format = InputFormat(
        delimiter=parse_delimiter("-D", delimiter),
        key_delimiter=None if key_delimiter is None else parse_delimiter("-K", key_delimiter),
        fixed_key=None if fixed_key is None else os.fsencode(fixed_key),
        empty_is_null=empty_is_null,
    )
    parsed_headers = tuple(parse_header(header) for header in headers or [])
    parsed_codec = _parse_codec(codec)
    partitioner_name = _parse_partitioner(partitioner)

    with open_owner(bootstrap_server, log_dir, config) as owner:
        logs = _open_logs(owner, topic, partition)
        chooser: PartitionChooser = (
            ByKey(len(logs), partitioner_name, Random())
            if partition == _ANY_PARTITION
            else Fixed(partition)
        )
        writer = TopicWriter(logs, chooser, parsed_codec, parsed_headers, SystemClock())
        pieces = _iter_input(files or [], input_format.delimiter, splits_files=splits_files)
        try:
            _write(writer, pieces, input_format, count)
        except BaseException:
            # Some of it may be in the log for good.
            if writer.results:
                _print_results(topic, writer, output_format)
            raise
        _print_results(topic, writer, output_format)


def _open_logs(
    owner: "LogManager | RemoteTopics", topic: str, partition: int
) -> dict[int, AppendedLog]:
    """Return the logs to write to by partition: one, or all, for a key may belong to any."""
    if partition != _ANY_PARTITION:
        return {partition: owner.get_log(TopicPartition(topic, partition))}
    partition_count = owner.describe(topic).partition_count
    numbers = owner.partitions(topic)
    if len(numbers) < partition_count:
        raise StorageError(
            f"only {len(numbers)} of the {partition_count} partitions of topic {topic} are here: "
            "name every log directory with --log-dir"
        )
    return {number: owner.get_log(TopicPartition(topic, number)) for number in numbers}


def _write(
    writer: TopicWriter,
    pieces: Iterable[bytes | None],
    input_format: InputFormat,
    count: int | None,
) -> None:
    try:
        for piece in pieces:
            if piece is None:
                writer.flush()
                continue
            writer.send(input_format.parse(piece))
            if writer.record_count == count:
                break
    except KeyboardInterrupt:
        writer.flush()  # what was typed before counts
        raise
    writer.flush()


def _iter_input(
    files: Sequence[Path], delimiter: bytes, *, splits_files: bool
) -> Iterator[bytes | None]:
    if not files:
        yield from iter_pieces(output.stdin(), delimiter)
    elif not splits_files:
        yield from read_files(files)
    else:
        for path in files:
            with open_file(path) as file:
                yield from iter_pieces(file, delimiter)


def _parse_codec(name: str) -> Codec:
    try:
        return Codec.parse(name)
    except ValueError as error:
        raise UsageError(f"-z: {error}") from error


def _parse_partitioner(name: str) -> str:
    if name == _JAVA:
        return DEFAULT_PARTITIONER
    if name not in PARTITIONERS:
        known = [_JAVA, *PARTITIONERS]
        hint = did_you_mean(name, known) or f": use one of {', '.join(known)}"
        raise UsageError(f"unknown partitioner {name}{hint}")
    return name


def _print_results(topic: str, writer: TopicWriter, output_format: OutputFormat) -> None:
    results = sorted(writer.results.values(), key=lambda result: result.partition)
    record_count = sum(result.record_count for result in results)
    size_bytes = sum(result.size_bytes for result in results)
    if output_format is OutputFormat.JSON:
        output.print_json(
            {
                "topic": topic,
                "record_count": record_count,
                "size_bytes": size_bytes,
                "partitions": [dataclasses.asdict(result) for result in results],
            }
        )
        return
    places = ", ".join(
        f"partition {result.partition} offsets {result.first_offset} to {result.last_offset}"
        for result in results
    )
    output.print_message(
        f"{record_count} record{'' if record_count == 1 else 's'} "
        f"({format_size(size_bytes)}) appended to {topic}{': ' if places else ''}{places}"
    )
