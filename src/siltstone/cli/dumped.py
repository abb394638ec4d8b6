"""What a dump is made of: lines that are text and JSON at once, and findings about them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

_MAX_SHOWN: Final = 1000  # of each kind in each file: a compacted segment has a gap per record


class Line(NamedTuple):
    """One thing that was found in a file, in both forms."""

    text: str
    document: dict[str, Any]


class FindingKind(Enum):
    """What can be wrong; the values are the names in JSON."""

    OFFSET_MISMATCH = "offset_mismatch"
    TIMESTAMP_MISMATCH = "timestamp_mismatch"
    TIMESTAMP_ORDER = "timestamp_order"
    OFFSET_NOT_FOUND = "offset_not_found"
    OFFSET_GAP = "offset_gap"


# Kafka's words: the title of a list, then how a pair in it reads.
_TITLES: Final = {
    FindingKind.OFFSET_MISMATCH: "Mismatches in :{path}",
    FindingKind.TIMESTAMP_MISMATCH: "Found timestamp mismatch in :{path}",
    FindingKind.TIMESTAMP_ORDER: "Found out of order timestamp in :{path}",
    FindingKind.OFFSET_NOT_FOUND: "The following indexed offsets are not found in the log.",
    FindingKind.OFFSET_GAP: "Non-consecutive offsets in {path}",
}
_PAIRS: Final = {
    FindingKind.OFFSET_MISMATCH: "  Index offset: {}, log offset: {}",
    FindingKind.TIMESTAMP_MISMATCH: "  Index timestamp: {}, log timestamp: {}",
    FindingKind.TIMESTAMP_ORDER: "  Index timestamp: {}, Previously indexed timestamp: {}",
    FindingKind.OFFSET_NOT_FOUND: "Indexed offset: {}, found log offset: {}",
    FindingKind.OFFSET_GAP: "  {} is followed by {}",
}
_FIELDS: Final = {
    FindingKind.OFFSET_MISMATCH: ("index_offset", "log_offset"),
    FindingKind.TIMESTAMP_MISMATCH: ("index_timestamp_ms", "log_timestamp_ms"),
    FindingKind.TIMESTAMP_ORDER: ("index_timestamp_ms", "previous_timestamp_ms"),
    FindingKind.OFFSET_NOT_FOUND: ("index_offset", "log_offset"),
    FindingKind.OFFSET_GAP: ("offset", "next_offset"),
}


@dataclass(slots=True)
class _Pairs:
    shown: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0


class Findings:
    """What does not fit together, by kind and file; told when everything was dumped."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[FindingKind, Path], _Pairs] = {}

    def add(self, kind: FindingKind, path: Path, first: int, second: int) -> None:
        """Note a pair of numbers that do not fit together."""
        pairs = self._pairs.setdefault((kind, path), _Pairs())
        pairs.count += 1
        if len(pairs.shown) < _MAX_SHOWN:
            pairs.shown.append((first, second))

    @property
    def index_is_wrong(self) -> bool:
        """Say whether an index contradicts its log; gaps are normal after compaction."""
        return any(kind is not FindingKind.OFFSET_GAP for kind, _ in self._pairs)

    def lines(self) -> Iterator[Line]:
        """Yield all findings."""
        for (kind, path), pairs in sorted(
            self._pairs.items(), key=lambda item: (list(FindingKind).index(item[0][0]), item[0][1])
        ):
            document = {
                "type": "finding",
                "finding": kind.value,
                "file": str(path),
                "count": pairs.count,
                "pairs": [dict(zip(_FIELDS[kind], pair, strict=True)) for pair in pairs.shown],
            }
            texts = [_TITLES[kind].format(path=path.absolute())]
            texts += [_PAIRS[kind].format(*pair) for pair in pairs.shown]
            if pairs.count > len(pairs.shown):
                texts.append(f"  and {pairs.count - len(pairs.shown)} more")
            yield Line("\n".join(texts), document)


def java_boolean(value: bool) -> str:
    """Write a truth value as Kafka's tools print it."""
    return "true" if value else "false"


def java_optional(value: int | None) -> str:
    """Write a number that may be missing as Kafka's tools print it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
