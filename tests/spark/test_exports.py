"""Exports of the table, read by Spark itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from siltstone.log.log_reader import LogReader
from siltstone.table.export import export_parquet
from tests.spark.conftest import Engines
from tests.support.orders import EXPECTED, Owner, make_orders


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    """An owner at work."""
    owner = make_orders(tmp_path / "data")
    yield owner
    owner.manager.close()


def test_spark_reads_a_parquet_export_before_and_after_an_update(
    engines: Engines, owner: Owner, tmp_path: Path
) -> None:
    engines.get().start()
    spark = SparkSession.builder.getOrCreate()

    def exported() -> dict[bytes, bytes]:
        export_parquet(LogReader([owner.path]), "orders", [0, 1, 2], tmp_path / "out")
        rows = spark.read.parquet(str(tmp_path / "out")).select("key", "value").collect()
        return {bytes(row.key): bytes(row.value) for row in rows}

    assert exported() == EXPECTED
    owner.put(b"key-1", None)
    owner.put(b"new", b"1")
    owner.clean()
    expected = {**EXPECTED, b"new": b"1"}
    del expected[b"key-1"]
    assert exported() == expected
