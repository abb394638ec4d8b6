"""The checksum of a whole from those of its parts."""

import random

import pytest

from siltstone.cleaner.crc_combine import combine_crcs
from siltstone.records.crc32c import crc32c


@pytest.mark.parametrize("first_bytes", [0, 1, 1_000])
@pytest.mark.parametrize("second_bytes", [0, 1, 7, 4_096, 1_000_003])
def test_the_crc_of_two_runs_is_that_of_the_whole(first_bytes: int, second_bytes: int) -> None:
    chance = random.Random(first_bytes + second_bytes)
    first, second = chance.randbytes(first_bytes), chance.randbytes(second_bytes)

    assert combine_crcs(crc32c(first), crc32c(second), second_bytes) == crc32c(first + second)
