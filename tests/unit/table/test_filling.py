"""Columns filled in one walk, against the records that the plain code finds."""

import random

import numpy as np
import pytest

from siltstone.ids import TopicPartition
from siltstone.records.batch import TimestampType, read_batch
from siltstone.records.builder import build_batch
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.record import Record
from siltstone.records.scan import as_bytes, walk
from siltstone.table.columns import SCHEMA
from siltstone.table.filling import ColumnFiller

PARTITION = TopicPartition("orders", 3)


def random_batches(rng: random.Random) -> list[bytes]:
    batches = []
    offset = 0
    for _ in range(rng.randint(1, 6)):
        records = []
        steps = rng.choice([[1], [1, 1, 1, 5]])
        offset += rng.choice([0, 3])
        for _ in range(rng.randint(1, 20)):
            offset += rng.choice(steps)
            records.append(
                Record(
                    offset,
                    1_700_000_000_000 + rng.randrange(10**6),
                    rng.choice([None, b"", rng.randbytes(rng.choice([5, 16, 90]))]),
                    rng.choice([None, b"", rng.randbytes(rng.choice([5, 100, 9000]))]),
                    (("h", b"x"),) if rng.random() < 0.2 else (),
                )
            )
        kind = rng.choice([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
        batches.append(build_batch(records, base_offset=records[0].offset, timestamp_type=kind))
    return batches


@pytest.mark.parametrize("seed", range(20))
def test_columns_hold_what_the_records_hold(seed: int) -> None:
    rng = random.Random(seed)
    batches = random_batches(rng)
    data = b"".join(batches)
    expected = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": int(batch.header.timestamp_type),
        }
        for batch in map(read_batch, batches)
        for record in batch.iter_records()
    ]
    found = walk(data).batches
    filler = ColumnFiller(PARTITION)

    def fill(**selection: object) -> list[dict[str, object]]:
        filled = filler.fill(as_bytes(data), found, **selection)  # type: ignore[arg-type]
        assert filled is not None
        assert filled.schema == SCHEMA
        filled.validate(full=True)
        at = filled.schema.get_field_index("timestamp")
        plain = filled.set_column(at, "timestamp", filled.column(at).view("int64"))
        rows: list[dict[str, object]] = plain.to_pylist()
        return rows

    assert fill() == expected
    stays = np.array([rng.random() < 0.5 for _ in expected])
    assert fill(stays=stays) == [row for row, stay in zip(expected, stays, strict=True) if stay]
    wanted = np.array([row["offset"] for row in expected if rng.random() < 0.3], np.int64)
    others = np.array([0, 10**6], np.int64)  # Offsets without a record are passed over.
    given = np.unique(np.concatenate((wanted, others)))
    assert fill(wanted=given) == [row for row in expected if row["offset"] in set(wanted.tolist())]


def test_records_that_make_no_sense_are_refused() -> None:
    data = bytearray(build_batch([Record(i, 0, b"key", b"value") for i in range(3)]))
    data[-1] = 9  # a header count

    found = walk(bytes(data), check_crc=False).batches

    assert ColumnFiller(PARTITION).fill(as_bytes(bytes(data)), found) is None


def test_a_batch_whose_offsets_are_not_what_its_header_promises_is_refused() -> None:
    records = [Record(offset, 0, b"key", b"value") for offset in (0, 1, 3)]
    data = bytearray(build_batch(records))
    data[26] = 2  # Three records, from offset 0 to 2.
    found = walk(bytes(data), check_crc=False).batches

    filled = ColumnFiller(PARTITION).fill(as_bytes(bytes(data)), found, wanted=np.array([2]))

    assert filled is None


def test_a_length_that_leads_out_of_its_batch_is_refused() -> None:
    data = bytearray(build_batch([Record(i, 0, b"key", b"value") for i in range(3)]))
    data[HEADER_SIZE] = 0x7E
    found = walk(bytes(data), check_crc=False).batches

    filled = ColumnFiller(PARTITION).fill(as_bytes(bytes(data)), found, wanted=np.array([1]))

    assert filled is None
