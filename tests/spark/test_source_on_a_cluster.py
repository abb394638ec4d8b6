"""The source in a plain session on a standalone cluster, whose workers do not have the package."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from siltstone.spark.source.register import register
from siltstone.spark.source.staged_read import read_in_stages
from tests.spark.cluster import Cluster
from tests.spark.conftest import Engines
from tests.spark.source_logs import fill_topic, plain_latest, plain_log


@pytest.mark.slow
def test_executors_without_the_package_read_and_write_topics(
    engines: Engines, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines.close()  # Spark allows one context in a process.
    path = tmp_path / "logs"
    fill_topic(path, "orders", seed=1)
    fill_topic(path, "copy", seed=1, batch_count=0)
    monkeypatch.setenv("PYSPARK_PYTHON", str(cluster.python))
    builder = SparkSession.builder.master(cluster.master).appName("source")
    for name, value in cluster.conf.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path / "warehouse"))
    # Of tests before, whose settings the JVM keeps.
    builder = builder.config("spark.python.daemon.module", "pyspark.daemon")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        register(spark, path, view="latest")
        orders = spark.read.format("siltstone").options(subscribe="orders", minPartitions="6")
        rows = orders.load(str(path)).select("key", "value", "partition")
        writer = rows.write.format("siltstone").mode("append").option("topic", "copy")
        writer.save(str(path))
        live = spark.sql("SELECT key, value, partition, offset FROM silt.orders").collect()
        by_tasks = read_in_stages(
            spark, path, subscribe="orders", view="latest", minPartitions="4"
        ).select("key", "value", "partition", "offset")
        found_by_tasks = by_tasks.collect()
    finally:
        spark.stop()

    copied, original = plain_log(path, "copy"), plain_log(path, "orders")
    assert Counter(row[:3] for row in copied) == Counter(row[:3] for row in original)
    assert sorted((r.partition, r.offset, bytes(r.key), bytes(r.value)) for r in live) == sorted(
        (partition, offset, key, value)
        for key, value, partition, offset in plain_latest(path, "orders")
    )
    assert sorted(found_by_tasks) == sorted(live)
