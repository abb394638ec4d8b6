"""Filters that Spark hands down: what they say about partitions, offsets and rows.

A filter is used twice: to read less, and to send fewer rows to the JVM. Spark evaluates each of
them once more, so that a filter which is used only in part, or not at all, needs no care.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: Final = {
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}
_ROW_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Condition:
    """What one filter says about one column; `None` never equals anything."""

    column: str
    kind: str  # a function of Arrow, or "in"
    value: Any = None

    def mask(self, column: pa.Array) -> pa.Array:
        """Say which rows fulfil it; null means that they do not."""
        if self.kind in ("is_null", "is_valid"):
            return pc.call_function(self.kind, [column])
        if self.kind == "in":
            return pc.is_in(column, value_set=pa.array(self.value, column.type))
        return pc.call_function(self.kind, [column, pa.scalar(self.value, column.type)])

    def holds(self, value: object) -> bool:
        """Say whether a value that is not null fulfils it."""
        found: bool | None = self.mask(pa.array([value]))[0].as_py()
        return found is True


@dataclass(frozen=True, slots=True)
class Pushdown:
    """All that the filters of a query say, taken together."""

    conditions: tuple[Condition, ...] = ()

    def allows(self, column: str, value: object) -> bool:
        """Say whether a row with this value in the column can be in the answer."""
        return all(c.holds(value) for c in self.conditions if c.column == column)

    def keys(self) -> tuple[bytes, ...] | None:
        """Return the only keys that can be in the answer; None if they may be any."""
        found: set[bytes] | None = None
        for condition in self.conditions:
            if condition.column == "key" and condition.kind in ("equal", "in"):
                values = condition.value if condition.kind == "in" else (condition.value,)
                keys = {bytes(v) for v in values if v is not None}
                found = keys if found is None else found & keys
        return None if found is None else tuple(sorted(found))

    def find_key_prefix(self, prefix: bytes) -> bytes | None:
        """Return with what all keys of the answer begin, `prefix` at least; None if none can."""
        keys = self.keys()
        if keys is None:
            return prefix
        keys = tuple(key for key in keys if key.startswith(prefix))
        if not keys:
            return None
        first, last = keys[0], keys[-1]  # What these two share, all between them share.
        differing = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
        return first[: next(differing, len(first))]

    def cut_offsets(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of a range of offsets in which the answer lies."""
        for condition in self.conditions:
            if condition.column != "offset":
                continue
            value = condition.value
            match condition.kind:
                case "equal":
                    start, end = max(start, value), min(end, value + 1)
                case "in":
                    values = [v for v in value if v is not None] or [start - 1]
                    start, end = max(start, min(values)), min(end, max(values) + 1)
                case "greater":
                    start = max(start, value + 1)
                case "greater_equal":
                    start = max(start, value)
                case "less":
                    end = min(end, value)
                case "less_equal":
                    end = min(end, value + 1)
        return start, max(start, end)

    def earliest_ms(self) -> int | None:
        """Return a time before which no record can be in the answer."""
        earliest: int | None = None
        for condition in self.conditions:
            if condition.column == "timestamp" and condition.kind in (
                "equal",
                "greater",
                "greater_equal",
            ):
                milliseconds = (condition.value - _EPOCH) // timedelta(milliseconds=1)
                earliest = milliseconds if earliest is None else max(earliest, milliseconds)
        return earliest

    def filter_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that can be in the answer."""
        for condition in self.conditions:
            if condition.column in _ROW_COLUMNS and batch.num_rows:
                batch = batch.filter(condition.mask(batch.column(condition.column)))
        return batch


NO_PUSHDOWN: Final = Pushdown()


def parse_filters(filters: Sequence[Filter]) -> Pushdown:
    """Take from Spark's filters what can be used."""
    found = [_parse_filter(filter_) for filter_ in filters]
    return Pushdown(tuple(condition for condition in found if condition is not None))


def _parse_filter(filter_: Filter) -> Condition | None:
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(attribute) != 1:
        return None
    column = attribute[0]
    if column not in ("topic", "partition", *_ROW_COLUMNS):
        return None
    match filter_:
        case IsNull():
            return Condition(column, "is_null")
        case IsNotNull():
            return Condition(column, "is_valid")
        case In(value=values):
            return Condition(column, "in", tuple(_plain(v) for v in values if v is not None))
        case EqualNullSafe(value=None):
            return Condition(column, "is_null")
        case EqualNullSafe(value=value):
            return Condition(column, "equal", _plain(value))
    kind = _COMPARISONS.get(type(filter_))
    value = getattr(filter_, "value", None)
    return None if kind is None or value is None else Condition(column, kind, _plain(value))


def _plain(value: Any) -> Any:
    """Give a time its zone: Spark's has none in Python, and is UTC."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return bytes(value) if isinstance(value, bytearray) else value
