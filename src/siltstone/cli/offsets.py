"""`silt offsets`: the offsets of partitions, as Kafka's get-offsets prints them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from siltstone.cli import output
from siltstone.cli.logs import open_reader
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.errors import UnknownTopicError, UsageError
from siltstone.ids import TopicPartition, is_internal_topic, is_legal_topic
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.log.time_index import TimestampOffset
from siltstone.records.layout import NO_TIMESTAMP

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_RULE: Final = re.compile(r"(?P<topic>[^:,]*)(?::(?P<partitions>[0-9]+|[0-9]*-[0-9]*))?")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_TIMES: Final = "latest (-1), earliest (-2), max-timestamp (-3) or milliseconds since 1970"

FindOffset = Callable[[PartitionLog], TimestampOffset | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """Which partitions are meant: a regular expression for the topic, and a range."""

    topic: str
    first_partition: int = 0
    end_partition: int | None = None  # not included; None: no end

    def matches(self, partition: TopicPartition) -> bool:
        """Say whether a partition is meant."""
        if self.topic and re.fullmatch(self.topic, partition.topic) is None:
            return False
        number = partition.partition
        return self.first_partition <= number and (
            self.end_partition is None or number < self.end_partition
        )


@app.command()
def offsets(
    topic_argument: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="The topic; all if none is named.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="REGEX", help="The topics, as a regular expression."),
    ] = None,
    topic_partitions: Annotated[
        str | None,
        typer.Option(
            "--topic-partitions",
            metavar="TOPIC:N,TOPIC:N-M,...",
            help="Topics with a partition, or a range whose end is not included: "
            "t1:1,t2:0-3,t3,t4:5-,t5:-3.",
        ),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option("--partitions", metavar="N,N,...", help="Partitions; all if none is named."),
    ] = None,
    time: Annotated[str, typer.Option("--time", metavar="TIME", help=f"{_TIMES}.")] = "latest",
    exclude_internal: Annotated[
        bool,
        typer.Option(
            "--exclude-internal-topics", help="Leave out the topics of brokers themselves."
        ),
    ] = False,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Print the offsets of partitions, by time or at their ends, as topic:partition:offset.

    With a time: the first record that is not older. Partitions without one are left out.
    """
    if topic_argument is not None and topic is not None:
        raise UsageError("TOPIC and --topic exclude each other")
    name = topic_argument or topic or ""
    if topic_partitions is not None and (name or partitions is not None):
        raise UsageError("--topic-partitions excludes --topic and --partitions")
    find_offset = parse_time(time)
    if topic_partitions is not None:
        rules = parse_rules(topic_partitions)
    else:
        rules = [_checked(Rule(name, *span)) for span in _parse_partitions(partitions)]

    reader = open_reader(log_dir, config)
    chosen = _choose(reader, rules, exclude_internal=exclude_internal)
    found = [(partition, find_offset(reader.get_log(partition))) for partition in chosen]
    if output_format is OutputFormat.JSON:
        documents = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": entry.offset,
                "timestamp_ms": entry.timestamp_ms,
            }
            for partition, entry in found
            if entry is not None
        ]
        output.print_json({"offsets": documents})
        return
    for partition, entry in found:
        if entry is not None:
            output.print_line(f"{partition.topic}:{partition.partition}:{entry.offset}")


def parse_time(text: str) -> FindOffset:
    """Return how to find the offset that a time stands for."""
    match text:
        case "latest" | "-1":
            return lambda log: TimestampOffset(NO_TIMESTAMP, log.high_watermark)
        case "earliest" | "-2":
            return lambda log: TimestampOffset(NO_TIMESTAMP, log.log_start_offset)
        case "max-timestamp" | "-3":
            return lambda log: log.find_max_timestamp()
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"--time {text}: use {_TIMES}")
    target_ms = int(text)
    return lambda log: log.find_offset_by_timestamp(target_ms)


def parse_rules(text: str) -> list[Rule]:
    """Parse `--topic-partitions`: patterns with commas between."""
    return [_parse_rule(item) for item in text.split(",")]


def _parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None or match["partitions"] == "-":
        raise UsageError(f"--topic-partitions {text}: write TOPIC, TOPIC:N or TOPIC:N-M")
    numbers = match["partitions"]
    if numbers is None:
        return _checked(Rule(match["topic"]))
    first, dash, end = numbers.partition("-")
    if not dash:
        return _checked(Rule(match["topic"], int(first), int(first) + 1))
    return _checked(Rule(match["topic"], int(first or 0), int(end) if end else None))


def _parse_partitions(text: str | None) -> list[tuple[int, int | None]]:
    if text is None:
        return [(0, None)]
    numbers = text.split(",")
    if not all(number.isdecimal() and number.isascii() for number in numbers):
        raise UsageError(f"--partitions {text}: write numbers with commas between")
    return [(int(number), int(number) + 1) for number in numbers]


def _checked(rule: Rule) -> Rule:
    try:
        re.compile(rule.topic)
    except re.error as error:
        raise UsageError(f"{rule.topic} is not a regular expression: {error}") from error
    return rule


def _choose(
    reader: LogReader, rules: Sequence[Rule], *, exclude_internal: bool
) -> list[TopicPartition]:
    known = [
        TopicPartition(metadata.topic, number)
        for metadata in reader.topics()
        for number in reader.partitions(metadata.topic)
        if not (exclude_internal and is_internal_topic(metadata.topic))
    ]
    for rule in rules:
        if not any(rule.matches(partition) for partition in known):
            _refuse(reader, rule)
    return [p for p in known if any(rule.matches(p) for rule in rules)]


def _refuse(reader: LogReader, rule: Rule) -> None:
    """Say what is missing, as precisely as the rule allows."""
    if rule == Rule(""):
        return  # all of nothing is nothing
    if is_legal_topic(rule.topic):
        reader.describe(rule.topic)
        raise UnknownTopicError(rule.topic, rule.first_partition)
    raise UsageError(f"no partition matches {rule.topic or 'the partitions given'}")
