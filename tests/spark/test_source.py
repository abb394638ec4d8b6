"""The Spark source, batch and SQL: the same records as a plain walk over the log."""

from datetime import UTC, datetime
from functools import reduce
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.spark.source.batch_reader import BatchReader
from siltstone.spark.source.options import parse_source_options
from siltstone.spark.source.register import register
from siltstone.spark.source.splits import LogRange
from tests.spark.source_frames import load, rows_of
from tests.spark.source_logs import fill_topic, plain_latest, plain_log, read_records


def test_a_batch_read_gives_every_record_with_the_columns_of_sparks_kafka_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill_topic(tmp_path, "orders", seed=1)

    frame = load(spark, tmp_path, includeHeaders=True)

    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert rows_of(frame) == plain_log(tmp_path, "orders")
    records = {(n, r.offset): r for n, rs in read_records(tmp_path, "orders").items() for r in rs}
    for row in frame.selectExpr("*", "unix_millis(timestamp) as ms").collect():
        record = records[row.partition, row.offset]
        assert (row.topic, row.timestampType, row.ms) == ("orders", 0, record.timestamp_ms)
        assert tuple((h.key, bytes(h.value)) for h in row.headers) == record.headers


@pytest.mark.parametrize("options", [{"minPartitions": 9}, {"maxRecordsPerPartition": 7}])
def test_a_partition_that_is_split_gives_the_same_records(
    spark: SparkSession, tmp_path: Path, options: dict[str, int]
) -> None:
    fill_topic(tmp_path, "orders", seed=2)

    frame = load(spark, tmp_path, **options)

    assert frame.rdd.getNumPartitions() > 6
    assert rows_of(frame) == plain_log(tmp_path, "orders")


def test_the_latest_view_is_what_a_dict_would_hold(spark: SparkSession, tmp_path: Path) -> None:
    fill_topic(tmp_path, "orders", seed=3, config={"cleanup.policy": "compact"})
    expected = plain_latest(tmp_path, "orders")

    assert rows_of(load(spark, tmp_path, view="latest")) == expected
    hidden = load(spark, tmp_path, view="latest", includeTombstones=True).where("value is null")
    dead = {r[:1] + r[2:3] for r in plain_log(tmp_path, "orders")} - {
        r[:1] + r[2:3] for r in expected
    }
    assert {(bytes(r.key), r.partition) for r in hidden.collect()} == dead
    register(spark, tmp_path)
    assert rows_of(spark.sql("SELECT * FROM silt.orders")) == expected


def test_a_read_begins_and_ends_where_the_offsets_say(spark: SparkSession, tmp_path: Path) -> None:
    fill_topic(tmp_path, "orders", seed=4)
    everything = plain_log(tmp_path, "orders")
    timestamps = sorted(
        r.timestamp_ms for rs in read_records(tmp_path, "orders").values() for r in rs
    )
    middle_ms = timestamps[len(timestamps) // 2]

    some = load(
        spark,
        tmp_path,
        startingOffsets='{"orders":{"0":5,"1":-2}}',
        endingOffsets='{"orders":{"0":20,"1":-1}}',
    )
    one = load(spark, tmp_path, assign='{"orders":[1]}')
    late = load(spark, tmp_path, startingTimestamp=middle_ms)

    assert rows_of(some) == [r for r in everything if r[2] == 1 or 5 <= r[3] < 20]
    assert rows_of(one) == [r for r in everything if r[2] == 1]
    expected = []
    for number, records in read_records(tmp_path, "orders").items():
        first = min(r.offset for r in records if r.timestamp_ms >= middle_ms)
        expected += [r for r in everything if r[2] == number and r[3] >= first]
    assert rows_of(late) == sorted(expected, key=lambda row: row[2:])


CONDITIONS = [
    "key = CAST('key-3' AS BINARY)",
    "key IN (CAST('key-3' AS BINARY), CAST('key-4' AS BINARY)) AND partition = 1",
    "partition = 1 AND offset >= 20 AND offset < 33",
    "offset IN (3, 17) OR partition = 0",
    "timestamp >= timestamp_millis(1700000020000)",
    "timestamp < timestamp_millis(1700000009000) AND value IS NOT NULL",
    "topic = 'other'",
    "key IS NULL",
    "NOT (offset <= 10)",
]


@pytest.mark.parametrize("view", ["log", "latest"])
def test_a_filter_that_is_pushed_down_gives_what_it_gives_otherwise(
    spark: SparkSession, tmp_path: Path, view: str
) -> None:
    fill_topic(tmp_path, "orders", seed=5)

    def find() -> list[tuple[int, int, int]]:
        frames = [
            load(spark, tmp_path, view=view)
            .where(condition)
            .select(F.lit(number).alias("number"), "partition", "offset")
            for number, condition in enumerate(CONDITIONS)
        ]
        return sorted(tuple(row) for row in reduce(DataFrame.union, frames).collect())

    plain = find()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = find()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")

    assert pushed == plain
    found = {number for number, _, _ in plain}
    assert found >= {0, 1, 3, 4, 8}
    assert not found & {6, 7}


def test_a_filter_that_is_pushed_down_reads_less(tmp_path: Path) -> None:
    fill_topic(tmp_path, "orders", seed=6, batch_count=400)

    def planned_bytes(*filters: object) -> int:
        options = {"path": str(tmp_path), "subscribe": "orders"}
        reader = BatchReader(parse_source_options(options, is_streaming=False))
        reader.pushFilters(list(filters))  # type: ignore[arg-type]
        return sum(p.size_bytes for p in reader.partitions() if isinstance(p, LogRange))

    everything = planned_bytes()
    assert 0 < planned_bytes(EqualTo(("partition",), 1)) < 0.7 * everything
    assert 0 < planned_bytes(LessThan(("offset",), 50)) < 0.2 * everything
    assert 0 < planned_bytes(EqualTo(("offset",), 50)) < 0.05 * everything
    late = datetime.fromtimestamp(1_700_000_380, UTC)
    assert 0 < planned_bytes(GreaterThanOrEqual(("timestamp",), late)) < 0.2 * everything
    assert planned_bytes(EqualTo(("topic",), "other")) == 0


def test_a_gap_made_by_compaction_is_no_data_loss_but_deleted_records_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill_topic(tmp_path, "orders", seed=7)
    with LogManager([tmp_path]) as manager:
        manager.get_log(TopicPartition("orders", 0)).delete_records(12)
    start = '{"orders":{"0":3,"1":0}}'

    with pytest.raises(PySparkException, match="offsets 3 to 11 were deleted"):
        load(spark, tmp_path, startingOffsets=start).count()

    frame = load(spark, tmp_path, startingOffsets=start, failOnDataLoss=False)
    assert rows_of(frame) == [r for r in plain_log(tmp_path, "orders") if r[2] == 1 or r[3] >= 12]


def test_a_dataframe_is_appended_with_keys_headers_and_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill_topic(tmp_path, "orders", seed=8, partition_count=3, batch_count=0)
    frame = spark.range(300).selectExpr(
        "cast(id % 20 as string) as key",
        "if(id % 7 = 0, null, cast(id as string)) as value",
        "if(id % 5 = 0, 2, null) as partition",
        "array(named_struct('key', 'h', 'value', cast(id as string) || '' )) as headers",
    )
    frame = frame.selectExpr(
        "key",
        "value",
        "partition",
        "transform(headers, h -> "
        "named_struct('key', h.key, 'value', cast(h.value as binary))) as headers",
    )

    writer = frame.repartition(4).write.format("siltstone").mode("append")
    writer.option("topic", "orders").option("includeHeaders", "true").save(str(tmp_path))

    back = load(spark, tmp_path, includeHeaders=True).selectExpr(
        "cast(headers[0].value as string) as id",
        "cast(key as string) as key",
        "cast(value as string) as value",
        "partition",
    )
    found = {int(r.id): r for r in back.collect()}
    assert sorted(found) == list(range(300))
    for number, row in found.items():
        assert row.key == str(number % 20)
        assert row.value == (None if number % 7 == 0 else str(number))
        assert number % 5 or row.partition == 2
    assert not [p.name for p in tmp_path.iterdir() if p.name.endswith(".staged")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bogus": 1}, "unknown setting bogus"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "does not name orders-1"),
        ({"startingTimestamp": 9_999_999_999_999}, "has no record at or after timestamp"),
        ({"assign": '{"orders":[7]}'}, "topic orders has no partition 7"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(
    spark: SparkSession, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    fill_topic(tmp_path, "orders", seed=9, batch_count=6)

    with pytest.raises(AnalysisException, match=message):
        load(spark, tmp_path, **options).count()
