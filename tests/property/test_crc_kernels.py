"""CRCs in lanes and joined CRCs, against the `crc32c` package."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siltstone.records import crc_kernels, kernels
from siltstone.records.builder import build_batch
from siltstone.records.crc32c import crc32c
from siltstone.records.record import Record
from siltstone.records.scan import as_bytes, walk

# Around the sizes at which lanes begin, and at which CRCs are joined.
SIZES = st.one_of(
    st.integers(0, 200), st.integers(700, 900), st.integers(3900, 4200), st.integers(4000, 20_000)
)
SEEDS = st.integers(0, 2**32)


def some_bytes(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


@given(SIZES, SEEDS, st.integers(0, 8))
def test_lanes_give_the_crc_of_the_whole(size: int, seed: int, start: int) -> None:
    data = some_bytes(size + start, seed)

    assert crc_kernels.crc32c(as_bytes(data), start, len(data)) == crc32c(data[start:])


@given(SIZES, SIZES, SEEDS)
def test_joined_crcs_are_that_of_both_runs(first_size: int, second_size: int, seed: int) -> None:
    data = some_bytes(first_size + second_size, seed)
    first: Any = np.uint64(crc32c(data[:first_size]))
    second: Any = np.uint64(crc32c(data[first_size:]))

    assert crc_kernels.join_crcs(first, second, second_size) == crc32c(data)


@given(st.lists(SIZES, min_size=1, max_size=4), SEEDS, st.data())
def test_batches_are_checked_and_their_bytes_summed_up(
    value_sizes: list[int], seed: int, data: st.DataObject
) -> None:
    log = b"".join(
        build_batch([Record(number, 0, b"key", some_bytes(size, seed))], base_offset=number)
        for number, size in enumerate(value_sizes)
    )
    batches = walk(log).batches

    assert kernels.check_batches(as_bytes(log), batches) == (-1, crc32c(log))

    number = data.draw(st.integers(0, len(batches) - 1))
    start, size = int(batches["position"][number]), int(batches["size_bytes"][number])
    position = data.draw(st.integers(start + 17, start + size - 1))  # the CRC, or what it covers
    damaged = bytearray(log)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    assert kernels.check_batches(as_bytes(damaged), batches)[0] == number
