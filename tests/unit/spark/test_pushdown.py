from datetime import UTC, datetime

import pyarrow as pa
import pytest
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
    Not,
    StringStartsWith,
)

from siltstone.spark.source.pushdown import parse_filters

OFFSET = ("offset",)
KEY = ("key",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], (0, 100)),
        ([EqualTo(OFFSET, 7)], (7, 8)),
        ([GreaterThan(OFFSET, 7), LessThan(OFFSET, 9)], (8, 9)),
        ([GreaterThanOrEqual(OFFSET, 7), LessThanOrEqual(OFFSET, 9)], (7, 10)),
        ([In(OFFSET, (30, 5, None))], (5, 31)),
        ([GreaterThan(OFFSET, 500)], (501, 501)),
        ([Not(EqualTo(OFFSET, 7))], (0, 100)),
        ([EqualTo(("other",), 7), EqualTo(("headers", "key"), 7)], (0, 100)),
    ],
)
def test_offsets_are_cut_to_what_the_filters_allow(
    filters: list[Filter], expected: tuple[int, int]
) -> None:
    assert parse_filters(filters).cut_offsets(0, 100) == expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], b"ke"),
        ([EqualTo(KEY, b"key-1")], b"key-1"),
        ([EqualTo(KEY, bytearray(b"key-1"))], b"key-1"),
        ([In(KEY, (b"key-11", b"key-2", b"no"))], b"key-"),
        ([In(KEY, (b"key-1", b"key-12"))], b"key-1"),
        ([EqualTo(KEY, b"key-1"), EqualTo(KEY, b"key-2")], None),
        ([EqualTo(KEY, b"k")], None),
        ([IsNotNull(KEY), StringStartsWith(("topic",), "x")], b"ke"),
    ],
)
def test_keys_are_read_by_what_they_begin_with(filters: list[Filter], expected: bytes) -> None:
    assert parse_filters(filters).find_key_prefix(b"ke") == expected


def test_rows_are_filtered_as_sql_does_with_nulls() -> None:
    rows = pa.record_batch({"key": [b"a", None, b"b"], "offset": [1, 2, 3]})

    def left(*filters: Filter) -> list[int]:
        found: list[int] = parse_filters(filters).filter_rows(rows).column("offset").to_pylist()
        return found

    assert left(EqualTo(KEY, b"a")) == [1]
    assert left(In(KEY, (b"a", None))) == [1]
    assert left(IsNull(KEY)) == [2]
    assert left(EqualNullSafe(KEY, None)) == [2]
    assert left(IsNotNull(KEY), LessThan(OFFSET, 3)) == [1]
    assert left(Not(EqualTo(KEY, b"a"))) == [1, 2, 3]  # left to Spark


def test_a_time_without_a_zone_is_utc() -> None:
    naive = parse_filters([GreaterThanOrEqual(("timestamp",), datetime(2024, 1, 1))])  # noqa: DTZ001
    aware = parse_filters([GreaterThan(("timestamp",), datetime(2024, 1, 1, tzinfo=UTC))])

    assert naive.earliest_ms() == aware.earliest_ms() == 1_704_067_200_000
