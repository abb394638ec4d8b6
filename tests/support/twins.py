"""Kernels and their plain twins, side by side: they must accept, refuse and explain alike."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from siltstone.errors import DecodeError
from siltstone.records.batch import Batch, BatchHeader, read_batch
from siltstone.records.record import Record
from siltstone.records.scan import (
    RecordCheck,
    Scan,
    check_records,
    plain_check_records,
    plain_walk,
    scan,
    walk,
)
from tests.support.strategies import BatchCase, join_batches

_MAX_LONG = 2**63 - 1


class Refusal(NamedTuple):
    """The words of an error, which must be the same from both."""

    text: str


class IndexedRecord(NamedTuple):
    """A record as the kernel found it: all but the contents of its headers."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value_length: int
    header_count: int
    size_bytes: int


def attempt(act: Callable[[], Any]) -> Any:
    """Return a result or a refusal; any other error is a finding."""
    try:
        return act()
    except DecodeError as error:
        return Refusal(str(error))


def read_plainly(data: bytes, limit_bytes: int) -> list[Record] | Refusal:
    """Read one batch without a kernel: header, checksum, records, marker."""

    def read() -> list[Record]:
        batch = read_batch(data)
        batch.check_crc()
        records = list(batch.iter_records(limit_bytes))
        batch.marker()
        return records

    found: list[Record] | Refusal = attempt(read)
    return found


def compare_walks(data: bytes, next_offset: int = 0) -> list[Batch]:
    """Walk some bytes both ways, and return the batches that were found."""
    found = walk(data, next_offset=next_offset)
    batches: list[tuple[int, Batch]] = []
    refusal = None
    try:
        for entry in plain_walk(data, next_offset=next_offset):
            batches.append(entry)
    except DecodeError as error:
        refusal = str(error)
    end = batches[-1][0] + batches[-1][1].header.size_bytes if batches else 0
    assert found.stop_position == end
    assert (None if found.refusal is None else str(found.refusal)) == refusal
    assert [_from_row(row) for row in found.batches] == [
        _from_header(position, batch.header) for position, batch in batches
    ]
    return [batch for _, batch in batches]


def compare_scans(data: bytes, limit_bytes: int, next_offset: int = 0) -> list[Record] | Refusal:
    """Index the records of sound batches both ways, and return them or the refusal."""
    batches = walk(data, next_offset=next_offset).batches
    found = attempt(lambda: _indexed(scan(data, batches, limit_bytes=limit_bytes)))
    records: list[Record] = []
    try:
        for row in batches:
            position = int(row["position"])
            records += read_batch(data, position).iter_records(limit_bytes)
    except DecodeError as error:
        refusal = Refusal(f"position {position + error.position}: {error.reason}")
        assert found == refusal
        return refusal
    assert not isinstance(found, Refusal), found
    assert [entry._replace(size_bytes=0) for entry in found] == [_plain(r) for r in records]
    return records


def compare_checks(batch: Batch, limit_bytes: int) -> RecordCheck | Refusal:
    """Check the records of a producer's batch both ways, and return what was found."""
    result: RecordCheck | Refusal = Refusal("")
    for needs_keys, oldest_ms in ((False, -_MAX_LONG), (True, batch.header.base_timestamp_ms)):
        arguments: dict[str, Any] = {
            "needs_keys": needs_keys,
            "oldest_ms": oldest_ms,
            "newest_ms": _MAX_LONG,
            "limit_bytes": limit_bytes,
        }
        result = attempt(partial(check_records, batch, **arguments))
        assert result == attempt(partial(plain_check_records, batch, **arguments))
    return result


def _indexed(found: Scan) -> list[IndexedRecord]:
    records = []
    number = 0
    for row, payload in zip(found.batches, found.payloads, strict=True):
        for _ in range(int(row["record_count"])):
            record = found.records[number]
            number += 1
            start, length = int(record["key_position"]), int(record["key_length"])
            records.append(
                IndexedRecord(
                    int(record["offset"]),
                    int(record["timestamp_ms"]),
                    None if length < 0 else payload[start : start + length].tobytes(),
                    int(record["value_length"]),
                    int(record["header_count"]),
                    int(record["size_bytes"]),
                )
            )
    assert number == len(found.records)
    return records


def _plain(record: Record) -> IndexedRecord:
    return IndexedRecord(
        record.offset,
        record.timestamp_ms,
        record.key,
        -1 if record.value is None else len(record.value),
        len(record.headers),
        0,
    )


def _from_row(row: Any) -> tuple[int, ...]:
    return tuple(
        int(row[name])
        for name in (
            "position",
            "base_offset",
            "last_offset",
            "base_timestamp_ms",
            "max_timestamp_ms",
            "producer_id",
            "size_bytes",
            "leader_epoch",
            "base_sequence",
            "record_count",
            "producer_epoch",
            "attributes",
        )
    )


def _from_header(position: int, header: BatchHeader) -> tuple[int, ...]:
    return (
        position,
        header.base_offset,
        header.last_offset,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.size_bytes,
        header.leader_epoch,
        header.base_sequence,
        header.record_count,
        header.producer_epoch,
        header.attributes,
    )


def check_sound_segment(cases: list[BatchCase], next_offset: int, limit_bytes: int) -> None:
    """Let kernels and twins walk and scan a segment, and hold what they find against its cases."""
    data = join_batches(cases)

    batches = compare_walks(data)
    records = compare_scans(data, limit_bytes)
    compare_walks(data, next_offset)

    assert len(batches) == len(cases)
    assert records == [record for case in cases for record in case.read_records()]
