"""The other way to the latest value of every key: Spark's window function, over Parquet.

A process of its own, with a Spark as it comes: both compilers, 4 GiB, two cores. For each line that
it reads it does the work once, and says on one line of JSON how long that took.

    python benchmarks/spark_window.py RECORDS KEY_BYTES

RECORDS are lines of offset, key and value, which become Parquet before anything is measured; that
lies beside them and is gone in the end.
"""

import json
import shutil
import sys
import time
from typing import Final

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

OFFSET_DIGITS: Final = 12


def main() -> None:
    lines, key_bytes = sys.argv[1], int(sys.argv[2])
    source, target = f"{lines}.parquet", f"{lines}-latest.parquet"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    line, end = F.col("value"), OFFSET_DIGITS + key_bytes + 1
    spark.read.text(lines).select(
        F.substring(line, 1, OFFSET_DIGITS).cast("long").alias("offset"),
        F.substring(line, OFFSET_DIGITS + 1, key_bytes).cast("binary").alias("key"),
        F.substring(line, end, 1 << 20).cast("binary").alias("value"),
    ).write.parquet(source)
    newest_first = Window.partitionBy("key").orderBy(F.desc("offset"))
    for _ in sys.stdin:
        started = time.perf_counter()
        records = spark.read.parquet(source)
        latest = records.withColumn("age", F.row_number().over(newest_first)).where("age = 1")
        latest.drop("age").write.mode("overwrite").parquet(target)
        seconds = time.perf_counter() - started
        rows = spark.read.parquet(target).count()
        print(json.dumps({"seconds": seconds, "rows": rows}), flush=True)
    spark.stop()
    shutil.rmtree(source)
    shutil.rmtree(target)


if __name__ == "__main__":
    main()
