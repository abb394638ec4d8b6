"""The number of a group's topics, against what Kafka 4.3.1's own code gave."""

import uuid

import pytest

from siltstone.coordinator.group.topic_hash import hash_topics, xxh3_64
from siltstone.coordinator.group.topics import TopicInfo

# By the size of what is hashed, as the reference implementation of XXH3 gives it.
HASHES = {
    0: 0x2D06800538D394C2,
    3: 0x5F4299FC161C9CBB,
    8: 0x3A1C2D7C85AF88F8,
    16: 0x8355E3A6F61770DB,
    100: 0x004E4F921A64BD1C,
    129: 0xEC7642B431BA3E5A,
    200: 0xF42A8864FEAF0703,
    241: 0x02E8CD95421C6D02,
    300: 0xFDDA6967CF021DBC,
    1024: 0xE5D78BAFA45B2AA5,
    2500: 0x76EBAE7C9D5CDC5C,
}
TOPICS = [
    TopicInfo("t", uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10"), 4),
    TopicInfo("mid", uuid.UUID("00000000-0000-0005-ffff-fffffffffffa"), 30),
    TopicInfo("a.longer_name-of-a-topic", uuid.UUID("ffffffff-ffff-ffff-0000-000000000002"), 100),
]
NUMBERS = [0, 1888972941733479858, 4410095686032726655, 7752092402825611643]


@pytest.mark.parametrize(("size", "expected"), HASHES.items())
def test_bytes_of_any_size_are_hashed(size: int, expected: int) -> None:
    assert xxh3_64(bytes(number % 251 for number in range(size))) == expected


@pytest.mark.parametrize("count", range(4))
def test_topics_have_the_number_that_kafka_gives_them(count: int) -> None:
    assert hash_topics(TOPICS[:count]) == NUMBERS[count]
    assert hash_topics(reversed(TOPICS[:count])) == NUMBERS[count]
