"""DataFrames of the source, and their rows as the plain walk over a log gives them."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.source_logs import Row


def load(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    """Load the topic `orders`, unless the options say otherwise."""
    given = {"subscribe": "orders", **{name: str(value) for name, value in options.items()}}
    if "assign" in given or "subscribePattern" in given:
        del given["subscribe"]
    return spark.read.format("siltstone").options(**given).load(str(path))


def rows_of(frame: DataFrame) -> list[Row]:
    """Return key, value, partition and offset of every row, by partition and offset."""
    found = frame.select("key", "value", "partition", "offset").collect()
    plain = [
        (
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            r.partition,
            r.offset,
        )
        for r in found
    ]
    return sorted(plain, key=lambda row: row[2:])
