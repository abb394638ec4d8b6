"""What `--as-of` means for each partition: an offset, offsets by partition, or a time."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from siltstone.errors import UsageError
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.table.views import find_offset_as_of


def resolve_as_of(
    reader: LogReader, partitions: Sequence[TopicPartition], text: str | None
) -> dict[int, int]:
    """Return the end offset of each partition that is not to be read to its end."""
    if text is None:
        return {}
    if text.startswith("{"):
        offsets = _parse_offsets(text)
        for number in sorted(offsets.keys() - {partition.partition for partition in partitions}):
            raise UsageError(f"--as-of {text}: partition {number} is not read")
        return offsets
    if text.isdecimal():
        return {partition.partition: int(text) for partition in partitions}
    timestamp_ms = _parse_time(text)
    found = {p.partition: find_offset_as_of(reader.get_log(p), timestamp_ms) for p in partitions}
    return {number: offset for number, offset in found.items() if offset is not None}


def _parse_offsets(text: str) -> dict[int, int]:
    try:
        return {int(number): int(offset) for number, offset in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f'--as-of {text}: write {{"0":23,"1":45}}, partition and offset') from None


def _parse_time(text: str) -> int:
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--as-of {text}: write an offset, offsets by partition as JSON, @MS, or a time like "
            "2026-01-31T12:00:00Z"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
