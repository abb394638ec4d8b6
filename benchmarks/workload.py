"""The bytes that are measured: batches of records of one size, made fast and the same every time.

A handful of payloads is built record by record; every batch is one of them under a header of its
own, so that offsets, timestamps and sequences rise as in a real log.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from siltstone.records.batch import BatchHeader, read_header
from siltstone.records.builder import build_batch, encode_batch
from siltstone.records.compression import Codec
from siltstone.records.layout import HEADER_SIZE, MAX_SEQUENCE, NO_PRODUCER_ID
from siltstone.records.record import Record

_TEMPLATE_COUNT: Final = 32
_SEED: Final = 20_260_000
_WORDS: Final = tuple(
    random.Random(_SEED).randbytes(length).hex().encode()
    for length in range(1, 6)
    for _ in "ab" * 8
)
_WRITE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """What every batch of a workload looks like."""

    record_count: int
    value_bytes: int
    key_bytes: int = 16
    codec: Codec = Codec.NONE
    producer_id: int = NO_PRODUCER_ID

    def describe(self) -> dict[str, Any]:
        """Describe it for a result."""
        (batch,) = produced_batches(self, 1, first_ms=0)
        return {
            "batch_bytes": len(batch),
            "records_per_batch": self.record_count,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "codec": self.codec.name.lower(),
            "is_idempotent": self.producer_id != NO_PRODUCER_ID,
        }


# Record and batch sizes as the issues name them: 1 kB and 125 B records, 16 kB batches.
KILOBYTE_RECORDS: Final = BatchShape(record_count=16, value_bytes=994)
SMALL_RECORDS: Final = BatchShape(record_count=130, value_bytes=101)
SINGLE_RECORDS: Final = BatchShape(record_count=1, value_bytes=101)


def produced_batches(shape: BatchShape, count: int, *, first_ms: int) -> Iterator[bytes]:
    """Yield batches as a producer sends them: each from offset 0, a millisecond apart."""
    return _batches(shape, count, first_ms, is_stored=False)


def stored_batches(shape: BatchShape, count: int, *, first_ms: int) -> Iterator[bytes]:
    """Yield batches as a log holds them: one after the other from offset 0, leader epoch 0."""
    return _batches(shape, count, first_ms, is_stored=True)


def write_segment(path: Path, shape: BatchShape, count: int, *, first_ms: int) -> int:
    """Write a `.log` file of so many batches and return its size."""
    size_bytes = 0
    pending: list[bytes] = []
    pending_bytes = 0
    with path.open("wb", buffering=0) as file:
        for batch in stored_batches(shape, count, first_ms=first_ms):
            pending.append(batch)
            pending_bytes += len(batch)
            if pending_bytes >= _WRITE_BYTES:
                size_bytes += file.write(b"".join(pending))
                pending.clear()
                pending_bytes = 0
        size_bytes += file.write(b"".join(pending))
    return size_bytes


def _batches(shape: BatchShape, count: int, first_ms: int, *, is_stored: bool) -> Iterator[bytes]:
    templates = _templates(shape)
    has_producer = shape.producer_id != NO_PRODUCER_ID
    for number, (header, payload) in zip(range(count), itertools.cycle(templates), strict=False):
        now_ms = first_ms + number
        first_record = number * shape.record_count
        header = header._replace(base_timestamp_ms=now_ms, max_timestamp_ms=now_ms)
        if has_producer:
            header = header._replace(
                producer_id=shape.producer_id,
                producer_epoch=0,
                base_sequence=first_record & MAX_SEQUENCE,
            )
        if is_stored:
            header = header._replace(base_offset=first_record, leader_epoch=0)
        yield encode_batch(header, payload)


def _templates(shape: BatchShape) -> list[tuple[BatchHeader, bytes]]:
    rng = random.Random(_SEED)
    templates = []
    for _ in range(_TEMPLATE_COUNT):
        records = [
            Record(
                number,
                0,
                b"%0*d" % (shape.key_bytes, rng.randrange(500_000)),
                b" ".join(rng.choices(_WORDS, k=shape.value_bytes))[: shape.value_bytes],
            )
            for number in range(shape.record_count)
        ]
        batch = build_batch(records, codec=shape.codec)
        templates.append((read_header(batch), batch[HEADER_SIZE:]))
    return templates
