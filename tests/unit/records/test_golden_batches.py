"""Every batch in the golden files, read by us, is what Kafka itself found in them."""

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from siltstone.records.batch import Batch, TimestampType, iter_batches
from siltstone.records.builder import build_batch, build_empty_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record

GOLDEN = Path(__file__).parents[2] / "golden"


@dataclass(frozen=True)
class GoldenSegment:
    """A segment that Kafka wrote, and Kafka's own description of its batches."""

    path: Path
    described: list[dict[str, Any]]

    def read(self) -> list[tuple[int, Batch]]:
        return list(iter_batches(self.path.read_bytes()))


def golden_segments() -> list[GoldenSegment]:
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    return [
        GoldenSegment(
            GOLDEN / log_dir / partition / f"{segment['base_offset']:020}.log", segment["batches"]
        )
        for log_dir, contents in manifest["log_dirs"].items()
        for partition, described in contents["partitions"].items()
        for segment in described["segments"]
    ]


SEGMENTS = golden_segments()
every_segment = pytest.mark.parametrize(
    "segment", SEGMENTS, ids=lambda segment: str(segment.path.relative_to(GOLDEN))
)


def describe_header(position: int, batch: Batch) -> dict[str, Any]:
    header = batch.header
    is_create_time = header.timestamp_type is TimestampType.CREATE_TIME
    return {
        "position": position,
        "size": header.size_bytes,
        "magic": header.magic,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "crc": header.crc,
        "is_valid": True,
        "codec": header.codec.label,
        "timestamp_type": "CreateTime" if is_create_time else "LogAppendTime",
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "leader_epoch": header.leader_epoch,
        "attributes": header.attributes,
        "delete_horizon_ms": header.delete_horizon_ms,
    }


def describe_bytes(data: bytes | None) -> object:
    if data is None:
        return None
    if len(data) > 1024:
        return {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return base64.b64encode(data).decode()


def describe_record(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": describe_bytes(record.key),
        "value": describe_bytes(record.value),
        "headers": [[key, describe_bytes(value)] for key, value in record.headers],
    }


@every_segment
def test_headers_are_what_kafka_says_they_are(segment: GoldenSegment) -> None:
    found = segment.read()

    for _, batch in found:
        batch.check_crc()
    assert [describe_header(*pair) for pair in found] == [
        {name: value for name, value in batch.items() if name != "records"}
        for batch in segment.described
    ]


@every_segment
def test_records_are_what_kafka_says_they_are(segment: GoldenSegment) -> None:
    found = [
        [describe_record(record) for record in batch.iter_records()] for _, batch in segment.read()
    ]

    assert found == [
        [
            {name: value for name, value in record.items() if name not in ("size", "sequence")}
            for record in batch["records"]
        ]
        for batch in segment.described
    ]


@every_segment
def test_our_builder_makes_of_kafkas_records_what_kafka_made(segment: GoldenSegment) -> None:
    for _, batch in segment.read():
        header = batch.header
        if header.is_empty:
            assert build_empty_batch(header) == batch.data
            continue
        rebuilt = build_batch(
            # Without the bit, records read with the timestamps that their producer gave them.
            Batch(header._replace(attributes=header.attributes & ~0x08), batch.data).iter_records(),
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            max_timestamp_ms=header.max_timestamp_ms,
            delete_horizon_ms=header.delete_horizon_ms,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )

        ours = next(batch for _, batch in iter_batches(rebuilt))
        # Compressed bytes depend on versions of libraries; what is inside may not.
        assert ours.payload() == batch.payload()
        assert ours.header._replace(length=0, crc=0) == header._replace(length=0, crc=0)
        if header.codec is Codec.NONE:
            assert rebuilt == batch.data


def test_the_golden_files_have_batches_of_every_kind() -> None:
    headers = [batch.header for segment in SEGMENTS for _, batch in segment.read()]

    assert {header.codec for header in headers} == set(Codec)
    assert {header.timestamp_type for header in headers} == set(TimestampType)
    assert {header.has_producer_id for header in headers} == {True, False}
    assert any(header.is_control for header in headers)
    assert any(header.is_transactional and not header.is_control for header in headers)
    assert any(header.is_empty for header in headers)
    assert any(header.delete_horizon_ms is not None for header in headers)
    assert any(header.record_count <= header.last_offset_delta for header in headers)
