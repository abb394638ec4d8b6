"""`silt get`: the last value of one key."""

import base64
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from siltstone.cli import output
from siltstone.cli.described import to_json
from siltstone.cli.logs import open_reader, select_partitions
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat, format_bytes
from siltstone.cli.relay import BootstrapServer, relay
from siltstone.errors import KeyNotLiveError, UsageError
from siltstone.log.log_reader import LogReader
from siltstone.table.decoding import encode_avro
from siltstone.table.table import Table

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class KeyFormat(StrEnum):
    """How the bytes of a key are written on the command line."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    JSON = "json"
    AVRO_CONFLUENT = "avro-confluent"


@app.command()
def get(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, in its --key-format.")],
    key_format: Annotated[
        KeyFormat,
        typer.Option(
            "--key-format",
            help="How KEY is written. JSON is looked for without blanks; Avro is given as JSON, "
            "with --key-schema and --key-schema-id.",
        ),
    ] = KeyFormat.TEXT,
    key_schema: Annotated[
        Path | None, typer.Option("--key-schema", metavar="FILE", help="Avro schema of the key.")
    ] = None,
    key_schema_id: Annotated[
        int | None, typer.Option("--key-schema-id", metavar="N", help="Its number in the registry.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", metavar="N", help="Where to look, not by partitioner.", min=0
        ),
    ] = None,
    all_partitions: Annotated[
        bool, typer.Option("--all-partitions", help="Look in all partitions; print each value.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Print the last committed value of a key.

    Exits with 1 if the key was never seen or was deleted, and says which. Looks in the partition
    where Java's partitioner puts the key, unless told otherwise.
    """
    data = _encode_key(key, key_format, key_schema, key_schema_id)
    if bootstrap_server is not None:
        words = [topic, "--key-format", KeyFormat.BASE64, "--output", output_format]
        words += [] if partition is None else ["--partition", str(partition)]
        words += ["--all-partitions"] if all_partitions else []
        words += [word for pair in config or [] for word in ("--config", pair)]
        # The key comes last, behind what says that no more options do: it may look like one.
        relay(bootstrap_server, ["get", *words, "--", base64.b64encode(data).decode()])
        return
    print_value(
        open_reader(log_dir, config),
        topic,
        data,
        partition=partition,
        all_partitions=all_partitions,
        output_format=output_format,
    )


def print_value(
    reader: LogReader,
    topic: str,
    key: bytes,
    *,
    partition: int | None = None,
    all_partitions: bool = False,
    output_format: OutputFormat = OutputFormat.TEXT,
) -> None:
    """Look a key up and print what was found; raise KeyNotLiveError if it has no value."""
    if partition is not None and all_partitions:
        raise UsageError("--partition and --all-partitions exclude each other")
    select_partitions(reader, topic, partition)
    table = Table(reader, topic)
    numbers: Sequence[int] = table.partitions
    if not all_partitions:
        numbers = [table.partition_of(key) if partition is None else partition]
    found = [record for n in numbers if (record := table.find(key, partition=n)) is not None]
    live = [record for record in found if not record.is_tombstone]
    if not live:
        place = topic if all_partitions else f"{topic}-{numbers[0]}"
        deleted_at = found[0].offset if found else None
        raise KeyNotLiveError(format_bytes(key), place, deleted_at)
    for record in live:
        if output_format is OutputFormat.JSON:
            output.print_json(to_json(topic, record))
        else:
            output.print_line(format_bytes(record.value))


def _encode_key(
    key: str, key_format: KeyFormat, key_schema: Path | None, key_schema_id: int | None
) -> bytes:
    try:
        match key_format:
            case KeyFormat.TEXT:
                return key.encode("utf-8", "surrogateescape")
            case KeyFormat.HEX:
                return bytes.fromhex(key.removeprefix("0x"))
            case KeyFormat.BASE64:
                return base64.b64decode(key, validate=True)
            case KeyFormat.JSON:
                return json.dumps(
                    json.loads(key), ensure_ascii=False, separators=(",", ":")
                ).encode()
            case KeyFormat.AVRO_CONFLUENT:
                if key_schema is None or key_schema_id is None:
                    raise UsageError(
                        "--key-format avro-confluent needs --key-schema and --key-schema-id"
                    )
                schema = json.loads(key_schema.read_text("utf-8"))
                return encode_avro(json.loads(key), key_schema_id, schema)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        # An Avro library says in many ways that a value is not of its schema.
        raise UsageError(f"{key} is no key in {key_format}: {error}") from None
