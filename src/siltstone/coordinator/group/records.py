"""The records of `__consumer_offsets` for offsets and classic groups: Kafka's schemas, both ways.

A key begins with the number of its kind, a value with the version of its schema. What Kafka 4.3
writes is written; what any Kafka since 0.9 wrote is read.
"""

import struct
import uuid
from typing import Final, NamedTuple

from siltstone.coordinator.fields import FieldReader, FieldWriter
from siltstone.errors import MalformedDataError

LEGACY_OFFSET_KEY: Final = 0
OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2

_NO_EPOCH: Final = -1
_NO_TIME: Final = -1
_OFFSET_VERSION: Final = 4
_GROUP_VERSION: Final = 3
_FLEXIBLE_OFFSET_VERSION: Final = 4
_FLEXIBLE_GROUP_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0
_OFFSET_HEAD: Final = struct.Struct(">hqi")  # version, offset, leader epoch
_OFFSET_TAIL: Final = struct.Struct(">qb")  # time of the commit, count of tagged fields
_ONE_BYTE: Final = 0x7F  # lengths below this take one byte
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class OffsetKey(NamedTuple):
    """Which offset: a group's, for one partition."""

    group_id: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """How far a group has come, and what it wanted to remember with it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    expire_time_ms: int = _NO_TIME  # of clients from before Kafka 2.1, that said how long
    topic_id: uuid.UUID | None = None


class StoredMember(NamedTuple):
    """A member of a classic group, as it is written down."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group, as it is written down."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[StoredMember, ...]


def encode_offset_key(key: OffsetKey) -> bytes:
    """Write the key of an offset."""
    group, topic = key.group_id.encode(), key.topic.encode()
    return b"".join(
        (
            _SHORT.pack(OFFSET_KEY),
            _SHORT.pack(len(group)),
            group,
            _SHORT.pack(len(topic)),
            topic,
            _INT.pack(key.partition),
        )
    )


def decode_offset_key(key: bytes) -> OffsetKey:
    """Read the key of an offset, behind the number of its kind."""
    reader = FieldReader(key, 2)
    return OffsetKey(reader.string(), reader.string(), reader.int32())


def encode_offset_value(value: OffsetValue) -> bytes:
    """Write an offset in the newest schema; one that says when it expires, in the one that can."""
    metadata = value.metadata.encode()
    if value.expire_time_ms == _NO_TIME and value.topic_id is None and len(metadata) < _ONE_BYTE:
        # Nearly all are like this, and every commit writes many.
        return b"".join(
            (
                _OFFSET_HEAD.pack(_OFFSET_VERSION, value.offset, value.leader_epoch),
                bytes((len(metadata) + 1,)),
                metadata,
                _OFFSET_TAIL.pack(value.commit_time_ms, 0),
            )
        )
    writer = FieldWriter()
    if value.expire_time_ms != _NO_TIME:
        writer.int16(1)
        writer.int64(value.offset)
        writer.string(value.metadata)
        writer.int64(value.commit_time_ms)
        writer.int64(value.expire_time_ms)
        return writer.done()
    writer.int16(_OFFSET_VERSION)
    writer.int64(value.offset)
    writer.int32(value.leader_epoch)
    writer.compact_string(value.metadata)
    writer.int64(value.commit_time_ms)
    writer.tags({_TOPIC_ID_TAG: value.topic_id.bytes} if value.topic_id else None)
    return writer.done()


def decode_offset_value(data: bytes) -> OffsetValue:
    """Read an offset in any of its schemas."""
    reader = FieldReader(data)
    version = _check_version(reader, _OFFSET_VERSION, "an offset")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else _NO_EPOCH
    is_flexible = version >= _FLEXIBLE_OFFSET_VERSION
    metadata = reader.compact_string() if is_flexible else reader.string()
    commit_time_ms = reader.int64()
    expire_time_ms = reader.int64() if version == 1 else _NO_TIME
    topic_id = None
    if is_flexible and (tagged := reader.tags().get(_TOPIC_ID_TAG)) is not None:
        topic_id = FieldReader(tagged).topic_id()
    return OffsetValue(offset, leader_epoch, metadata, commit_time_ms, expire_time_ms, topic_id)


def encode_group_key(group_id: str) -> bytes:
    """Write the key of a classic group."""
    writer = FieldWriter()
    writer.int16(GROUP_KEY)
    writer.string(group_id)
    return writer.done()


def decode_group_key(key: bytes) -> str:
    """Read the key of a classic group, behind the number of its kind."""
    return FieldReader(key, 2).string()


def encode_group_value(value: GroupValue) -> bytes:
    """Write a classic group."""
    writer = FieldWriter()

    def write_member(member: StoredMember) -> None:
        writer.string(member.member_id)
        writer.string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.binary(member.subscription)
        writer.binary(member.assignment)

    writer.int16(_GROUP_VERSION)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.state_since_ms)
    writer.array(value.members, write_member)
    return writer.done()


def decode_group_value(data: bytes) -> GroupValue:
    """Read a classic group in any of its schemas."""
    reader = FieldReader(data)
    version = _check_version(reader, _FLEXIBLE_GROUP_VERSION, "a group")
    is_flexible = version >= _FLEXIBLE_GROUP_VERSION
    string = reader.compact_string if is_flexible else reader.string
    nullable = reader.compact_nullable_string if is_flexible else reader.nullable_string
    binary = reader.compact_binary if is_flexible else reader.binary

    def read_member() -> StoredMember:
        member_id = string()
        instance_id = nullable() if version >= 3 else None
        client_id, client_host = string(), string()
        first_ms = reader.int32()
        # Before version 1 the session timeout was the only one.
        session_timeout_ms = reader.int32() if version >= 1 else first_ms
        member = StoredMember(
            member_id,
            instance_id,
            client_id,
            client_host,
            first_ms,
            session_timeout_ms,
            binary(),
            binary(),
        )
        if is_flexible:
            reader.tags()
        return member

    protocol_type, generation = string(), reader.int32()
    protocol, leader = nullable(), nullable()
    state_since_ms = reader.int64() if version >= 2 else _NO_TIME
    members = reader.compact_array(read_member) if is_flexible else reader.array(read_member)
    return GroupValue(protocol_type, generation, protocol, leader, state_since_ms, tuple(members))


def kind_of(key: bytes) -> int:
    """Return what kind of record has a key."""
    return FieldReader(key).int16()


def _check_version(reader: FieldReader, newest: int, what: str) -> int:
    version = reader.int16()
    if not 0 <= version <= newest:
        raise MalformedDataError(0, f"{what} in version {version}, which nobody here can read")
    return version
