"""A record of a table, as `--output json` shows it."""

from typing import Any

from siltstone.cli.output import encode_bytes
from siltstone.records.batch import TimestampType
from siltstone.table.table import TableRecord


def to_json(topic: str, record: TableRecord) -> dict[str, Any]:
    """Describe a record."""
    key, value = encode_bytes(record.key), encode_bytes(record.value)
    is_create_time = record.timestamp_type is TimestampType.CREATE_TIME
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "create" if is_create_time else "logappend",
        "key": key.text,
        "key_encoding": key.encoding,
        "value": value.text,
        "value_encoding": value.encoding,
        "headers": [
            {"key": name, "value": data.text, "value_encoding": data.encoding}
            for name, data in ((name, encode_bytes(data)) for name, data in record.headers)
        ],
    }
