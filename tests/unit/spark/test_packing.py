from random import Random

import numpy as np
import pyarrow as pa
import pytest

from siltstone.errors import UsageError
from siltstone.records.batch import read_batch
from siltstone.records.builder import build_batch
from siltstone.records.partitioner import java_partition
from siltstone.records.record import Record
from siltstone.spark.source import kernels
from siltstone.spark.source.packing import Packer, take_columns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def random_bytes(rng: Random, most: int) -> bytes | None:
    return None if rng.random() < 0.1 else rng.randbytes(rng.randrange(most))


def random_rows(seed: int, count: int) -> list[Record]:
    rng = Random(seed)
    return [
        Record(
            number,
            1_000,
            random_bytes(rng, 30),
            random_bytes(rng, 300),
            tuple((f"h{i}", random_bytes(rng, 5)) for i in range(rng.choice([0, 0, 1, 3]))),
        )
        for number in range(count)
    ]


def as_arrow(records: list[Record]) -> pa.RecordBatch:
    headers = [
        [{"key": name, "value": value} for name, value in r.headers] or None for r in records
    ]
    return pa.record_batch(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_packed_into_the_bytes_that_the_plain_builder_makes(seed: int) -> None:
    records = random_rows(seed, 2_000)
    columns = take_columns(as_arrow(records), with_headers=True)

    packed = list(Packer(1_000).iter_batches(columns, np.arange(len(records))))

    first = 0
    for count, data in packed:
        part = [r._replace(offset=i) for i, r in enumerate(records[first : first + count])]
        assert data == build_batch(part)
        first += count
    assert first == len(records)
    assert len(packed) > 1


def test_a_slice_of_a_batch_is_packed_without_what_lies_around_it() -> None:
    records = random_rows(9, 50)
    part = as_arrow(records).slice(17, 20)

    ((count, data),) = Packer(1_000).iter_batches(
        take_columns(part, with_headers=True), np.arange(20)
    )

    assert count == 20
    found = [r._replace(offset=0) for r in read_batch(data).iter_records()]
    assert found == [r._replace(offset=0) for r in records[17:37]]


def test_a_record_larger_than_any_batch_is_a_batch_of_its_own() -> None:
    records = [Record(0, 1_000, b"a", b"1"), Record(1, 1_000, b"b", bytes(900_000))]
    columns = take_columns(as_arrow(records), with_headers=True)

    packed = list(Packer(1_000).iter_batches(columns, np.arange(2)))

    assert [count for count, _ in packed] == [1, 1]
    assert packed[1][1] == build_batch([records[1]._replace(offset=0)])


def test_headers_are_left_out_unless_they_are_asked_for() -> None:
    records = [Record(0, 1_000, b"a", b"1", (("h", b"x"),))]
    columns = take_columns(as_arrow(records), with_headers=False)

    ((_, data),) = Packer(1_000).iter_batches(columns, np.arange(1))

    assert data == build_batch([records[0]._replace(headers=())])


def test_a_header_without_a_key_is_refused() -> None:
    batch = pa.record_batch({"value": [b"1"], "headers": pa.array([[{"key": None}]], HEADERS)})

    with pytest.raises(UsageError, match="a header has no key"):
        take_columns(batch, with_headers=True)


def test_a_key_goes_to_the_partition_that_javas_client_gives_it() -> None:
    rng = Random(1)
    keys = [rng.randbytes(n % 23) for n in range(500)]
    records = [Record(n, 0, key, b"") for n, key in enumerate(keys)] + [Record(500, 0, None, b"")]
    columns = take_columns(as_arrow(records), with_headers=False)
    found = np.empty(len(records), np.int64)

    kernels.choose_partitions(*columns[0], 7, 3, found)

    assert found.tolist() == [java_partition(key, 7) for key in keys] + [3]
