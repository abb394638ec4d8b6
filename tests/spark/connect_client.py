"""What a client of Spark Connect can do, as lines of JSON; the server is started with it.

python tests/spark/connect_client.py LOGS
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from siltstone.spark.source.register import register
from siltstone.spark.source.schema import read_bounds


def tell(name: str, answer: Any) -> None:
    sys.stdout.write(json.dumps({name: answer}) + "\n")


def offsets_of(frame: DataFrame) -> list[list[int]]:
    return sorted([row.partition, row.offset] for row in frame.collect())


def main(path: str) -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", f"{path}-warehouse")
        .getOrCreate()
    )

    def load(**options: str) -> DataFrame:
        return spark.read.format("siltstone").options(subscribe="orders", **options).load(path)

    register(spark)
    register(spark, path, view="latest")
    tell("log", offsets_of(load()))
    tell("latest in stages", offsets_of(load(view="latest", minPartitions="4")))
    tell("bounds", read_bounds(load(view="latest")))
    tell("sql", offsets_of(spark.sql("SELECT partition, offset FROM silt.orders")))
    writer = load().select("key", "value").write.format("siltstone").mode("append")
    writer.option("topic", "copy").save(path)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
