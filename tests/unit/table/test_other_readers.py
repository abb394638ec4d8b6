"""What DuckDB, Polars and pandas make of a table and of its exports."""

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from siltstone.log.log_reader import LogReader
from siltstone.table.export import export_parquet
from siltstone.table.iceberg import export_iceberg
from siltstone.table.request import View, ViewRequest
from tests.support.orders import EXPECTED, Owner, open_table

PARTITIONS = [0, 1, 2]
KEY_AND_VALUE = 'SELECT "key", "value" FROM found'


def ask(question: str, found: object = None) -> list[Any]:
    """Ask DuckDB, which knows what was found by that name."""
    with duckdb.connect() as connection:
        if found is not None:
            connection.register("found", found)
        return connection.execute(question).fetchall()


def test_duckdb_reads_the_stream(owner: Owner) -> None:
    assert dict(ask(KEY_AND_VALUE, open_table(owner).to_arrow())) == EXPECTED


def test_duckdb_reads_other_views_by_column(owner: Owner) -> None:
    found = open_table(owner).to_arrow(ViewRequest(view=View.LOG))

    (row,) = ask('SELECT count(*), count("value"), count(DISTINCT "key") FROM found', found)

    assert row == (31, 30, 10)


def test_polars_reads_the_stream(owner: Owner) -> None:
    frame = pl.from_arrow(open_table(owner).to_arrow())

    assert isinstance(frame, pl.DataFrame)
    assert dict(frame.select("key", "value").iter_rows()) == EXPECTED
    assert frame["timestamp"].dtype == pl.Datetime("ms", "UTC")


def test_pandas_reads_the_stream(owner: Owner) -> None:
    frame = open_table(owner).to_arrow().read_pandas()

    assert dict(zip(frame["key"], frame["value"], strict=True)) == EXPECTED
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"


def test_duckdb_reads_a_parquet_export_before_and_after_an_update(
    owner: Owner, tmp_path: Path
) -> None:
    def exported() -> dict[bytes, bytes]:
        export_parquet(LogReader([owner.path]), "orders", PARTITIONS, tmp_path)
        return dict(ask(f'FROM read_parquet(\'{tmp_path}/*.parquet\') SELECT "key", "value"'))

    assert exported() == EXPECTED
    owner.put(b"key-1", None)
    owner.put(b"new", b"1")
    expected = {**EXPECTED, b"new": b"1"}
    del expected[b"key-1"]
    assert exported() == expected


@pytest.mark.parametrize("is_changed", [False, True])
def test_duckdb_reads_an_iceberg_export_through_arrow(
    owner: Owner, tmp_path: Path, is_changed: bool
) -> None:
    export_iceberg(LogReader([owner.path]), "orders", PARTITIONS, tmp_path)
    expected = dict(EXPECTED)
    if is_changed:
        owner.put(b"key-2", b"changed")
        expected[b"key-2"] = b"changed"
        export_iceberg(LogReader([owner.path]), "orders", PARTITIONS, tmp_path)
    catalog = SqlCatalog("silt", uri=f"sqlite:///{tmp_path / 'catalog.db'}")

    found = catalog.load_table("silt.orders").scan().to_arrow()

    assert found.num_rows == len(expected)
    assert dict(ask(KEY_AND_VALUE, found)) == expected
