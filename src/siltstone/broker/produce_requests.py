"""Produce requests, read by hand: most of what a broker gets, and reading is half of serving them.

Versions 3 to 13 differ in how lengths are written, and in what topics go by: a name, or an id.
"""

import struct
import uuid
from functools import lru_cache
from typing import Final, NamedTuple

from siltstone.broker.frame_check import read_varint, skip_tags
from siltstone.errors import DecodeError, MalformedDataError

_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_IDS: Final = 13
_CLIENT_ID_POSITION: Final = 8
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_ACKS: Final = struct.Struct(">hi")  # acks, timeout in ms
_ID_BYTES: Final = 16


class PartitionData(NamedTuple):
    """What is to be appended to one partition."""

    number: int
    records: bytes | None


class TopicData(NamedTuple):
    """What is to be appended to the partitions of one topic."""

    name: str
    topic_id: uuid.UUID | None  # instead of the name, from version 13 on
    partition_data: list[PartitionData]


class ProduceRequest(NamedTuple):
    """What a producer wants to have appended."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicData]


def read_produce(frame: memoryview, version: int) -> tuple[str | None, ProduceRequest]:
    """Return who has sent a frame, and what is in it; raise DecodeError if that makes no sense.

    What follows is ignored, as Kafka does.
    """
    try:
        return _read_flexible(frame, version) if version >= _FIRST_FLEXIBLE else _read_old(frame)
    except (IndexError, struct.error) as error:
        raise DecodeError(len(frame), "the request ends too early") from error
    except UnicodeDecodeError as error:
        raise MalformedDataError(0, f"a name that is no text: {error}") from error


def _read_flexible(frame: memoryview, version: int) -> tuple[str | None, ProduceRequest]:
    client_id, position = _read_short_text(frame, _CLIENT_ID_POSITION)
    position = skip_tags(frame, position)
    transactional_id, position = _read_compact_text(frame, position)
    acks, timeout_ms = _ACKS.unpack_from(frame, position)
    topic_count, position = _read_count(frame, position + _ACKS.size)
    topics = []
    for _ in range(topic_count):
        name, topic_id = "", None
        if version >= _FIRST_WITH_IDS:
            begin, position = position, _end(frame, position, _ID_BYTES)
            topic_id = _to_id(bytes(frame[begin:position]))
        else:
            text, position = _read_compact_text(frame, position)
            name = _given(text, position)
        partition_count, position = _read_count(frame, position)
        partitions = []
        for _ in range(partition_count):
            (number,) = _INT.unpack_from(frame, position)
            size, position = read_varint(frame, position + _INT.size)
            records = None
            if size:
                begin, position = position, _end(frame, position, size - 1)
                records = bytes(frame[begin:position])
            position = skip_tags(frame, position)
            partitions.append(PartitionData(number, records))
        position = skip_tags(frame, position)
        topics.append(TopicData(name, topic_id, partitions))
    skip_tags(frame, position)
    return client_id, ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_old(frame: memoryview) -> tuple[str | None, ProduceRequest]:
    client_id, position = _read_short_text(frame, _CLIENT_ID_POSITION)
    transactional_id, position = _read_short_text(frame, position)
    acks, timeout_ms = _ACKS.unpack_from(frame, position)
    topic_count, position = _read_old_count(frame, position + _ACKS.size)
    topics = []
    for _ in range(topic_count):
        text, position = _read_short_text(frame, position)
        name = _given(text, position)
        partition_count, position = _read_old_count(frame, position)
        partitions = []
        for _ in range(partition_count):
            (number,) = _INT.unpack_from(frame, position)
            (size,) = _INT.unpack_from(frame, position + _INT.size)
            position += 2 * _INT.size
            records = None
            if size >= 0:
                begin, position = position, _end(frame, position, size)
                records = bytes(frame[begin:position])
            partitions.append(PartitionData(number, records))
        topics.append(TopicData(name, None, partitions))
    return client_id, ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _end(frame: memoryview, position: int, size: int) -> int:
    """Return where something ends, which must be in the frame."""
    end = position + size
    if end > len(frame):
        raise IndexError
    return end


@lru_cache
def _to_id(data: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=data) if any(data) else None


def _given(text: str | None, position: int) -> str:
    if text is None:
        raise MalformedDataError(position, "a topic without a name")
    return text


def _read_short_text(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _SHORT.unpack_from(frame, position)
    position += _SHORT.size
    if size < 0:
        return None, position
    end = _end(frame, position, size)
    return str(frame[position:end], "utf-8"), end


def _read_compact_text(frame: memoryview, position: int) -> tuple[str | None, int]:
    size, position = read_varint(frame, position)
    if not size:
        return None, position
    end = _end(frame, position, size - 1)
    return str(frame[position:end], "utf-8"), end


def _read_count(frame: memoryview, position: int) -> tuple[int, int]:
    """Read how long an array is: not longer than what is left, so that nothing is made for it."""
    count, position = read_varint(frame, position)
    return _checked_count(frame, position, count - 1), position


def _read_old_count(frame: memoryview, position: int) -> tuple[int, int]:
    (count,) = _INT.unpack_from(frame, position)
    position += _INT.size
    return _checked_count(frame, position, count), position


def _checked_count(frame: memoryview, position: int, count: int) -> int:
    if not 0 <= count <= len(frame) - position:
        raise MalformedDataError(position, f"an array of {count} in {len(frame) - position} bytes")
    return count
