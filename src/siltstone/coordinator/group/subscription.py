"""What consumers say about themselves in the classic protocol: their topics, and their shares."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from siltstone.coordinator.fields import FieldReader, FieldWriter
from siltstone.errors import DecodeError

CONSUMER: Final = "consumer"  # the protocol type of consumers


class Subscription(NamedTuple):
    """What a consumer wants, and what it has."""

    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    generation: int = -1
    rack_id: str | None = None


def decode_subscription(data: bytes) -> Subscription:
    """Read a subscription of any version, also of one that is still to come."""
    reader = FieldReader(data)
    version = reader.int16()
    topics = tuple(reader.array(reader.string))
    reader.nullable_binary()  # what the assignors tell each other
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    generation, rack_id = -1, None
    if version >= 1:
        owned = tuple(reader.array(lambda: (reader.string(), tuple(reader.array(reader.int32)))))
    if version >= 2:
        generation = reader.int32()
    if version >= 3:
        rack_id = reader.nullable_string()
    return Subscription(topics, owned, generation, rack_id)


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription, or None if it is none."""
    try:
        return frozenset(decode_subscription(metadata).topics)
    except DecodeError:
        return None


def encode_assignment(partitions: Mapping[str, Sequence[int]], version: int) -> bytes:
    """Write the share of a member as its client reads it."""
    writer = FieldWriter()

    def write_topic(topic: str) -> None:
        writer.string(topic)
        writer.array(sorted(partitions[topic]), writer.int32)

    writer.int16(version)
    writer.array(sorted(partitions), write_topic)
    writer.binary(None)
    return writer.done()


def decode_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Read the share of a member; nothing at all is an empty one."""
    if not data:
        return {}
    reader = FieldReader(data)
    reader.int16()
    return dict(reader.array(lambda: (reader.string(), tuple(reader.array(reader.int32)))))
