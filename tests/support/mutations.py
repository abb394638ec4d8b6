"""Damage, drawn from a seeded generator: to any bytes, and to batches so that it reaches inside."""

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from siltstone.errors import DecodeError
from siltstone.records.batch import BatchHeader, TimestampType, read_batch, read_header
from siltstone.records.builder import build_batch, build_empty_batch, build_marker
from siltstone.records.compression import Codec, compress
from siltstone.records.control import ControlType
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
)
from siltstone.records.record import Record
from siltstone.records.varint import encode_varint, encode_varlong

T0_MS = 1_700_000_000_000
LIMIT_BYTES = 1 << 20  # what a payload may unfold to

_ODD_NUMBERS = (0, 1, -1, -2, 2, 7, 48, 49, 127, 128, 2**14, 2**31 - 1, -(2**31), 2**24, -(2**24))


def make_batches(chance: random.Random, count: int) -> list[bytes]:
    """Build batches of every kind and codec, in the order of their offsets."""
    batches = []
    offset = chance.choice([0, 5, 2**31, 2**40])
    for number in range(count):
        codec = list(Codec)[number % len(Codec)]
        data = _make_batch(chance, offset, codec)
        batches.append(data)
        offset = read_header(data).next_offset + chance.choice([0, 0, 3])
    return batches


def _make_batch(chance: random.Random, offset: int, codec: Codec) -> bytes:
    if chance.random() < 0.1:
        return build_marker(
            chance.choice([ControlType.ABORT, ControlType.COMMIT]),
            offset=offset,
            timestamp_ms=T0_MS,
            producer_id=chance.randrange(5),
            producer_epoch=0,
            coordinator_epoch=chance.randrange(3),
        )
    gap = chance.choice([1, 1, 1, 4])
    records = [
        Record(
            offset + gap * number,
            T0_MS + chance.randrange(-1_000, 1_000),
            chance.choice([None, b"", b"key", b"k" * 70]),
            chance.choice([None, b"", b"value", bytes(chance.randbytes(chance.randrange(90)))]),
            tuple(
                (f"h{n}", chance.choice([None, b"", b"x"])) for n in range(chance.choice([0, 0, 2]))
            ),
        )
        for number in range(chance.randint(1, 6))
    ]
    producer_id = chance.choice([-1, 1, 2])
    append_time = chance.random() < 0.2
    data = build_batch(
        records,
        codec=codec,
        timestamp_type=TimestampType(append_time),
        max_timestamp_ms=T0_MS if append_time else None,
        delete_horizon_ms=T0_MS + 5 if chance.random() < 0.1 else None,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=-1 if producer_id < 0 else 0,
        is_transactional=producer_id == 2,
    )
    return build_empty_batch(read_header(data)) if chance.random() < 0.05 else data


# Any bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged bytes, and where they differ from what they were."""

    data: bytes
    ranges: tuple[tuple[int, int], ...]  # in the undamaged bytes

    def touches(self, start: int, end: int) -> bool:
        """Say whether anything in a range of the undamaged bytes may have changed or moved."""
        return any(first < end and last > start for first, last in self.ranges)


def damage(chance: random.Random, data: bytes, count: int | None = None) -> Damage:
    """Change bytes in one to three places."""
    ranges = []
    for _ in range(count or chance.choice([1, 1, 1, 2, 3])):
        data, changed = chance.choice(_DAMAGES)(chance, data)
        ranges.append(changed)
    return Damage(data, tuple(ranges))


Damaged = tuple[bytes, tuple[int, int]]
_END = 2**62


def _flip_bit(chance: random.Random, data: bytes) -> Damaged:
    if not data:
        return data, (0, 0)
    position = chance.randrange(len(data))
    changed = bytearray(data)
    changed[position] ^= 1 << chance.randrange(8)
    return bytes(changed), (position, position + 1)


def _set_bytes(chance: random.Random, data: bytes) -> Damaged:
    position = chance.randrange(len(data) + 1)
    count = min(chance.choice([1, 1, 4, 8, 40]), len(data) - position)
    fill = chance.choice([bytes(count), b"\xff" * count, b"\x80" * count, chance.randbytes(count)])
    return data[:position] + fill + data[position + count :], (position, position + count)


def _cut_off(chance: random.Random, data: bytes) -> Damaged:
    position = chance.randrange(len(data) + 1)
    return data[:position], (position, _END)


def _cut_out(chance: random.Random, data: bytes) -> Damaged:
    position = chance.randrange(len(data) + 1)
    count = chance.choice([1, 2, 8, 61])
    return data[:position] + data[position + count :], (position, _END)


def _put_in(chance: random.Random, data: bytes) -> Damaged:
    position = chance.randrange(len(data) + 1)
    start = chance.randrange(len(data) + 1)
    piece = chance.choice([chance.randbytes(4), data[start : start + chance.randrange(80)]])
    return data[:position] + piece + data[position:], (position, _END)


def _append(chance: random.Random, data: bytes) -> Damaged:
    tail = chance.choice([bytes(30), bytes(200), chance.randbytes(70), data[:50], b"\0"])
    return data + tail, (len(data), _END)


_DAMAGES: Sequence[Callable[[random.Random, bytes], Damaged]] = (
    _flip_bit,
    _flip_bit,
    _set_bytes,
    _set_bytes,
    _cut_off,
    _cut_out,
    _put_in,
    _append,
)


# Batches


def mutate_batch(chance: random.Random, data: bytes) -> bytes:
    """Damage a batch: its bytes, its header, or its records, mostly signed anew afterwards.

    Without a new signature the checksum would refuse it before anything else is looked at.
    """
    kind = chance.random()
    if kind < 0.35:
        data = _mutate_payload(chance, data)
    elif kind < 0.65:
        data = _mutate_header(chance, data)
    else:
        data = damage(chance, data).data
    if chance.random() < 0.2:
        data = damage(chance, data, 1).data
    return _sign(data) if chance.random() < 0.8 else data


def _mutate_payload(chance: random.Random, data: bytes) -> bytes:
    """Damage the records themselves; compressed ones are unpacked first, and packed again."""
    batch = read_batch(data)
    payload = bytes(batch.payload(LIMIT_BYTES))
    if chance.random() < 0.5:
        payload = damage(chance, payload).data
    else:
        payload = _edit_varint(chance, payload)
    packed = compress(batch.header.codec, payload)
    return _pack(batch.header._replace(length=HEADER_SIZE - LOG_OVERHEAD + len(packed)), packed)


def _edit_varint(chance: random.Random, payload: bytes) -> bytes:
    """Put another number in the place of a byte, which most often is a length or a delta."""
    position = chance.randrange(len(payload) + 1)
    number = chance.choice([*_ODD_NUMBERS, chance.randrange(-100, 100)])
    varint = chance.choice(
        [
            encode_varint(number),
            encode_varlong(number),
            b"\x80" * chance.randrange(1, 12) + b"\x01",
            b"\xff" * chance.randrange(1, 12),
        ]
    )
    return payload[:position] + varint + payload[position + 1 :]


def _mutate_header(chance: random.Random, data: bytes) -> bytes:
    header = read_header(data)
    if chance.random() < 0.1:
        count = chance.choice([2**31 - 1, 2**24, 1_000, header.record_count + 1])
        header = header._replace(record_count=count, last_offset_delta=count - 1)
        return _pack(header, data[HEADER_SIZE:])
    field = chance.choice(BatchHeader._fields)
    number = chance.choice([*_ODD_NUMBERS, getattr(header, field) + chance.choice([-1, 1, 2])])
    if field == "attributes" and chance.random() < 0.7:
        number = header.attributes ^ (1 << chance.randrange(8))
    return _pack(header._replace(**{field: number}), data[HEADER_SIZE:])


def _pack(header: BatchHeader, payload: bytes) -> bytes:
    """Put a header before a payload, with every number cut to the width of its field."""
    fields = []
    for code, value in zip("qiibIhiqqqhii", header, strict=True):
        bits = 8 * struct.calcsize(f">{code}")
        value &= (1 << bits) - 1
        if code != "I" and value >> (bits - 1):
            value -= 1 << bits
        fields.append(value)
    return HEADER.pack(*fields) + payload


def _sign(data: bytes) -> bytes:
    """Put the right checksum into the header, for as much as the length says, if that is there."""
    if len(data) < HEADER_SIZE:
        return data
    length = int.from_bytes(data[LENGTH_POSITION : LENGTH_POSITION + 4], "big", signed=True)
    end = length + LOG_OVERHEAD if HEADER_SIZE <= length + LOG_OVERHEAD <= len(data) else len(data)
    crc = crc32c(data[ATTRIBUTES_POSITION:end])
    return data[:CRC_POSITION] + crc.to_bytes(4, "big") + data[ATTRIBUTES_POSITION:]


def is_sound(data: bytes) -> bool:
    """Say whether the bytes are one whole batch with the right checksum."""
    try:
        batch = read_batch(data)
        batch.check_crc()
    except DecodeError:
        return False
    return batch.header.size_bytes == len(data)
