"""The options of the source and of the sink: those of Spark's Kafka source, and a few of ours.

Everything is parsed here, once, in the driver. What Spark's Kafka source refuses is refused, and a
name that means nothing is refused too: an option that is misspelt would silently be a default.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlparse

from siltstone.errors import UnknownSettingError, UsageError
from siltstone.ids import TopicPartition, is_legal_topic
from siltstone.table.request import View

LATEST: Final = -1
EARLIEST: Final = -2

PartitionOffsets: TypeAlias = dict[TopicPartition, int]

_STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")

_OURS: Final = (
    "view",
    "asOfOffsets",
    "asOfTimestamp",
    "includeTombstones",
    "isolationLevel",
    "keyFilter",
    "keys",
)
_SHARED: Final = (
    *_STRATEGIES,
    "path",
    "includeHeaders",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
)
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# They say how to talk to a broker, and a log directory is read without one.
_WITHOUT_EFFECT: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_READ_OPTIONS: Final = (*_SHARED, *_OURS, *_BATCH_ONLY, *_STREAM_ONLY, *_WITHOUT_EFFECT)
# The last ones are Spark's own, which it hands on to every sink.
_WRITE_OPTIONS: Final = ("path", "topic", "includeHeaders", "checkpointLocation", "queryName")

_SERVERS: Final = "kafka.bootstrap.servers"

_DURATION: Final = re.compile(r"\s*(\d+)\s*(ms|s|m|h|d)\s*")
_DURATION_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a read begins or ends; the first of these that is given counts."""

    timestamp_ms: int | None = None  # of every partition
    timestamps_ms: PartitionOffsets | None = None  # by partition
    offsets: PartitionOffsets | int = EARLIEST  # by partition, or the same word for all


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The partitions to read; exactly one of the three is given."""

    assign: Collection[TopicPartition] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a read was asked for."""

    paths: tuple[Path, ...]
    selection: TopicSelection
    start: Bound
    end: Bound
    view: View
    as_of_offsets: PartitionOffsets | None
    as_of_timestamp_ms: int | None
    include_headers: bool
    include_tombstones: bool
    is_committed_only: bool
    key_prefix: bytes
    keys: tuple[bytes, ...] | None  # None: any
    fail_on_data_loss: bool
    unmatched_start_is_latest: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where a write goes to."""

    paths: tuple[Path, ...]
    topic: str | None
    include_headers: bool
    checkpoint_location: str | None


def parse_source_options(given: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Parse the options of a read; raise UsageError or UnknownSettingError."""
    options = _Options(given, _READ_OPTIONS)
    view = options.choice("view", View, View.LOG)
    selection = _parse_selection(options)
    if is_streaming:
        options.refuse(_BATCH_ONLY, "has no meaning in a streaming query, which has no end")
        options.refuse(("asOfOffsets", "asOfTimestamp"), "has no meaning in a streaming query")
        if view is View.LATEST:
            raise UsageError("view=latest cannot be streamed: stream view=log or view=changes")
    elif view is not View.LATEST:
        options.refuse(("asOfOffsets", "asOfTimestamp"), "needs view=latest")
    else:
        starting = [name for name in _SHARED if name.startswith("starting")]
        options.refuse(starting, "has no meaning with view=latest")
    start = _parse_bound(options, "starting", LATEST if is_streaming else EARLIEST)
    end = _parse_bound(options, "ending", LATEST)
    if not is_streaming:
        _refuse_word(start, LATEST, "startingOffsets can't be latest for a batch query")
        _refuse_word(end, EARLIEST, "endingOffsets can't be earliest for a batch query")
    isolation = options.word(
        "isolationLevel",
        ("read_uncommitted", "read_committed"),
        "read_uncommitted" if view is View.LOG else "read_committed",
    )
    if view is not View.LOG and isolation != "read_committed":
        raise UsageError(f"view={view.value} is always read_committed: leave isolationLevel out")
    as_of = options.text("asOfOffsets")
    return SourceOptions(
        paths=_parse_paths(options),
        selection=selection,
        start=start,
        end=end,
        view=view,
        as_of_offsets=None if as_of is None else parse_partition_offsets("asOfOffsets", as_of),
        as_of_timestamp_ms=options.integer("asOfTimestamp", minimum=0),
        include_headers=options.boolean("includeHeaders", default=False),
        include_tombstones=options.boolean("includeTombstones", default=False),
        is_committed_only=isolation == "read_committed",
        key_prefix=(options.text("keyFilter") or "").encode(),
        keys=_parse_keys(options.text("keys")),
        fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
        unmatched_start_is_latest=options.word(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        )
        == "latest",
        min_partitions=options.integer("minPartitions", minimum=1),
        max_records_per_partition=options.integer("maxRecordsPerPartition", minimum=1),
        max_offsets_per_trigger=options.integer("maxOffsetsPerTrigger", minimum=1),
        min_offsets_per_trigger=options.integer("minOffsetsPerTrigger", minimum=1),
        max_trigger_delay_ms=options.duration_ms("maxTriggerDelay", default="15m"),
    )


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a write; raise UsageError or UnknownSettingError."""
    options = _Options(given, _WRITE_OPTIONS)
    topic = options.text("topic")
    if topic is not None:
        _check_topic("topic", topic)
    return SinkOptions(
        paths=_parse_paths(options),
        topic=topic,
        include_headers=options.boolean("includeHeaders", default=False),
        checkpoint_location=options.text("checkpointLocation"),
    )


def parse_partition_offsets(name: str, text: str) -> PartitionOffsets:
    """Parse `{"topic":{"0":23}}`."""
    found: PartitionOffsets = {}
    try:
        for topic, numbers in json.loads(text).items():
            for number, offset in numbers.items():
                if isinstance(offset, bool) or not isinstance(offset, int):
                    raise ValueError
                found[TopicPartition(topic, int(number))] = offset
    except (ValueError, AttributeError):
        example = '{"topic":{"0":23,"1":-2}}'
        raise UsageError(f"{name} must look like {example}, got {text}") from None
    return found


def format_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the form that a checkpoint has, as Spark's Kafka source writes it."""
    formatted: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        formatted.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return formatted


def read_offsets(formatted: Mapping[str, Mapping[str, int]]) -> PartitionOffsets:
    """Undo `format_offsets`."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in formatted.items()
        for number, offset in numbers.items()
    }


class _Options:
    """Options by name, whatever the case, as Spark treats them."""

    def __init__(self, given: Mapping[str, str], known: Collection[str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        known_names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in known_names and not name.startswith("kafka."):
                raise UnknownSettingError(name, known)

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def refuse(self, names: Collection[str], reason: str) -> None:
        for name in names:
            if self.text(name) is not None:
                raise UsageError(f"{name} {reason}")

    def word(self, name: str, allowed: Collection[str], default: str) -> str:
        value = (self.text(name) or default).strip().lower()
        if value not in allowed:
            raise UsageError(f"{name} must be one of {', '.join(allowed)}, got {self.text(name)}")
        return value

    def choice(self, name: str, kind: type[View], default: View) -> View:
        return kind(self.word(name, [member.value for member in kind], default.value))

    def boolean(self, name: str, *, default: bool) -> bool:
        return self.word(name, ("true", "false"), str(default).lower()) == "true"

    def integer(self, name: str, *, minimum: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise UsageError(f"{name} must be a whole number from {minimum} on, got {text}")
        return value

    def duration_ms(self, name: str, default: str) -> int:
        text = self.text(name) or default
        found = _DURATION.fullmatch(text.lower())
        if found is None:
            raise UsageError(f"{name} must be a time like 15m, 30s or 500ms, got {text}")
        return int(found[1]) * _DURATION_MS[found[2]]


def _parse_paths(options: _Options) -> tuple[Path, ...]:
    text = options.text("path")
    if not text:
        if options.text(_SERVERS):
            raise UsageError(
                f"{_SERVERS} is not supported: give path, the log directory, which is read and "
                "written without a broker"
            )
        raise UsageError("path must name a log directory; several with a comma between them")
    return tuple(_parse_path(part.strip()) for part in text.split(",") if part.strip())


def _parse_path(text: str) -> Path:
    if text.startswith("file:"):
        text = unquote(urlparse(text).path)
    elif "://" in text:
        raise UsageError(f"path must be a directory of this machine's file system, got {text}")
    return Path(text).absolute()


def _parse_selection(options: _Options) -> TopicSelection:
    given = [name for name in _STRATEGIES if (options.text(name) or "").strip()]
    if len(given) != 1:
        names = ", ".join(_STRATEGIES)
        raise UsageError(f"exactly one of {names} must be given, got {', '.join(given) or 'none'}")
    text = (options.text(given[0]) or "").strip()
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        for topic in topics:
            _check_topic("subscribe", topic)
        return TopicSelection(subscribe=topics)
    if given[0] == "assign":
        return TopicSelection(assign=_parse_assignment(text))
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"subscribePattern {text} is no regular expression: {error}") from None
    return TopicSelection(pattern=text)


def _parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    try:
        parsed: dict[str, Any] = json.loads(text)
        for topic, numbers in parsed.items():
            found.extend(TopicPartition(topic, int(number)) for number in numbers)
    except (ValueError, TypeError, AttributeError):
        raise UsageError(f'assign must look like {{"topic":[0,1]}}, got {text}') from None
    return tuple(sorted(set(found)))


def _parse_keys(text: str | None) -> tuple[bytes, ...] | None:
    if text is None:
        return None
    try:
        keys = json.loads(text)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError
    except ValueError:
        raise UsageError(f'keys must look like ["a","b"], got {text}') from None
    return tuple(sorted({key.encode() for key in keys}))


def _check_topic(name: str, topic: str) -> None:
    if not is_legal_topic(topic):
        raise UsageError(
            f"{name}: illegal topic name {topic!r}: 1 to 249 of letters, digits, dot, dash, "
            "underscore"
        )


def _parse_bound(options: _Options, prefix: str, default: int) -> Bound:
    by_timestamp = options.text(f"{prefix}OffsetsByTimestamp")
    text = options.text(f"{prefix}Offsets")
    offsets: PartitionOffsets | int = default
    if text is not None:
        word = text.strip().lower()
        if word in ("earliest", "latest"):
            offsets = EARLIEST if word == "earliest" else LATEST
        else:
            offsets = parse_partition_offsets(f"{prefix}Offsets", text)
            lowest = min(offsets.values(), default=0)
            if lowest < EARLIEST:
                raise UsageError(f"{prefix}Offsets: {lowest} is no offset")
    return Bound(
        timestamp_ms=options.integer(f"{prefix}Timestamp", minimum=0),
        timestamps_ms=(
            None
            if by_timestamp is None
            else parse_partition_offsets(f"{prefix}OffsetsByTimestamp", by_timestamp)
        ),
        offsets=offsets,
    )


def _refuse_word(bound: Bound, word: int, reason: str) -> None:
    offsets = bound.offsets
    if offsets == word or (isinstance(offsets, dict) and word in offsets.values()):
        raise UsageError(reason)
