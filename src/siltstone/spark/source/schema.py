"""The columns of a read, and in their metadata the offsets that it lies between."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from siltstone.errors import UsageError
from siltstone.ids import TopicPartition
from siltstone.table.columns import SCHEMA_WITH_HEADERS
from siltstone.table.request import ViewBounds
from siltstone.table.scanning import describe

BOUNDS_METADATA: Final = "siltstone.bounds"
_BOUNDS_COLUMN: Final = "offset"

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_NULLABLE: Final = frozenset({"key", "value", "headers"})  # To look for nulls takes the JVM time.
_COLUMNS: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
SPARK_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_ARROW_TYPES: Final = {
    **{field.name: field.type for field in SCHEMA_WITH_HEADERS},
    "timestamp": SPARK_TIMESTAMP,
}


def make_schema(*, with_headers: bool, bounds: Sequence[ViewBounds] | None = None) -> StructType:
    """Return the columns of a read."""
    fields = [
        StructField(name, kind, nullable=name in _NULLABLE)
        for name, kind in _COLUMNS.items()
        if with_headers or name != "headers"
    ]
    schema = StructType(fields)
    if bounds is not None:
        schema[_BOUNDS_COLUMN].metadata = {BOUNDS_METADATA: json.dumps([*map(describe, bounds)])}
    return schema


def choose_columns(schema: StructType, *, with_headers: bool) -> pa.Schema:
    """Return the columns that a read is to give; raise UsageError if it has them not.

    They are fewer than all if the user gave a schema of his own.
    """
    for field in schema.fields:
        kind = _COLUMNS.get(field.name) if field.name != "headers" or with_headers else None
        if kind is None:
            known = ", ".join(name for name in _COLUMNS if with_headers or name != "headers")
            raise UsageError(f"schema: there is no column {field.name}, only {known}")
        if kind.simpleString() != field.dataType.simpleString():
            raise UsageError(
                f"schema: column {field.name} is {kind.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return pa.schema(
        [pa.field(f.name, _ARROW_TYPES[f.name], nullable=f.nullable) for f in schema.fields]
    )


def read_bounds(frame: DataFrame) -> list[dict[str, Any]]:
    """Return between which offsets each partition is read, and from which on it is consistent.

    `frame` must be as `load` has given it, or still have its column `offset`.
    """
    bounds = find_bounds(frame.schema)
    if bounds is None:
        raise UsageError("the DataFrame has no column offset that comes from a read of a log")
    return bounds


def find_bounds(schema: StructType) -> list[dict[str, Any]] | None:
    """Return what the metadata of a schema says; None if it says nothing."""
    for field in schema.fields:
        if field.name == _BOUNDS_COLUMN and BOUNDS_METADATA in (field.metadata or {}):
            found: list[dict[str, Any]] = json.loads(field.metadata[BOUNDS_METADATA])
            return found
    return None


def fixed_offsets(schema: StructType) -> Mapping[TopicPartition, tuple[int, int]] | None:
    """Return the offsets that were fixed when the schema was made; None if none were."""
    bounds = find_bounds(schema)
    if bounds is None:
        return None
    return {
        TopicPartition(part["topic"], part["partition"]): (part["start_offset"], part["end_offset"])
        for part in bounds
    }
