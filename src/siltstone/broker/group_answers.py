"""The answers that groups get all the time, written by hand: commits and heartbeats.

As in `answers`, kio's writers would take longer than everything else about the request. Tests hold
them against kio's for every version.
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from siltstone.broker.answers import NO_TAGS, encode_count, encode_nullable
from siltstone.broker.wire import Payload

_FIRST_THROTTLED_COMMIT: Final = 3
_FIRST_FLEXIBLE_COMMIT: Final = 8
_FIRST_COMMIT_WITH_IDS: Final = 10
_NOT_THROTTLED: Final = bytes(4)
_ABSENT: Final = b"\xff"
_PRESENT: Final = b"\x01"

_COMMITTED: Final = struct.Struct(">ih")  # index, error
_HEARTBEAT_HEAD: Final = struct.Struct(">ih")  # throttle time, error
_EPOCH: Final = struct.Struct(">ii")  # epoch, heartbeat interval


class CommittedTopic(NamedTuple):
    """What became of the offsets of one topic, by name or, from version 10 on, by id."""

    name: str
    topic_id: uuid.UUID | None
    codes: Sequence[tuple[int, int]]  # partition and code


class HeartbeatReply(NamedTuple):
    """What a member of the consumer protocol is told; without an assignment: nothing new."""

    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Mapping[uuid.UUID, Sequence[int]] | None = None


def encode_committed(topics: Sequence[CommittedTopic], version: int) -> Payload:
    """Write the answer to an OffsetCommit request."""
    is_flexible = version >= _FIRST_FLEXIBLE_COMMIT
    end = NO_TAGS if is_flexible else b""
    parts = [_NOT_THROTTLED] if version >= _FIRST_THROTTLED_COMMIT else []
    parts.append(encode_count(len(topics), is_flexible))
    for topic in topics:
        if version >= _FIRST_COMMIT_WITH_IDS:
            parts.append(bytes(16) if topic.topic_id is None else topic.topic_id.bytes)
        else:
            parts.append(encode_nullable(topic.name, is_flexible))
        parts.append(encode_count(len(topic.codes), is_flexible))
        parts += [_COMMITTED.pack(index, code) + end for index, code in topic.codes]
        parts.append(end)
    parts.append(end)
    return _payload(parts)


def encode_heartbeat(reply: HeartbeatReply) -> Payload:
    """Write the answer to a ConsumerGroupHeartbeat request, the same in all versions."""
    parts = [
        _HEARTBEAT_HEAD.pack(0, reply.error_code),
        encode_nullable(reply.error_message, True),
        encode_nullable(reply.member_id, True),
        _EPOCH.pack(reply.epoch, reply.interval_ms),
    ]
    if reply.assignment is None:
        parts.append(_ABSENT)
    else:
        parts += (_PRESENT, encode_count(len(reply.assignment), True))
        for topic_id, numbers in reply.assignment.items():
            parts.append(topic_id.bytes)
            parts.append(encode_count(len(numbers), True))
            parts.append(struct.pack(f">{len(numbers)}i", *numbers))
            parts.append(NO_TAGS)
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return _payload(parts)


def _payload(parts: Sequence[bytes]) -> Payload:
    data = b"".join(parts)
    return Payload([data], len(data))
