"""What `plan` and `compact` have in common: which partitions, and how a verdict is shown."""

import json
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final, Protocol, TypeAlias

import typer

from siltstone.cleaner.config import CleanerConfig
from siltstone.cleaner.selection import Reason
from siltstone.cleaner.survey import Surveyed
from siltstone.cli.failures import error_code
from siltstone.cli.options import parse_config
from siltstone.errors import SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.topic_store import TopicMetadata
from siltstone.settings import settings_of

_PICTURE_WIDTH: Final = 40
_RETENTION_SETTINGS: Final = frozenset({"retention.ms", "retention.bytes"})

Topics: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC]...", help="The topics; all if none is named.")
]
Now: TypeAlias = Annotated[
    int | None,
    typer.Option("--now", metavar="MS", help="Act as if it were this time, in ms since 1970."),
]
IgnoreRatio: TypeAlias = Annotated[
    bool,
    typer.Option("--ignore-ratio", help="Clean whatever is cleanable, however little is dirty."),
]


class TopicSource(Protocol):
    """What knows topics: a manager, or a reader."""

    def topics(self) -> list[TopicMetadata]:
        """Return every topic."""
        ...

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        ...

    def config(self, topic: str) -> LogConfig:
        """Return the settings that act on a topic."""
        ...


class NotCompactedError(SiltstoneError):
    """A topic was named whose policy does not include compaction."""

    def __init__(self, topic: str, policy: str) -> None:
        super().__init__(topic, policy)
        self.topic = topic
        self.policy = policy

    def __str__(self) -> str:
        return (
            f"topic {self.topic} has cleanup.policy={self.policy}: there is nothing to compact "
            "(without a topic, silt compact applies the retention of all; "
            "--config cleanup.policy=compact compacts it all the same)"
        )


def find_partitions(source: TopicSource, topics: Sequence[str] | None) -> list[TopicPartition]:
    """Return the partitions of the named topics, or of all."""
    names = topics or [metadata.topic for metadata in source.topics()]
    return [TopicPartition(topic, number) for topic in names for number in source.partitions(topic)]


def describe_surveyed(surveyed: Surveyed) -> dict[str, Any]:
    """Return a verdict for `--output json`."""
    assessment = surveyed.assessment
    retention = surveyed.retention
    return {
        "topic": assessment.partition.topic,
        "partition": assessment.partition.partition,
        "eligible": assessment.is_eligible,
        "reason": assessment.reason.value,
        "explanation": assessment.explanation,
        "first_dirty_offset": assessment.first_dirty_offset,
        "first_uncleanable_offset": assessment.first_uncleanable_offset,
        "limit": assessment.limit.value,
        "clean_bytes": assessment.clean_bytes,
        "dirty_bytes": assessment.dirty_bytes,
        "dirty_ratio": round(assessment.dirty_ratio, 6),
        "compaction_delay_ms": assessment.compaction_delay_ms,
        "tombstones_waiting": surveyed.waiting.count,
        "earliest_horizon_ms": surveyed.waiting.earliest_horizon_ms,
        "plan": None if surveyed.plan is None else json.loads(surveyed.plan.to_json()),
        "segments_expired": 0 if retention is None else len(retention.removals),
        "retention_plan": None if retention is None else json.loads(retention.to_json()),
        "error_code": None,
    }


def describe_damaged(partition: TopicPartition, error: SiltstoneError) -> dict[str, Any]:
    """Return the same about a log that cannot be looked at: nothing is known but why."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "eligible": False,
        "reason": Reason.UNCLEANABLE.value,
        "explanation": str(error),
        "first_dirty_offset": None,
        "first_uncleanable_offset": None,
        "limit": None,
        "clean_bytes": None,
        "dirty_bytes": None,
        "dirty_ratio": None,
        "compaction_delay_ms": None,
        "tombstones_waiting": None,
        "earliest_horizon_ms": None,
        "plan": None,
        "segments_expired": 0,
        "retention_plan": None,
        "error_code": error_code(error),
    }


def draw_segments(surveyed: Surveyed) -> str:
    """Draw the segments of a log to scale, with `|` between them.

    `x` expired, `#` clean, `t` clean with tombstones waiting, `+` dirty, `.` not yet cleanable,
    `>` active.
    """
    assessment = surveyed.assessment
    segments = list(surveyed.log.segments)
    total_bytes = max(sum(segment.size_bytes for segment in segments), 1)
    parts = []
    expired = set()
    if surveyed.retention is not None:
        expired = {removal.source.base_offset for removal in surveyed.retention.removals}
    for segment in segments:
        if segment.base_offset in expired:
            sign = "x"
        elif segment is segments[-1]:
            sign = ">"
        elif segment.base_offset >= assessment.first_uncleanable_offset:
            sign = "."
        elif segment.base_offset < assessment.first_dirty_offset:
            sign = "t" if segment.base_offset in surveyed.waiting.base_offsets else "#"
        else:
            sign = "+"
        parts.append(sign * max(round(segment.size_bytes * _PICTURE_WIDTH / total_bytes), 1))
    return "|".join(parts)


def knows_retention(metadata: TopicMetadata, overridden: Collection[str]) -> bool:
    """Say whether anybody has said how long records stay: nothing is deleted by a mere default.

    A directory of stock Kafka does not tell its topics' settings.
    """
    return metadata.is_stored or not _RETENTION_SETTINGS.isdisjoint(overridden)


def split_config(pairs: Sequence[str] | None) -> tuple[CleanerConfig, dict[str, str]]:
    """Take apart `--config`: settings of the cleaner, and those of topics."""
    config = parse_config(pairs)
    own = settings_of(CleanerConfig)
    return (
        CleanerConfig.parse({name: text for name, text in config.items() if name in own}),
        {name: text for name, text in config.items() if name not in own},
    )
