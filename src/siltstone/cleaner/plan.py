"""A pass as a value: all that its output depends on, to print, to save, to send to a worker."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from operator import index
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, TypeVar

from siltstone.cleaner.survival import LastRecord
from siltstone.errors import ConfigError
from siltstone.ids import TopicPartition
from siltstone.log.transaction_index import AbortedTxn

_VERSION: Final = 1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Source:
    """One segment as the planner saw it; the commit is refused if it looks different by then."""

    base_offset: int
    size_bytes: int
    modified_ns: int
    inode: int = 0  # a pass may write as many bytes as it read, and gives them the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """Everything one pass depends on: same plan, same bytes. There is no clock behind it."""

    pass_id: str
    partition: TopicPartition
    directory: Path
    reason: str
    sources: tuple[Source, ...]  # oldest first
    groups: tuple[tuple[int, ...], ...]  # base offsets of segments that become one
    log_start_offset: int
    first_dirty_offset: int
    end_offset: int  # the first uncleanable one: the pass does not look there
    aborted: tuple[AbortedTxn, ...]
    last_records: tuple[LastRecord, ...]  # of the producers that are active
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    segment_index_bytes: int
    hash_key: bytes  # 16 random bytes: keys that collide cannot be made up beforehand

    def source_bytes(self) -> int:
        """Return how much a pass reads."""
        return sum(source.size_bytes for source in self.sources)

    def bytes_of(self, base_offsets: Collection[int]) -> int:
        """Return the size of some of the sources together."""
        return sum(s.size_bytes for s in self.sources if s.base_offset in base_offsets)

    def to_json(self) -> str:
        """Write the plan as JSON."""
        fields = asdict(self)
        fields["partition"] = {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
        }
        fields["directory"] = str(self.directory)
        fields["hash_key"] = self.hash_key.hex()
        fields["aborted"] = [txn._asdict() for txn in self.aborted]
        fields["last_records"] = [record._asdict() for record in self.last_records]
        return json.dumps({"version": _VERSION, **fields}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "CleaningPlan":
        """Read a plan back; raise ConfigError if it is none."""
        try:
            fields: dict[str, Any] = json.loads(text)
            version = fields.pop("version")
            if version != _VERSION:
                raise ConfigError("plan version", version, f"must be {_VERSION}")
            return checked(
                cls,
                {
                    **fields,
                    "partition": checked(TopicPartition, fields["partition"]),
                    "directory": Path(fields["directory"]),
                    "sources": tuple(checked(Source, source) for source in fields["sources"]),
                    "groups": tuple(tuple(map(index, group)) for group in fields["groups"]),
                    "aborted": tuple(checked(AbortedTxn, txn) for txn in fields["aborted"]),
                    "last_records": tuple(checked(LastRecord, r) for r in fields["last_records"]),
                    "hash_key": bytes.fromhex(fields["hash_key"]),
                },
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError("plan", type(error).__name__, f"is malformed ({error})") from error


def checked(kind: type[_T], fields: dict[str, Any]) -> _T:
    """Make a value from JSON, and see to it that numbers are numbers before a run begins."""
    for name, expected in kind.__annotations__.items():
        is_plain = not isinstance(expected, GenericAlias)
        if is_plain and not isinstance(fields[name], expected):
            raise TypeError(f"{name}: {fields[name]!r}")
    return kind(**fields)
