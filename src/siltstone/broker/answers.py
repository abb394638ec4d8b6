"""The answers to Produce and Fetch, written by hand: kio's writers take thirty times as long.

They are on the way of every record; those of groups are in `group_answers`, all others are kio's.
Tests hold them against kio's for every version.
"""

import struct
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from siltstone.broker.wire import Payload
from siltstone.log.segment import FileSlice
from siltstone.log.transaction_index import AbortedTxn

_FIRST_FLEXIBLE_PRODUCE: Final = 9
_FIRST_FLEXIBLE_FETCH: Final = 12
_FIRST_WITH_IDS: Final = 13
_ZERO_ID: Final = bytes(16)
NO_TAGS: Final = b"\x00"

_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_PRODUCED: Final = struct.Struct(">ihqq")  # index, error, base offset, append time
# The same and the log start, no errors of records, no message, no tags.
_APPENDED: Final = struct.Struct(">ihqqqbbb")
_NO_ERRORS: Final = (1, 0, 0)
_LONG: Final = struct.Struct(">q")
_FETCHED: Final = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_ABORTED: Final = struct.Struct(">qq")
_FETCH_HEAD: Final = struct.Struct(">ihi")  # throttle time, error, session id


class Produced(NamedTuple):
    """What became of the batch for one partition."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()


class ProducedTopic(NamedTuple):
    """The partitions of one topic, by name or, from version 13 on, by id."""

    name: str
    topic_id: uuid.UUID | None
    partitions: list[Produced]


class Fetched(NamedTuple):
    """What there is for one partition."""

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[AbortedTxn] | None = None
    records: FileSlice | None = None
    diverging: tuple[int, int] | None = None  # epoch and end offset


class FetchedTopic(NamedTuple):
    """The partitions of one topic, by name or, from version 13 on, by id."""

    name: str
    topic_id: uuid.UUID | None
    partitions: list[Fetched]


def encode_produced(topics: Sequence[ProducedTopic], version: int) -> Payload:
    """Write the answer to a Produce request."""
    is_flexible = version >= _FIRST_FLEXIBLE_PRODUCE
    parts = [encode_count(len(topics), is_flexible)]
    for topic in topics:
        parts.append(_topic(topic.name, topic.topic_id, version, is_flexible))
        parts.append(encode_count(len(topic.partitions), is_flexible))
        for one in topic.partitions:
            if is_flexible and not one.error_code:
                parts.append(_APPENDED.pack(*one[:5], *_NO_ERRORS))
                continue
            parts.append(
                _PRODUCED.pack(
                    one.partition, one.error_code, one.base_offset, one.log_append_time_ms
                )
            )
            if version >= 5:
                parts.append(_LONG.pack(one.log_start_offset))
            if version >= 8:
                parts.append(encode_count(len(one.record_errors), is_flexible))
                for index, message in one.record_errors:
                    parts.append(_INT.pack(index))
                    parts.append(encode_nullable(message, is_flexible))
                    if is_flexible:
                        parts.append(NO_TAGS)
                parts.append(encode_nullable(one.error_message, is_flexible))
            if is_flexible:
                parts.append(NO_TAGS)
        if is_flexible:
            parts.append(NO_TAGS)
    parts.append(_INT.pack(0))
    if is_flexible:
        parts.append(NO_TAGS)
    data = b"".join(parts)
    return Payload([data], len(data))


def encode_fetched(
    topics: Sequence[FetchedTopic], version: int, *, error_code: int = 0, session_id: int = 0
) -> Payload:
    """Write the answer to a Fetch request; the records stay where they are until they are sent."""
    is_flexible = version >= _FIRST_FLEXIBLE_FETCH
    head = _FETCH_HEAD.pack(0, error_code, session_id) if version >= 7 else _INT.pack(0)
    chunks: list[bytes | FileSlice] = []
    size_bytes = 0
    parts = [head, encode_count(len(topics), is_flexible)]
    for topic in topics:
        parts.append(_topic(topic.name, topic.topic_id, version, is_flexible))
        parts.append(encode_count(len(topic.partitions), is_flexible))
        for one in topic.partitions:
            _add_fetched(parts, one, version, is_flexible)
            if one.records is not None:
                before = b"".join(parts)
                chunks += (before, one.records)
                size_bytes += len(before) + one.records.size_bytes
                parts = []
            if is_flexible:
                parts.append(_tags(one))
        if is_flexible:
            parts.append(NO_TAGS)
    if is_flexible:
        parts.append(NO_TAGS)
    rest = b"".join(parts)
    if rest:
        chunks.append(rest)
    return Payload(chunks, size_bytes + len(rest))


def _add_fetched(parts: list[bytes], one: Fetched, version: int, is_flexible: bool) -> None:
    parts.append(
        _FETCHED.pack(one.partition, one.error_code, one.high_watermark, one.last_stable_offset)
    )
    if version >= 5:
        parts.append(_LONG.pack(one.log_start_offset))
    if one.aborted is None:
        parts.append(b"\x00" if is_flexible else b"\xff\xff\xff\xff")
    else:
        parts.append(encode_count(len(one.aborted), is_flexible))
        for txn in one.aborted:
            parts.append(_ABORTED.pack(txn.producer_id, txn.first_offset))
            if is_flexible:
                parts.append(NO_TAGS)
    if version >= 11:
        parts.append(_INT.pack(-1))  # The preferred read replica: there is no other than this.
    size = 0 if one.records is None else one.records.size_bytes
    parts.append(encode_count(size, is_flexible))


def _tags(one: Fetched) -> bytes:
    if one.diverging is None:
        return NO_TAGS
    epoch, end_offset = one.diverging
    content = _INT.pack(epoch) + _LONG.pack(end_offset) + NO_TAGS
    return bytes((1, 0, len(content))) + content


def _topic(name: str, topic_id: uuid.UUID | None, version: int, is_flexible: bool) -> bytes:
    if version >= _FIRST_WITH_IDS:
        return _ZERO_ID if topic_id is None else topic_id.bytes
    data = name.encode()
    if is_flexible:
        return _varint(len(data) + 1) + data
    return _SHORT.pack(len(data)) + data


def encode_count(count: int, is_flexible: bool) -> bytes:
    """Write the length of an array or of bytes."""
    return _varint(count + 1) if is_flexible else _INT.pack(count)


def encode_nullable(text: str | None, is_flexible: bool) -> bytes:
    """Write a text that might be null."""
    if text is None:
        return b"\x00" if is_flexible else b"\xff\xff"
    data = text.encode()
    if is_flexible:
        return _varint(len(data) + 1) + data
    return _SHORT.pack(len(data)) + data


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
