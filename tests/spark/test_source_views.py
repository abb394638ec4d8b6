"""Views through Spark: in stages or not, as of then, of a few keys; what they say of themselves."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import EqualTo, Filter

from siltstone.errors import UsageError
from siltstone.log.filesystem import File
from siltstone.spark.source.batch_reader import BatchReader
from siltstone.spark.source.options import parse_source_options
from siltstone.spark.source.register import register
from siltstone.spark.source.schema import read_bounds
from siltstone.spark.source.staged_read import read_in_stages
from siltstone.spark.source.stages import WinnerRange
from tests.spark.source_frames import load, rows_of
from tests.spark.source_logs import (
    FIRST_MS,
    clean_topic,
    fill_topic,
    plain_latest,
    plain_log,
    read_records,
)

ORDERS = {"subscribe": "orders", "view": "latest"}
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "0"}


def offsets_json(offsets: dict[int, int]) -> str:
    return json.dumps({"orders": {str(number): offset for number, offset in offsets.items()}})


@pytest.mark.parametrize("partition_count", [1, 3])
def test_latest_in_stages_is_latest_in_one_task_and_what_a_dict_holds(
    spark: SparkSession, tmp_path: Path, partition_count: int
) -> None:
    def fill(seed: int) -> None:
        fill_topic(
            tmp_path,
            "orders",
            seed=seed,
            partition_count=partition_count,
            with_transactions=True,
            config=COMPACTED,
        )

    fill(1)
    clean_topic(tmp_path, "orders")
    fill(2)

    for tombstones in (False, True):
        options = {"view": "latest", "includeTombstones": tombstones}
        fused = load(spark, tmp_path, **options)
        staged = load(spark, tmp_path, minPartitions=12, **options)

        assert fused.rdd.getNumPartitions() == partition_count
        assert staged.rdd.getNumPartitions() > 6
        expected = plain_latest(tmp_path, "orders", include_tombstones=tombstones)
        assert rows_of(staged) == rows_of(fused) == expected
        by_tasks = read_in_stages(
            spark, tmp_path, **ORDERS, includeTombstones=str(tombstones), minPartitions="5"
        )
        assert rows_of(by_tasks) == expected
    prefixed = load(spark, tmp_path, view="latest", minPartitions=12, keyFilter="key-1")
    assert rows_of(prefixed) == [
        row for row in plain_latest(tmp_path, "orders") if (row[0] or b"").startswith(b"key-1")
    ]


def in_order(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def test_a_job_of_stages_gives_what_the_format_gives(spark: SparkSession, tmp_path: Path) -> None:
    fill_topic(tmp_path, "orders", seed=4, with_transactions=True, config=COMPACTED)
    since = offsets_json({0: 20, 1: 35})
    kinds: list[dict[str, str]] = [
        {"includeHeaders": "true"},
        {"keyFilter": "key-1"},
        {"view": "changes", "startingOffsets": since},
    ]
    for given in kinds:
        frame = read_in_stages(spark, tmp_path, **{**ORDERS, **given}, minPartitions="3")
        format_frame = load(spark, tmp_path, **{**ORDERS, **given})

        assert frame.schema == format_frame.schema
        assert read_bounds(frame) == read_bounds(format_frame)
        assert in_order(frame) == in_order(format_frame)
        # A key travels from its slice to a range of hashes, what is left of it back to a slice.
        assert frame.rdd.getNumPartitions() > 2


def test_a_job_of_stages_is_refused_when_a_pass_has_gone_beyond_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill_topic(tmp_path, "orders", seed=1, config=COMPACTED)
    frame = read_in_stages(spark, tmp_path, **ORDERS, minPartitions="3")
    fill_topic(tmp_path, "orders", seed=2, config=COMPACTED)
    clean_topic(tmp_path, "orders")

    with pytest.raises(PySparkException, match="NotExactError"):
        frame.collect()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"subscribe": "orders"}, "view=log has no keys to find"),
        ({**ORDERS, "keys": '["a"]'}, "keys are looked up"),
    ],
)
def test_what_needs_no_stages_is_not_read_in_stages(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    fill_topic(tmp_path, "orders", seed=1)

    with pytest.raises(UsageError, match=problem):
        read_in_stages(spark, tmp_path, **options)


@pytest.mark.parametrize("options", [{}, {"minPartitions": 8}])
def test_changes_are_the_last_records_of_keys_that_changed_since(
    spark: SparkSession, tmp_path: Path, options: dict[str, int]
) -> None:
    fill_topic(tmp_path, "orders", seed=3, with_transactions=True)
    since = {0: 20, 1: 35}

    frame = load(spark, tmp_path, view="changes", startingOffsets=offsets_json(since), **options)

    expected = []
    for number, records in read_records(tmp_path, "orders", is_committed_only=True).items():
        latest = {r.key: r for r in records if r.offset >= since[number]}
        expected += [(r.key, r.value, number, r.offset) for r in latest.values()]
    assert any(value is None for _, value, _, _ in expected)
    assert rows_of(frame) == sorted(expected, key=lambda row: row[2:])


@pytest.mark.parametrize("options", [{}, {"minPartitions": 8}])
def test_a_state_of_before_is_exact_or_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, int]
) -> None:
    fill_topic(tmp_path, "orders", seed=4, config=COMPACTED)
    expected = plain_latest(tmp_path, "orders", ends={0: 30, 1: 41})
    then = offsets_json({0: 30, 1: 41})
    as_of = load(spark, tmp_path, view="latest", asOfOffsets=then, **options)
    assert rows_of(as_of) == expected

    middle_ms = FIRST_MS + 20_000
    ends = {
        number: next(r.offset for r in records if r.timestamp_ms > middle_ms)
        for number, records in read_records(tmp_path, "orders").items()
    }
    at_time = load(spark, tmp_path, view="latest", asOfTimestamp=middle_ms, **options)
    assert rows_of(at_time) == plain_latest(tmp_path, "orders", ends=ends)

    dirty = clean_topic(tmp_path, "orders")
    refusals = [
        f"orders-{number} was compacted beyond offset {end}.*ask for offset {dirty[number]} or"
        for number, end in ((0, 30), (1, 41))
    ]
    refusal = "|".join(refusals)  # Whichever task is the first to say so.
    with pytest.raises(PySparkException, match=refusal):
        load(spark, tmp_path, view="latest", asOfOffsets=then, **options).count()
    exact = load(spark, tmp_path, view="latest", asOfOffsets=offsets_json(dirty), **options)
    assert rows_of(exact) == plain_latest(tmp_path, "orders")


def test_records_of_aborted_transactions_are_read_only_uncommitted(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill_topic(tmp_path, "orders", seed=5, with_transactions=True)

    committed = load(spark, tmp_path, isolationLevel="read_committed", minPartitions=5)

    everything = plain_log(tmp_path, "orders")
    assert rows_of(load(spark, tmp_path)) == everything
    expected = [
        (r.key, r.value, number, r.offset)
        for number, records in read_records(tmp_path, "orders", is_committed_only=True).items()
        for r in records
    ]
    assert rows_of(committed) == expected
    assert len(expected) < len(everything)


def test_a_dataframe_keeps_the_offsets_that_it_was_loaded_with_and_tells_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill_topic(tmp_path, "orders", seed=6, config=COMPACTED)
    dirty = clean_topic(tmp_path, "orders")
    register(spark, tmp_path)
    expected = plain_latest(tmp_path, "orders")

    frame = load(spark, tmp_path, view="latest")
    fill_topic(tmp_path, "orders", seed=7)

    assert [
        (part["partition"], part["consistent_from"], part["end_offset"])
        for part in read_bounds(frame.where("partition < 9"))
    ] == [(number, offset, offset) for number, offset in dirty.items()]
    assert rows_of(frame) == expected
    # A table is what it is when it is asked.
    assert rows_of(spark.table("silt.orders")) == plain_latest(tmp_path, "orders") != expected


def test_a_filter_of_one_query_is_not_one_of_the_next(spark: SparkSession, tmp_path: Path) -> None:
    fill_topic(tmp_path, "orders", seed=8)
    frame = load(spark, tmp_path)
    everything = plain_log(tmp_path, "orders")

    some = frame.where("partition = 1")
    others = frame.where("offset < 10")

    assert rows_of(some) == [row for row in everything if row[2] == 1]
    assert rows_of(frame) == everything
    assert rows_of(some.union(others)) == sorted(
        [row for row in everything if row[2] == 1] + [row for row in everything if row[3] < 10],
        key=lambda row: row[2:],
    )


def test_a_schema_of_ones_own_reads_only_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    fill_topic(tmp_path, "orders", seed=9)
    reader = spark.read.format("siltstone").option("subscribe", "orders")

    frame = reader.schema("offset bigint, key binary, partition int").load(str(tmp_path))

    assert frame.columns == ["offset", "key", "partition"]
    assert sorted((r.partition, r.offset, bytes(r.key)) for r in frame.collect()) == [
        (partition, offset, key) for key, _, partition, offset in plain_log(tmp_path, "orders")
    ]
    with pytest.raises(PySparkException, match="column key is binary, not string"):
        reader.schema("key string").load(str(tmp_path)).count()


def bytes_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> int:
    """Return how many bytes this process reads from files meanwhile, or looks at in place."""
    viewed = 0
    view = File.view

    def counted_view(file: File, position: int, count: int) -> memoryview:
        nonlocal viewed
        data = view(file, position, count)
        viewed += len(data)
        return data

    def count() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    with monkeypatch.context() as patch:
        patch.setattr(File, "view", counted_view)
        before = count()
        act()
        return count() - before + viewed


def test_the_latest_of_a_few_keys_is_looked_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_topic(tmp_path, "orders", seed=10, batch_count=3000, config={"segment.bytes": "50000"})
    expected = [row for row in plain_latest(tmp_path, "orders") if row[0] in (b"key-3", b"key-7")]
    keys = '["key-3","key-7","never seen"]'

    found = load(spark, tmp_path, view="latest", keys=keys)
    then = load(spark, tmp_path, view="latest", keys=keys)
    fill_topic(tmp_path, "orders", seed=11)

    assert rows_of(found) == expected
    assert rows_of(then) == expected  # Both keys were written since: they are read, not looked up.
    assert rows_of(load(spark, tmp_path, view="log", keys='["key-3"]')) == [
        row for row in plain_log(tmp_path, "orders") if row[0] == b"key-3"
    ]

    def read(*filters: Filter, **more: str) -> list[pa.RecordBatch]:
        options = {"path": str(tmp_path), "subscribe": "orders", "view": "latest", **more}
        reader = BatchReader(parse_source_options(options, is_streaming=False))
        reader.pushFilters(list(filters))
        planned = reader.partitions()
        assert not any(isinstance(part, WinnerRange) for part in planned)
        return [batch for part in planned for batch in reader.read(part)]

    read(keys=keys)  # Builds the indexes.
    everything = bytes_read(monkeypatch, read)
    assert bytes_read(monkeypatch, lambda: read(keys=keys)) < 0.3 * everything
    assert bytes_read(monkeypatch, lambda: read(EqualTo(("key",), b"key-3"))) < 0.3 * everything
    both = pa.Table.from_batches(read(EqualTo(("key",), b"key-3"), keys=keys))
    assert set(both["key"].to_pylist()) == {b"key-3"}
