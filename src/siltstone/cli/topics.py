"""`silt topics`: create, list, describe, alter and delete topics, with Kafka's option names."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

import typer

from siltstone.cli import output
from siltstone.cli.command_group import CommandGroup
from siltstone.cli.logs import check_topic, open_owner, open_reader
from siltstone.cli.options import LogDirs, Output, Overrides, parse_config
from siltstone.cli.output import OutputFormat, format_size, format_time
from siltstone.cli.relay import BootstrapServer, relay
from siltstone.cli.tables import Column, print_table
from siltstone.errors import TopicExistsError, UnknownTopicError, UsageError
from siltstone.ids import TopicPartition, is_internal_topic
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.log.topic_store import TopicMetadata

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    rich_markup_mode=None,
    help="Create, list, describe, alter and delete topics.",
)

_DEFAULT_PARTITIONS: Final = 1
_REPLICATION_FACTOR: Final = 1  # a log directory holds one copy
_DEFAULT_FACTOR: Final = -1  # "what the broker says", to Kafka's tools

Topic: TypeAlias = Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic.")]
Topics: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC", help="Topics; all if none is named.")
]
TopicOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--topic", metavar="TOPIC", help="The topic, as Kafka's tools take it."),
]
TopicConfig: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="Setting of the topic; may be repeated."),
]
ExcludeInternal: TypeAlias = Annotated[
    bool, typer.Option("--exclude-internal", help="Leave out the topics of brokers themselves.")
]
IfExists: TypeAlias = Annotated[
    bool, typer.Option("--if-exists", help="Do nothing if there is no such topic.")
]


@app.command()
def create(
    topic: Topic = None,
    topic_option: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="Number of partitions; 1 if not given.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", help="1: a directory holds one copy.")
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment",
            metavar="ID,ID,...",
            help="One broker id per partition, instead of --partitions.",
        ),
    ] = None,
    config: TopicConfig = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic is there.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Create a topic, and the log directory if it is not there."""
    name = _one_topic(topic, topic_option)
    check_topic(name)
    count = _partition_count(partitions, replication_factor, replica_assignment)
    settings = parse_config(config)
    with open_owner(bootstrap_server, log_dir, create=True) as owner:
        try:
            metadata = owner.create_topic(name, count, settings)
        except TopicExistsError:
            if not if_not_exists:
                raise
            _print_topic(owner.describe(name), f"Topic {name} already exists.", output_format)
            return
    _print_topic(metadata, f"Created topic {name}.", output_format)


@app.command("list")
def list_topics(
    exclude_internal: ExcludeInternal = False,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """List topics."""
    if bootstrap_server is not None:
        relay(bootstrap_server)
        return
    reader = open_reader(log_dir, config)
    topics = _select(reader, (), exclude_internal=exclude_internal)
    if output_format is OutputFormat.JSON:
        output.print_json({"topics": [_to_json(metadata) for metadata in topics]})
        return
    rows = [
        [t.topic, str(t.partition_count), reader.config(t.topic).to_strings()["cleanup.policy"]]
        for t in topics
    ]
    columns = [Column("TOPIC"), Column("PARTITIONS", is_number=True), Column("CLEANUP POLICY")]
    print_table(columns, rows)


@app.command()
def describe(
    topics: Topics = None,
    topic_option: TopicOption = None,
    exclude_internal: ExcludeInternal = False,
    if_exists: IfExists = False,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Show the settings of topics, and how much is in their partitions."""
    if bootstrap_server is not None:
        relay(bootstrap_server)
        return
    reader = open_reader(log_dir, config)
    names = [*(topics or []), *([topic_option] if topic_option else [])]
    if if_exists and names:
        known = {metadata.topic for metadata in reader.topics()}
        names = [name for name in names if name in known]
        if not names:
            return
    chosen = _select(reader, names, exclude_internal=exclude_internal)
    if output_format is OutputFormat.JSON:
        output.print_json({"topics": [_describe(reader, metadata) for metadata in chosen]})
        return
    for number, metadata in enumerate(chosen):
        if number:
            output.print_line("")
        _print_description(_describe(reader, metadata))


@app.command()
def alter(
    topic: Topic = None,
    topic_option: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="New number of partitions; it only grows.")
    ] = None,
    config: TopicConfig = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Setting to put back to its default."),
    ] = None,
    if_exists: IfExists = False,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Change the settings of a topic, or give it more partitions."""
    name = _one_topic(topic, topic_option)
    settings = parse_config(config)
    if partitions is None and not settings and not delete_config:
        raise UsageError("nothing to alter: give --partitions, --config or --delete-config")
    with open_owner(bootstrap_server, log_dir) as owner:
        try:
            metadata = owner.describe(name)
        except UnknownTopicError:
            if if_exists:
                return
            raise
        # Settings first: they are refused before a partition is made that nobody can take back.
        if settings or delete_config:
            metadata = owner.alter_topic(name, settings, delete_config or ())
        if partitions is not None:
            metadata = owner.add_partitions(name, partitions)
    _print_topic(metadata, f"Altered topic {name}.", output_format)


@app.command()
def delete(
    topic: Topic = None,
    topic_option: TopicOption = None,
    if_exists: IfExists = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Delete a topic with all of its records; asks first on a terminal."""
    name = _one_topic(topic, topic_option)
    with open_owner(bootstrap_server, log_dir) as owner:
        try:
            metadata = owner.describe(name)
        except UnknownTopicError:
            if if_exists:
                return
            raise
        if not yes and sys.stdin.isatty():
            question = f"Delete topic {name} with all of its records?"
            if not typer.confirm(question, err=True):
                raise typer.Exit(1)
        owner.delete_topic(name)
    _print_topic(metadata, f"Deleted topic {name}.", output_format)


def _one_topic(argument: str | None, option: str | None) -> str:
    if (argument is None) == (option is None):
        raise UsageError("name one topic: TOPIC or --topic TOPIC")
    return argument or option or ""


def _partition_count(
    partitions: int | None, replication_factor: int | None, replica_assignment: str | None
) -> int:
    if replica_assignment is None:
        if replication_factor not in (None, _DEFAULT_FACTOR, _REPLICATION_FACTOR):
            raise UsageError(
                f"--replication-factor {replication_factor}: a log directory holds one copy, use 1"
            )
        return _DEFAULT_PARTITIONS if partitions is None else partitions
    if partitions is not None or replication_factor is not None:
        raise UsageError(
            "--replica-assignment excludes --partitions and --replication-factor: it implies both"
        )
    replicas = replica_assignment.split(",")
    for replica in replicas:
        if not replica.strip().isdecimal():
            raise UsageError(
                f"--replica-assignment {replica_assignment}: a log directory holds one copy, "
                "give one broker id per partition"
            )
    return len(replicas)


def _select(
    reader: LogReader, names: Sequence[str], *, exclude_internal: bool
) -> list[TopicMetadata]:
    topics = [reader.describe(name) for name in names] if names else reader.topics()
    if exclude_internal:
        topics = [t for t in topics if not is_internal_topic(t.topic)]
    return topics


def _to_json(metadata: TopicMetadata) -> dict[str, Any]:
    return {
        "topic": metadata.topic,
        "topic_id": str(metadata.topic_id),
        "partition_count": metadata.partition_count,
        "replication_factor": _REPLICATION_FACTOR,
        "config": dict(sorted(metadata.config.items())),
    }


def _print_topic(metadata: TopicMetadata, text: str, output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        output.print_json(_to_json(metadata))
    else:
        output.print_line(text)


def _describe(reader: LogReader, metadata: TopicMetadata) -> dict[str, Any]:
    partitions = [
        _describe_log(reader.get_log(TopicPartition(metadata.topic, number)))
        for number in reader.partitions(metadata.topic)
    ]
    effective = reader.config(metadata.topic).to_strings()
    return {**_to_json(metadata), "effective_config": effective, "partitions": partitions}


def _describe_log(log: PartitionLog) -> dict[str, Any]:
    newest = max((segment.max_timestamp.timestamp_ms for segment in log.segments), default=-1)
    return {
        "partition": log.partition.partition,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
        "segment_count": len(log.segments),
        "size_bytes": log.size_bytes,
        "max_timestamp_ms": newest,
        "log_dir": str(log.directory.parent),
    }


def _print_description(topic: dict[str, Any]) -> None:
    configs = ",".join(f"{name}={value}" for name, value in topic["config"].items())
    output.print_line(
        f"Topic: {topic['topic']}  TopicId: {topic['topic_id']}  "
        f"PartitionCount: {topic['partition_count']}  "
        f"ReplicationFactor: {topic['replication_factor']}  Configs: {configs}".rstrip()
    )
    numbers = ("log_start_offset", "last_stable_offset", "log_end_offset", "segment_count")
    rows = [
        [
            str(partition["partition"]),
            *(str(partition[name]) for name in numbers),
            format_size(partition["size_bytes"]),
            format_time(partition["max_timestamp_ms"]),
            partition["log_dir"],
        ]
        for partition in topic["partitions"]
    ]
    headers = ("PARTITION", "LOG START", "LAST STABLE", "LOG END", "SEGMENTS", "SIZE")
    columns = [Column(header, is_number=True) for header in headers]
    print_table([*columns, Column("NEWEST RECORD"), Column("LOG DIR")], rows)
