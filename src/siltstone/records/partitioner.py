"""Which partition a key belongs to, as Kafka's clients decide it.

Java's clients hash keys with murmur2. librdkafka has more ways, and its default is another one, so
the same key of two clients can be in two partitions unless one is told what the other does.
"""

import zlib
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Final, Protocol

from siltstone.records.varint import to_int32

_MURMUR2_SEED: Final = 0x9747B28C
_MURMUR2_FACTOR: Final = 0x5BD1E995
_FNV1A_START: Final = 0x811C9DC5
_FNV1A_FACTOR: Final = 0x01000193
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


class Partitioner(Protocol):
    """Chooses one of the partitions 0 to `partition_count` - 1; `chance` is used where it may."""

    def __call__(self, key: bytes | None, partition_count: int, chance: Random) -> int: ...


def murmur2(data: bytes) -> int:
    """Hash as Kafka's Java client does; the result is signed, as Java's int."""
    hashed = _MURMUR2_SEED ^ len(data)
    whole_bytes = len(data) & ~3
    for position in range(0, whole_bytes, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * _MURMUR2_FACTOR & _WORD
        word = (word ^ word >> 24) * _MURMUR2_FACTOR & _WORD
        hashed = (hashed * _MURMUR2_FACTOR & _WORD) ^ word
    if whole_bytes < len(data):
        hashed ^= int.from_bytes(data[whole_bytes:], "little")
        hashed = hashed * _MURMUR2_FACTOR & _WORD
    hashed = (hashed ^ hashed >> 13) * _MURMUR2_FACTOR & _WORD
    return to_int32(hashed ^ hashed >> 15)


def fnv1a(data: bytes) -> int:
    """Hash as librdkafka does, like Sarama: FNV-1a as a signed number, without its sign."""
    hashed = _FNV1A_START
    for byte in data:
        hashed = (hashed ^ byte) * _FNV1A_FACTOR & _WORD
    return abs(to_int32(hashed))


def java_partition(key: bytes, partition_count: int) -> int:
    """Return the partition that Kafka's Java client gives to a key."""
    return (murmur2(key) & _POSITIVE) % partition_count


def _random(key: bytes | None, partition_count: int, chance: Random) -> int:
    return chance.randrange(partition_count)


def _consistent(key: bytes | None, partition_count: int, chance: Random) -> int:
    return zlib.crc32(key or b"") % partition_count


def _consistent_random(key: bytes | None, partition_count: int, chance: Random) -> int:
    # Unlike the other two "random" ones, this one takes an empty key for none.
    return (_consistent if key else _random)(key, partition_count, chance)


def _murmur2(key: bytes | None, partition_count: int, chance: Random) -> int:
    return java_partition(key or b"", partition_count)


def _murmur2_random(key: bytes | None, partition_count: int, chance: Random) -> int:
    return (_random if key is None else _murmur2)(key, partition_count, chance)


def _fnv1a(key: bytes | None, partition_count: int, chance: Random) -> int:
    return fnv1a(key or b"") % partition_count


def _fnv1a_random(key: bytes | None, partition_count: int, chance: Random) -> int:
    return (_random if key is None else _fnv1a)(key, partition_count, chance)


# By librdkafka's names. What Java's client does is `murmur2_random`.
PARTITIONERS: Final[Mapping[str, Partitioner]] = MappingProxyType(
    {
        "random": _random,
        "consistent": _consistent,
        "consistent_random": _consistent_random,
        "murmur2": _murmur2,
        "murmur2_random": _murmur2_random,
        "fnv1a": _fnv1a,
        "fnv1a_random": _fnv1a_random,
    }
)
DEFAULT_PARTITIONER: Final = "murmur2_random"
