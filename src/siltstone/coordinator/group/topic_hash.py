"""One number for the topics of a group: it is written down with the group's epoch.

Whoever takes a group over, after a restart or as a Kafka, sees by it whether the topics are still
those that the last target was made for; if so, the epoch need not rise. So the number must be the
one that Kafka 4.3 has: XXH3 (64 bits, seed 0) over the ids, names and partitions.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from siltstone.coordinator.group.topics import TopicInfo

_FORMAT: Final = 0  # of what is hashed, as Kafka counts it
_CACHED_TOPICS: Final = 4096

_MASK: Final = (1 << 64) - 1
_LOW: Final = (1 << 32) - 1
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME64_3, _PRIME64_4 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
_PRIME64_5, _PRIME_MX1, _PRIME_MX2 = 0x27D4EB2F165667C5, 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES: Final = 64
_BLOCK_STRIPES: Final = 16
_BLOCK_BYTES: Final = _STRIPE_BYTES * _BLOCK_STRIPES


def hash_topics(topics: Iterable[TopicInfo]) -> int:
    """Return the number for some topics; 0 for none."""
    known = sorted(topics, key=lambda info: info.name.encode("utf-16-be"))
    if not known:
        return 0
    return _signed(xxh3_64(b"".join(struct.pack("<Q", _hash_topic(info)) for info in known)))


@lru_cache(_CACHED_TOPICS)
def _hash_topic(info: TopicInfo) -> int:
    """Hash a topic; its partitions have no racks here."""
    high, low = divmod(info.topic_id.int, 1 << 64)
    name = info.name.encode("utf-16-le")
    count = info.partition_count
    return xxh3_64(
        struct.pack("<bQQ", _FORMAT, high, low)
        + name
        + struct.pack("<ii", len(name) // 2, count)
        + struct.pack(f"<{count}i", *range(count))
    )


def xxh3_64(data: bytes) -> int:
    """Return the XXH3 hash of some bytes, with seed 0."""
    size = len(data)
    if size <= 16:
        return _hash_short(data)
    if size <= 128:
        return _hash_pairs(data)
    if size <= 240:
        return _hash_middle(data)
    return _hash_long(data)


def _hash_short(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
        high = _word(data, size - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high))
    if size >= 4:
        first = int.from_bytes(data[:4], "little")
        last = int.from_bytes(data[-4:], "little")
        mixed = (last + (first << 32)) ^ _word(_SECRET, 8) ^ _word(_SECRET, 16)
        mixed ^= _rotate(mixed, 49) ^ _rotate(mixed, 24)
        mixed = mixed * _PRIME_MX2 & _MASK
        mixed ^= (mixed >> 35) + size & _MASK
        mixed = mixed * _PRIME_MX2 & _MASK
        return mixed ^ mixed >> 28
    if size:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        keys = int.from_bytes(_SECRET[:4], "little") ^ int.from_bytes(_SECRET[4:8], "little")
        return _avalanche64(mixed ^ keys)
    return _avalanche64(_word(_SECRET, 56) ^ _word(_SECRET, 64))


def _hash_pairs(data: bytes) -> int:
    """Hash 17 to 128 bytes: from both ends to the middle."""
    size = len(data)
    total = size * _PRIME64_1
    for number in range((size - 1) // 32 + 1):
        total += _mix(data, 16 * number, 32 * number)
        total += _mix(data, size - 16 * (number + 1), 32 * number + 16)
    return _avalanche(total)


def _hash_middle(data: bytes) -> int:
    """Hash 129 to 240 bytes: 8 rounds, then the others with the secret shifted by 3."""
    size = len(data)
    total = size * _PRIME64_1 + sum(_mix(data, 16 * n, 16 * n) for n in range(8))
    total = _avalanche(total)
    total += sum(_mix(data, 16 * n, 16 * (n - 8) + 3) for n in range(8, size // 16))
    total += _mix(data, size - 16, 136 - 17)
    return _avalanche(total)


def _hash_long(data: bytes) -> int:
    lanes = [
        *(_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3),
        *(_PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1),
    ]
    size = len(data)
    block_count = (size - 1) // _BLOCK_BYTES
    for block in range(block_count):
        for stripe in range(_BLOCK_STRIPES):
            _accumulate(lanes, data, block * _BLOCK_BYTES + stripe * _STRIPE_BYTES, 8 * stripe)
        for lane, key in enumerate(struct.unpack_from("<8Q", _SECRET, len(_SECRET) - 64)):
            mixed = lanes[lane] ^ lanes[lane] >> 47 ^ key
            lanes[lane] = mixed * _PRIME32_1 & _MASK
    start = block_count * _BLOCK_BYTES
    for stripe in range((size - 1 - start) // _STRIPE_BYTES):
        _accumulate(lanes, data, start + stripe * _STRIPE_BYTES, 8 * stripe)
    _accumulate(lanes, data, size - _STRIPE_BYTES, len(_SECRET) - 64 - 7)
    total = size * _PRIME64_1
    for pair in range(4):
        keys = struct.unpack_from("<2Q", _SECRET, 11 + 16 * pair)
        total += _fold(lanes[2 * pair] ^ keys[0], lanes[2 * pair + 1] ^ keys[1])
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, position: int, secret_position: int) -> None:
    words = struct.unpack_from("<8Q", data, position)
    keys = struct.unpack_from("<8Q", _SECRET, secret_position)
    for lane, (word, key) in enumerate(zip(words, keys, strict=True)):
        mixed = word ^ key
        lanes[lane ^ 1] = lanes[lane ^ 1] + word & _MASK
        lanes[lane] = lanes[lane] + (mixed & _LOW) * (mixed >> 32) & _MASK


def _mix(data: bytes, position: int, secret_position: int) -> int:
    low, high = struct.unpack_from("<2Q", data, position)
    low_key, high_key = struct.unpack_from("<2Q", _SECRET, secret_position)
    return _fold(low ^ low_key, high ^ high_key)


def _fold(left: int, right: int) -> int:
    product = left * right
    return product & _MASK ^ product >> 64


def _avalanche(value: int) -> int:
    value &= _MASK
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK
    return value ^ value >> 32


def _word(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "little")


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
