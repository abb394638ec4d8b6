"""The records of `__consumer_offsets` for groups of the consumer protocol: Kafka's schemas.

Keys are in the old encoding, values in the flexible one with version 0.
"""

import enum
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from siltstone.coordinator.fields import FieldReader, FieldWriter
from siltstone.coordinator.group.members import ProtocolOffer
from siltstone.errors import MalformedDataError

# One partition of one topic, and a set of them: what a member has, or is to have.
Place = tuple[uuid.UUID, int]
Places = frozenset[Place]
# What a member has, each with the epoch in which it was given to it.
Given = Mapping[Place, int]

_VERSION: Final = 0
_CLASSIC_TAG: Final = 0
_TOPIC_HASH_TAG: Final = 0
_TARGET_TIME_TAG: Final = 0
_GIVEN_EPOCHS_TAG: Final = 0
# Before a structure that might be absent.
_ABSENT: Final = 0
_PRESENT: Final = 1


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
    assigned: Given
    pending_revocation: Given


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


class GroupEpoch(NamedTuple):
    """How often a group has changed, and which topics it had then (`topic_hash`)."""

    epoch: int
    topic_hash: int = 0


class TargetEpoch(NamedTuple):
    """For which epoch of a group there is a target, and since when."""

    epoch: int
    time_ms: int = 0


def encode_group(value: GroupEpoch) -> bytes:
    """Write the value of a group."""
    return _encode_epoch(value.epoch, _TOPIC_HASH_TAG, value.topic_hash)


def decode_group(data: bytes) -> GroupEpoch:
    """Read the value of a group."""
    return GroupEpoch(*_decode_epoch(data, _TOPIC_HASH_TAG))


def encode_target_epoch(value: TargetEpoch) -> bytes:
    """Write the value of a group's target."""
    return _encode_epoch(value.epoch, _TARGET_TIME_TAG, value.time_ms)


def decode_target_epoch(data: bytes) -> TargetEpoch:
    """Read the value of a group's target."""
    return TargetEpoch(*_decode_epoch(data, _TARGET_TIME_TAG))


def _encode_epoch(epoch: int, tag: int, tagged: int) -> bytes:
    writer = FieldWriter()
    writer.int16(_VERSION)
    writer.int32(epoch)
    writer.tags({tag: tagged.to_bytes(8, "big", signed=True)} if tagged else None)
    return writer.done()


def _decode_epoch(data: bytes, tag: int) -> tuple[int, int]:
    reader = FieldReader(data, 2)
    epoch = reader.int32()
    tagged = reader.tags().get(tag)
    return epoch, 0 if tagged is None else FieldReader(tagged).int64()


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
    # Said also of a member that is none: Kafka takes one of whom it is not said for classic.
    writer.tags({_CLASSIC_TAG: _encode_classic(value.classic)})
    return writer.done()


def _encode_classic(classic: ClassicInfo | None) -> bytes:
    writer = FieldWriter()
    if classic is None:
        writer.int8(_ABSENT)
        return writer.done()

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

    def write_topic(item: tuple[uuid.UUID, list[int]]) -> None:
        writer.topic_id(item[0])
        writer.compact_array(item[1], writer.int32)
        writer.tags()

    writer.int16(_VERSION)
    writer.compact_array(list(by_topic(places).items()), write_topic)
    writer.tags()
    return writer.done()


def decode_target(data: bytes) -> Places:
    """Read what a member is to have."""
    return frozenset(_read_given(FieldReader(data, 2), 0))


def encode_current(value: CurrentValue) -> bytes:
    """Write what a member has."""
    writer = FieldWriter()
    writer.int16(_VERSION)
    writer.int32(value.epoch)
    writer.int32(value.previous_epoch)
    writer.int8(value.state)
    _write_given(writer, value.assigned)
    _write_given(writer, value.pending_revocation)
    writer.tags()
    return writer.done()


def decode_current(data: bytes) -> CurrentValue:
    """Read what a member has; a Kafka before 4.3 did not say since when."""
    reader = FieldReader(data, 2)
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    return CurrentValue(
        epoch, previous_epoch, state, _read_given(reader, epoch), _read_given(reader, epoch)
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


def by_topic(places: Iterable[Place]) -> dict[uuid.UUID, list[int]]:
    """Return partitions by the topics that they belong to, all in order."""
    found: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(places):
        found.setdefault(topic_id, []).append(number)
    return found


def _write_given(writer: FieldWriter, given: Given) -> None:
    def write_topic(item: tuple[uuid.UUID, list[int]]) -> None:
        topic_id, numbers = item
        writer.topic_id(topic_id)
        writer.compact_array(numbers, writer.int32)
        epochs = FieldWriter()
        epochs.compact_array([given[topic_id, number] for number in numbers], epochs.int32)
        writer.tags({_GIVEN_EPOCHS_TAG: epochs.done()})

    writer.compact_array(list(by_topic(given).items()), write_topic)


def _read_given(reader: FieldReader, default_epoch: int) -> Given:
    found: dict[Place, int] = {}

    def read_topic() -> None:
        topic_id = reader.topic_id() or uuid.UUID(int=0)
        numbers = reader.compact_array(reader.int32)
        epochs = [default_epoch] * len(numbers)
        tagged = reader.tags().get(_GIVEN_EPOCHS_TAG)
        if tagged is not None:
            nested = FieldReader(tagged)
            epochs = nested.compact_array(nested.int32)
        if len(epochs) != len(numbers):
            raise MalformedDataError(
                reader.position, f"{len(epochs)} epochs of {len(numbers)} partitions"
            )
        found.update({(topic_id, n): epoch for n, epoch in zip(numbers, epochs, strict=True)})

    reader.compact_array(read_topic)
    return found
