"""Copy the topic `orders` of some log directories to `copy`, and end when all is copied.

    python tests/spark/copy_stream.py DIRECTORY...

Each directory has `logs`, and gets `checkpoint`. A streaming query for each, side by side.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from siltstone.spark.session import Session
from siltstone.spark.source.register import register


def start_query(spark: SparkSession, directory: Path) -> StreamingQuery:
    path = str(directory / "logs")
    source = spark.readStream.format("siltstone").option("subscribe", "orders")
    rows = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 30)
        .option("minPartitions", 3)
        .load(path)
        .select("key", "value")
    )
    return (
        rows.writeStream.format("siltstone")
        .option("topic", "copy")
        .option("path", path)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def main(*directories: str) -> None:
    session = Session("local[2]", {})
    session.start()  # In a JVM that is made to start fast.
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    for query in [start_query(spark, Path(directory)) for directory in directories]:
        query.awaitTermination()
    session.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
