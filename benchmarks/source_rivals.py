"""Other ways to the latest value of each key: Spark's own over Parquet, and a Kafka client's."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from benchmarks.harness import WrongAnswerError
from siltstone.table.columns import SCHEMA

_AT_ONCE: Final = 10_000
_TIMEOUT_SECONDS: Final = 30.0


def latest_by_window(frame: DataFrame) -> DataFrame:
    """Let Spark find the latest rows with a window."""
    order = Window.partitionBy("key").orderBy(F.desc("offset"))
    ranked = frame.withColumn("rank", F.row_number().over(order))
    return ranked.where("rank = 1 and value is not null").drop("rank")


def latest_by_max(frame: DataFrame) -> DataFrame:
    """Let Spark find the latest rows with `max_by`."""
    row = F.struct(*[name for name in frame.columns if name != "key"])
    grouped = frame.groupBy("key").agg(F.max_by(row, "offset").alias("row"))
    return grouped.where("row.value is not null").select("key", "row.*")


def export_by_client(bootstrap: str, topic: str, record_count: int, target: Path) -> None:
    """Consume the first records of partition 0 into a dict, and write what is left to Parquet."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    latest: dict[bytes | None, tuple[bytes, int | None, int]] = {}
    count = 0
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while count < record_count:
            messages = consumer.consume(min(_AT_ONCE, record_count - count), _TIMEOUT_SECONDS)
            if not messages:
                raise WrongAnswerError(f"the client got {count} records of {record_count}")
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                key, value = message.key(), message.value()
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = value, message.offset(), message.timestamp()[1]
            count += len(messages)
    finally:
        consumer.close()
    values, offsets, timestamps_ms = zip(*latest.values(), strict=True)
    row_count = len(latest)
    columns = [
        pa.array(latest.keys(), pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat(topic, row_count),
        pa.repeat(pa.scalar(0, pa.int32()), row_count),
        pa.array(offsets, pa.int64()),
        pa.array(timestamps_ms, pa.int64()).view(pa.timestamp("ms", tz="UTC")),
        pa.repeat(pa.scalar(0, pa.int32()), row_count),
    ]
    target.mkdir()
    pq.write_table(pa.table(columns, schema=SCHEMA), target / "latest.parquet")
