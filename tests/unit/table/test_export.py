"""Exports, read back by Parquet's and Iceberg's own readers."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from siltstone.errors import StorageError
from siltstone.log.log_reader import LogReader
from siltstone.table import export as export_module
from siltstone.table.export import ExportResult, export_parquet
from siltstone.table.iceberg import export_iceberg
from tests.support.orders import EXPECTED, Owner

PARTITIONS = [0, 1, 2]


def to_parquet(owner: Owner, target: Path) -> ExportResult:
    return export_parquet(LogReader([owner.path]), "orders", PARTITIONS, target)


def to_iceberg(owner: Owner, target: Path) -> ExportResult:
    return export_iceberg(LogReader([owner.path]), "orders", PARTITIONS, target)


def as_dict(table: pa.Table) -> dict[bytes, bytes]:
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def read_iceberg(target: Path) -> dict[bytes, bytes]:
    catalog = SqlCatalog("silt", uri=f"sqlite:///{target / 'catalog.db'}")
    return as_dict(catalog.load_table("silt.orders").scan().to_arrow())


def test_a_parquet_export_is_the_table(owner: Owner, tmp_path: Path) -> None:
    result = to_parquet(owner, tmp_path / "out")

    read = pq.read_table(tmp_path / "out")
    assert as_dict(read) == EXPECTED
    assert result.rows_changed == 9
    names = sorted(path.name for path in (tmp_path / "out").glob("*.parquet"))
    metadata = pq.read_metadata(tmp_path / "out" / names[0]).metadata
    assert metadata[b"siltstone.offsets"].startswith(b'{"orders": {')


def test_a_second_export_writes_only_the_buckets_that_changed(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "_BUCKET_KEYS", 2)
    to_parquet(owner, tmp_path / "out")
    before = {path.name for path in (tmp_path / "out").glob("*.parquet")}
    owner.put(b"key-1", b"new")

    result = to_parquet(owner, tmp_path / "out")

    after = {path.name for path in (tmp_path / "out").glob("*.parquet")}
    assert result.rows_changed == result.files_written == 1
    assert len(before - after) == len(after - before) == 1
    assert as_dict(pq.read_table(tmp_path / "out")) == {**EXPECTED, b"key-1": b"new"}


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_second_export_takes_deleted_keys_out(
    owner: Owner, tmp_path: Path, is_cleaned: bool
) -> None:
    to_parquet(owner, tmp_path / "out")
    to_iceberg(owner, tmp_path / "ice")
    owner.put(b"key-1", None)
    owner.put(b"key-3", b"back")
    if is_cleaned:
        owner.clean()
        owner.clock.advance_ms(10 * 86_400_000)
        owner.put(b"key-5", b"5")
        owner.clean()  # the tombstones are gone now
    expected = {**EXPECTED, b"key-3": b"back"}
    expected.update({b"key-5": b"5"} if is_cleaned else {})
    del expected[b"key-1"]

    to_parquet(owner, tmp_path / "out")
    to_iceberg(owner, tmp_path / "ice")

    assert as_dict(pq.read_table(tmp_path / "out")) == expected
    assert read_iceberg(tmp_path / "ice") == expected


def test_an_iceberg_export_is_the_table_and_knows_its_offsets(owner: Owner, tmp_path: Path) -> None:
    first = to_iceberg(owner, tmp_path / "ice")
    again = to_iceberg(owner, tmp_path / "ice")

    assert read_iceberg(tmp_path / "ice") == EXPECTED
    assert (first.rows_changed, again.rows_changed) == (9, 0)
    assert first.end_offsets == again.end_offsets


def test_a_second_iceberg_export_leaves_the_files_of_unchanged_partitions_alone(
    owner: Owner, tmp_path: Path
) -> None:
    def data_files() -> set[str]:
        catalog = SqlCatalog("silt", uri=f"sqlite:///{tmp_path / 'catalog.db'}")
        files = catalog.load_table("silt.orders").inspect.files()
        return set(files["file_path"].to_pylist())

    to_iceberg(owner, tmp_path)
    before = data_files()
    owner.put(b"key-1", b"new")

    result = to_iceberg(owner, tmp_path)

    after = data_files()
    assert result.files_written == len(after - before)
    assert len(before) == 3
    assert len(before - after) == 1  # the one with the old value
    assert read_iceberg(tmp_path) == {**EXPECTED, b"key-1": b"new"}


def test_files_of_others_are_left_alone(owner: Owner, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "theirs.parquet").write_bytes(b"")

    with pytest.raises(StorageError, match="export to another directory"):
        to_parquet(owner, target)


@pytest.mark.parametrize("is_iceberg", [False, True])
def test_a_topic_that_was_made_anew_is_exported_anew(
    owner: Owner, tmp_path: Path, is_iceberg: bool
) -> None:
    export = to_iceberg if is_iceberg else to_parquet
    export(owner, tmp_path / "out")
    owner.manager.delete_topic("orders")
    owner.manager.create_topic("orders", 3, {"cleanup.policy": "compact"})
    owner.put(b"key-1", b"of the new topic")

    export(owner, tmp_path / "out")

    found = (
        read_iceberg(tmp_path / "out") if is_iceberg else as_dict(pq.read_table(tmp_path / "out"))
    )
    assert found == {b"key-1": b"of the new topic"}


def test_a_manifest_that_makes_no_sense_is_no_bug(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "_silt-export.json").write_bytes(b'{"version": 1, "topic": "orders"}')

    with pytest.raises(StorageError, match=r"makes no sense .'partitions'.: export to another"):
        to_parquet(owner, tmp_path)
