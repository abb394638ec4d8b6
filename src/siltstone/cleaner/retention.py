"""Retention as a plan: which of the oldest segments go, and the number that decided.

The rules are those of `log.retention`. Here they are applied once, by the planner; what is then
carried out is the plan, whatever the clock says by that time.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from siltstone.cleaner.plan import Source, checked
from siltstone.errors import ConfigError
from siltstone.ids import TopicPartition
from siltstone.log.partition_log import PartitionLog
from siltstone.log.retention import Rule, SegmentFacts, find_expired
from siltstone.log.segment import Segment

RETENTION: Final = "retention"
"""What plans and manifests of this kind say in their field `kind`."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Removal:
    """A segment that goes, and why."""

    source: Source
    end_offset: int  # where the next segment begins, or the log ends
    rule: str  # the value of a `Rule`
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """All that is removed from one log; there is no clock behind it."""

    pass_id: str
    partition: TopicPartition
    directory: Path
    removals: tuple[Removal, ...]  # oldest first
    log_start_offset: int
    new_log_start_offset: int
    now_ms: int

    @property
    def reason(self) -> str:
        """The rules that let segments go."""
        return ", ".join(dict.fromkeys(removal.rule for removal in self.removals))

    @property
    def removed_bytes(self) -> int:
        """The size of all that goes."""
        return sum(removal.source.size_bytes for removal in self.removals)

    def to_json(self) -> str:
        """Write the plan as JSON."""
        fields = asdict(self)
        fields["partition"] = {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
        }
        fields["directory"] = str(self.directory)
        return json.dumps({"version": _VERSION, "kind": RETENTION, **fields}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "RetentionPlan":
        """Read a plan back; raise ConfigError if it is none."""
        try:
            fields: dict[str, Any] = json.loads(text)
            version, kind = fields.pop("version"), fields.pop("kind")
            if (version, kind) != (_VERSION, RETENTION):
                raise ConfigError("plan version", f"{kind} {version}", f"must be {_VERSION}")
            return checked(
                cls,
                {
                    **fields,
                    "partition": checked(TopicPartition, fields["partition"]),
                    "directory": Path(fields["directory"]),
                    "removals": tuple(map(_parse_removal, fields["removals"])),
                },
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError("plan", type(error).__name__, f"is malformed ({error})") from error


def plan_retention(log: PartitionLog, now_ms: int) -> RetentionPlan | None:
    """Apply the rules to a log; None if every segment stays."""
    segments = list(log.segments)
    ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
    facts = [
        SegmentFacts(
            segment.base_offset,
            end,
            segment.size_bytes,
            segment.largest_timestamp_ms,
            is_active=segment is segments[-1],
        )
        for segment, end in zip(segments, ends, strict=True)
    ]
    expired = find_expired(
        facts,
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    if not expired:
        return None
    rules = [(rule.rule, rule.limit) for rule in expired for _ in range(rule.count)]
    removals = tuple(
        Removal(
            source_of(segments[slot]),
            facts[slot].next_base_offset,
            rule.value,
            _explain(rule, limit, facts[slot:], now_ms),
        )
        for slot, (rule, limit) in enumerate(rules)
    )
    return RetentionPlan(
        pass_id=f"{now_ms:013d}{secrets.token_hex(4)}",
        partition=log.partition,
        directory=log.directory.absolute(),
        removals=removals,
        log_start_offset=log.log_start_offset,
        new_log_start_offset=max(removals[-1].end_offset, log.log_start_offset),
        now_ms=now_ms,
    )


def source_of(segment: Segment) -> Source:
    """Describe a segment as it is now."""
    stat = segment.path.stat()
    return Source(segment.base_offset, segment.size_bytes, stat.st_mtime_ns, stat.st_ino)


def _explain(rule: Rule, limit: int, facts: Sequence[SegmentFacts], now_ms: int) -> str:
    """Name the number that decided about the first of these segments, and its limit."""
    segment = facts[0]
    match rule:
        case Rule.LOG_START:
            return f"ends at offset {segment.next_base_offset}, the log starts at {limit}"
        case Rule.SIZE:
            rest_bytes = sum(fact.size_bytes for fact in facts[1:])
            return f"{rest_bytes} bytes are left without it, retention.bytes is {limit}"
        case Rule.AGE:
            age_ms = now_ms - segment.largest_timestamp_ms
            return f"its newest record is {age_ms} ms old, retention.ms is {limit}"


def _parse_removal(fields: Mapping[str, Any]) -> Removal:
    return checked(Removal, {**fields, "source": checked(Source, fields["source"])})
