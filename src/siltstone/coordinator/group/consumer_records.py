"""The records of `__consumer_offsets` for groups of the consumer protocol: Kafka's schemas.

Keys are in the old encoding, values in the flexible one with version 0.
"""

import enum
import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from siltstone.coordinator.fields import FieldReader, FieldWriter
from siltstone.coordinator.group.members import ProtocolOffer

# One partition of one topic, and a set of them: what a member has, or is to have.
Place = tuple[uuid.UUID, int]
Places = frozenset[Place]

_VERSION: Final = 0
_CLASSIC_TAG: Final = 0
_PRESENT: Final = 1  # before a structure that might be absent


class Kind(enum.IntEnum):
    """What kind of record a key belongs to."""

    GROUP = 3
    PARTITIONS = 4  # of Kafka before 4.1; nobody needs it any more
    MEMBER = 5
    TARGET = 6
    TARGET_MEMBER = 7
    CURRENT_MEMBER = 8
    REGEX = 16


class Key(NamedTuple):
    """A key: a group, and for some kinds one of its members, or patterns."""

    kind: Kind
    group_id: str
    detail: str | None = None  # a member id, or a pattern


class ClassicInfo(NamedTuple):
    """What is known of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ProtocolOffer, ...]


class MemberValue(NamedTuple):
    """What a member has told about itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicInfo | None = None


class CurrentValue(NamedTuple):
    """How far a member has come towards its target."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Places
    pending_revocation: Places


_DETAILED: Final = (Kind.MEMBER, Kind.TARGET_MEMBER, Kind.CURRENT_MEMBER, Kind.REGEX)


def encode_key(key: Key) -> bytes:
    """Write a key."""
    writer = FieldWriter()
    writer.int16(key.kind)
    writer.string(key.group_id)
    if key.kind in _DETAILED:
        writer.string(key.detail)
    return writer.done()


def decode_key(data: bytes) -> Key:
    """Read a key of one of the kinds."""
    reader = FieldReader(data)
    kind = Kind(reader.int16())
    group_id = reader.string()
    return Key(kind, group_id, reader.string() if kind in _DETAILED else None)


def encode_epoch(epoch: int) -> bytes:
    """Write the value of a group, or of its target: an epoch."""
    writer = FieldWriter()
    writer.int16(_VERSION)
    writer.int32(epoch)
    writer.tags()
    return writer.done()


def decode_epoch(data: bytes) -> int:
    """Read the epoch of a group, or of its target."""
    return FieldReader(data, 2).int32()


def encode_member(value: MemberValue) -> bytes:
    """Write what a member has told about itself."""
    writer = FieldWriter()
    writer.int16(_VERSION)
    writer.compact_string(value.instance_id)
    writer.compact_string(value.rack_id)
    writer.compact_string(value.client_id)
    writer.compact_string(value.client_host)
    writer.compact_array(value.topics, writer.compact_string)
    writer.compact_string(value.regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.compact_string(value.assignor)
    tags = {} if value.classic is None else {_CLASSIC_TAG: _encode_classic(value.classic)}
    writer.tags(tags)
    return writer.done()


def _encode_classic(classic: ClassicInfo) -> bytes:
    writer = FieldWriter()

    def write_offer(offer: ProtocolOffer) -> None:
        writer.compact_string(offer.name)
        writer.compact_binary(offer.metadata)
        writer.tags()

    writer.int8(_PRESENT)
    writer.int32(classic.session_timeout_ms)
    writer.compact_array(classic.protocols, write_offer)
    writer.tags()
    return writer.done()


def decode_member(data: bytes) -> MemberValue:
    """Read what a member has told about itself."""
    reader = FieldReader(data, 2)
    fields = (
        reader.compact_nullable_string(),
        reader.compact_nullable_string(),
        reader.compact_string(),
        reader.compact_string(),
        tuple(reader.compact_array(reader.compact_string)),
        reader.compact_nullable_string(),
        reader.int32(),
        reader.compact_nullable_string(),
    )
    tagged = reader.tags().get(_CLASSIC_TAG)
    return MemberValue(*fields, None if tagged is None else _decode_classic(tagged))


def _decode_classic(data: bytes) -> ClassicInfo | None:
    reader = FieldReader(data)
    if reader.int8() != _PRESENT:
        return None

    def read_offer() -> ProtocolOffer:
        offer = ProtocolOffer(reader.compact_string(), reader.compact_binary())
        reader.tags()
        return offer

    return ClassicInfo(reader.int32(), tuple(reader.compact_array(read_offer)))


def encode_target(places: Places) -> bytes:
    """Write what a member is to have."""
    writer = FieldWriter()
    writer.int16(_VERSION)
    _write_places(writer, places)
    writer.tags()
    return writer.done()


def decode_target(data: bytes) -> Places:
    """Read what a member is to have."""
    return _read_places(FieldReader(data, 2))


def encode_current(value: CurrentValue) -> bytes:
    """Write what a member has."""
    writer = FieldWriter()
    writer.int16(_VERSION)
    writer.int32(value.epoch)
    writer.int32(value.previous_epoch)
    writer.int8(value.state)
    _write_places(writer, value.assigned)
    _write_places(writer, value.pending_revocation)
    writer.tags()
    return writer.done()


def decode_current(data: bytes) -> CurrentValue:
    """Read what a member has."""
    reader = FieldReader(data, 2)
    return CurrentValue(
        reader.int32(),
        reader.int32(),
        reader.int8(),
        _read_places(reader),
        _read_places(reader),
    )


def encode_regex(topics: Iterable[str], version: int, time_ms: int) -> bytes:
    """Write which topics match a pattern, and when that was found out."""
    writer = FieldWriter()
    writer.int16(_VERSION)
    writer.compact_array(sorted(topics), writer.compact_string)
    writer.int64(version)
    writer.int64(time_ms)
    writer.tags()
    return writer.done()


def decode_regex(data: bytes) -> frozenset[str]:
    """Read which topics match a pattern."""
    reader = FieldReader(data, 2)
    return frozenset(reader.compact_array(reader.compact_string))


def by_topic(places: Places) -> dict[uuid.UUID, list[int]]:
    """Return partitions by the topics that they belong to, all in order."""
    found: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(places):
        found.setdefault(topic_id, []).append(number)
    return found


def _write_places(writer: FieldWriter, places: Places) -> None:
    def write_topic(item: tuple[uuid.UUID, list[int]]) -> None:
        writer.topic_id(item[0])
        writer.compact_array(item[1], writer.int32)
        writer.tags()

    writer.compact_array(list(by_topic(places).items()), write_topic)


def _read_places(reader: FieldReader) -> Places:
    found: set[Place] = set()

    def read_topic() -> None:
        topic_id = reader.topic_id() or uuid.UUID(int=0)
        found.update((topic_id, number) for number in reader.compact_array(reader.int32))
        reader.tags()

    reader.compact_array(read_topic)
    return frozenset(found)
