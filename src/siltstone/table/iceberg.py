"""Export to Iceberg, through pyiceberg and a catalog in an SQLite file beside the data."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from siltstone.errors import MissingExtraError
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.table.columns import SCHEMA
from siltstone.table.export import OFFSETS_METADATA, ExportResult, read_delta

CATALOG: Final = "catalog.db"
_NAMESPACE: Final = "silt"
_KEYS_PER_DELETE: Final = 5_000
_TOPIC_ID_PROPERTY: Final = "siltstone.topic-id"


def export_iceberg(
    reader: LogReader, topic: str, partitions: Sequence[int], target: Path
) -> ExportResult:
    """Write the table of a topic to the Iceberg table `silt.<topic>`, or bring it up to date."""
    try:
        from pyiceberg import expressions  # noqa: PLC0415
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - an optional package
    except ImportError:
        raise MissingExtraError("Iceberg", "iceberg") from None
    target = target.absolute()
    target.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(_NAMESPACE, uri=f"sqlite:///{target / CATALOG}", warehouse=target.as_uri())
    catalog.create_namespace_if_not_exists(_NAMESPACE)
    name = f"{_NAMESPACE}.{topic}"
    is_new = not catalog.table_exists(name)
    # Iceberg knows microseconds only.
    schema = SCHEMA.set(5, pa.field("timestamp", pa.timestamp("us", tz="UTC")))
    table: Any = catalog.create_table_if_not_exists(name, schema)
    topic_id = str(reader.describe(topic).topic_id)
    stored_id = table.properties.get(_TOPIC_ID_PROPERTY, topic_id)
    exported = {} if is_new else _read_offsets(table, topic)
    # A topic that was deleted and made anew has other offsets: all that is there goes.
    known = exported if stored_id == topic_id else {}
    # Its own type hints know only the names of a base class's fields.
    made: Any = expressions
    ends = dict(known)
    changed = 0
    before = _data_files(table)
    with table.transaction() as transaction:
        for number in exported.keys() - known.keys():
            transaction.delete(made.EqualTo("partition", number))
        for number in partitions:
            delta = read_delta(reader, TopicPartition(topic, number), known.get(number))
            ends[number] = delta.end_offset
            changed += delta.rows.num_rows
            if delta.is_everything and number in known:
                transaction.delete(made.EqualTo("partition", number))
            elif number in known:
                keys = delta.rows["key"].to_pylist()
                for at in range(0, len(keys), _KEYS_PER_DELETE):
                    chosen = made.In("key", keys[at : at + _KEYS_PER_DELETE])
                    transaction.delete(made.And(made.EqualTo("partition", number), chosen))
            live = delta.live_rows()
            if live.num_rows:
                transaction.append(live.cast(schema))
        transaction.set_properties(
            {OFFSETS_METADATA: json.dumps({topic: ends}), _TOPIC_ID_PROPERTY: topic_id}
        )
    written = len(_data_files(table) - before)
    return ExportResult(changed, written, {number: ends[number] for number in partitions})


def _data_files(table: Any) -> set[str]:
    return {task.file.file_path for task in table.scan().plan_files()}


def _read_offsets(table: Any, topic: str) -> dict[int, int]:
    stored = json.loads(table.properties.get(OFFSETS_METADATA, "{}"))
    return {int(number): offset for number, offset in stored.get(topic, {}).items()}
