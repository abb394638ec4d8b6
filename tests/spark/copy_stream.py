"""Copy the topic `orders` to `copy` with a streaming query, and end when all is copied."""

import sys

from pyspark.sql import SparkSession

from siltstone.spark.source.register import register


def main(path: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.daemon.module", "siltstone.spark.daemon")
        .getOrCreate()
    )
    register(spark)
    source = spark.readStream.format("siltstone").option("subscribe", "orders")
    rows = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .option("minPartitions", 3)
        .load(path)
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("siltstone")
        .option("topic", "copy")
        .option("path", path)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
