from random import Random

import pytest

from siltstone.records.partitioner import (
    DEFAULT_PARTITIONER,
    PARTITIONERS,
    fnv1a,
    java_partition,
    murmur2,
)

KEYS = [None, b"", b"23456", b"this is another string with more length to it perhaps", b"hejsan"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # Kafka's UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_the_one_of_kafkas_java_client(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # librdkafka's unit test
        (b"kafka", 0x0D33C4E1),
        (b"giberish123456789", 0x77A58295),
        (b"1234", 0x023BDD03),
        (b"4", 0x310CA263),
        (b"", 0x7EE3623B),
    ],
)
def test_fnv1a_is_the_one_of_librdkafka(data: bytes, expected: int) -> None:
    assert fnv1a(data) == expected


@pytest.mark.parametrize("partition_count", [1, 7, 17, 2**31 - 1])
@pytest.mark.parametrize(
    ("name", "hashes"),
    [  # librdkafka's 0048-partitioner test; None is a random partition
        ("random", [None, None, None, None, None]),
        ("consistent", [0, 0, 0xB1B451D7, 0xB0150DF7, 0xD077037E]),
        ("consistent_random", [None, None, 0xB1B451D7, 0xB0150DF7, 0xD077037E]),
        ("murmur2", [0x106E08D9, 0x106E08D9, 0x058D780F, 0x4F7703DA, 0x5EC19395]),
        ("murmur2_random", [None, 0x106E08D9, 0x058D780F, 0x4F7703DA, 0x5EC19395]),
        ("fnv1a", [0x7EE3623B, 0x7EE3623B, 0x27E6F469, 0x155E3E5F, 0x17B1E27A]),
        ("fnv1a_random", [None, 0x7EE3623B, 0x27E6F469, 0x155E3E5F, 0x17B1E27A]),
    ],
)
def test_a_partitioner_agrees_with_librdkafkas_of_that_name(
    name: str, hashes: list[int | None], partition_count: int
) -> None:
    found = [PARTITIONERS[name](key, partition_count, Random(8)) for key in KEYS]

    drawn = Random(8).randrange(partition_count)
    assert found == [drawn if h is None else h % partition_count for h in hashes]


def test_the_default_partitioner_puts_keys_where_javas_client_does() -> None:
    default = PARTITIONERS[DEFAULT_PARTITIONER]

    for number in range(200):
        key = f"key-{number}".encode()
        assert default(key, 12, Random(0)) == java_partition(key, 12)
