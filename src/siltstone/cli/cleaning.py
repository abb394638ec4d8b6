"""What `plan` and `compact` have in common: which partitions, and how a verdict is shown."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, TypeAlias

import typer

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.survey import Surveyed
from siltstone.errors import ConfigError, SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.topic_store import TopicMetadata

_PICTURE_WIDTH: Final = 40

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
        return f"topic {self.topic} has cleanup.policy={self.policy}"


def find_partitions(source: TopicSource, topics: Sequence[str] | None) -> list[TopicPartition]:
    """Return the partitions of the named topics, or of all."""
    names = topics or [metadata.topic for metadata in source.topics()]
    return [TopicPartition(topic, number) for topic in names for number in source.partitions(topic)]


def describe_surveyed(surveyed: Surveyed) -> dict[str, Any]:
    """Return a verdict for `--output json`."""
    assessment = surveyed.assessment
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
    }


def draw_segments(surveyed: Surveyed) -> str:
    """Draw the segments of a log to scale: `#` clean, `+` dirty, `.` not yet cleanable, `>` active.

    `|` stands between segments.
    """
    assessment = surveyed.assessment
    segments = list(surveyed.log.segments)
    total_bytes = max(sum(segment.size_bytes for segment in segments), 1)
    parts = []
    for segment in segments:
        if segment is segments[-1]:
            sign = ">"
        elif segment.base_offset >= assessment.first_uncleanable_offset:
            sign = "."
        elif segment.base_offset < assessment.first_dirty_offset:
            sign = "#"
        else:
            sign = "+"
        parts.append(sign * max(round(segment.size_bytes * _PICTURE_WIDTH / total_bytes), 1))
    return "|".join(parts)


def read_plans(path: Path) -> list[CleaningPlan]:
    """Read the plans that `silt plan --output json` wrote; raise ConfigError if it is none."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError("--plan", path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError("--plan", path, f"is no JSON ({error})") from error
    items = document if isinstance(document, list) else [document]
    plans = [item.get("plan", item) for item in items if isinstance(item, dict)]
    return [CleaningPlan.from_json(json.dumps(plan)) for plan in plans if plan is not None]
