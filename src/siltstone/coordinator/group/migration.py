"""From one protocol to the other, with the members that a group has.

A classic group becomes one of the consumer protocol when the first member of that protocol joins;
its classic members stay, and are served as such (`classic_members`). It becomes a classic group
again when the last member of the consumer protocol has gone. Everybody keeps what he has.
"""

from collections.abc import Iterator
from typing import Final

from siltstone.coordinator.group.classic import ClassicGroup
from siltstone.coordinator.group.consumer import ConsumerGroup
from siltstone.coordinator.group.consumer_member import ConsumerMember
from siltstone.coordinator.group.consumer_records import ClassicInfo, Place, Places, by_topic
from siltstone.coordinator.group.members import Member
from siltstone.coordinator.group.subscription import (
    CONSUMER,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from siltstone.coordinator.group.topics import Topics
from siltstone.errors import DecodeError

_UPGRADES: Final = ("upgrade", "bidirectional")
_DOWNGRADES: Final = ("downgrade", "bidirectional")


def can_upgrade(group: ClassicGroup, policy: str) -> bool:
    """Say whether a classic group may take in members of the consumer protocol."""
    return policy in _UPGRADES and group.protocol_type == CONSUMER


def can_downgrade(group: ConsumerGroup, policy: str) -> bool:
    """Say whether only classic members are left, and may have a classic group again."""
    return (
        policy in _DOWNGRADES
        and bool(group.members)
        and all(member.classic is not None for member in group.members.values())
    )


def upgraded_members(group: ClassicGroup, topics: Topics) -> list[ConsumerMember]:
    """Return the members of a classic group as they are in the consumer protocol.

    Raise DecodeError if one has said something that cannot be understood.
    """
    return [
        ConsumerMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            origin=member.origin,
            topics=_topics_of(group, member),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicInfo(member.session_timeout_ms, member.protocols),
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=frozenset(_places(decode_assignment(member.assignment), topics)),
        )
        for member in group.members.values()
    ]


def _topics_of(group: ClassicGroup, member: Member) -> tuple[str, ...]:
    metadata = member.metadata_for(group.protocol) or member.protocols[0].metadata
    return tuple(sorted(set(decode_subscription(metadata).topics)))


def _places(assignment: dict[str, tuple[int, ...]], topics: Topics) -> Iterator[Place]:
    for name, numbers in assignment.items():
        info = topics.find(name)
        if info is not None:
            yield from ((info.topic_id, number) for number in numbers)


def downgraded_members(group: ConsumerGroup, topics: Topics, protocol: str) -> list[Member]:
    """Return the members of a group, all classic, as they are in a classic group."""
    members = []
    for member in group.members.values():
        assert member.classic is not None
        members.append(
            Member(
                member.member_id,
                member.instance_id,
                member.origin,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                member.classic.protocols,
                encode_share(member.assigned, topics, _version_of(member.classic, protocol)),
            )
        )
    return members


def common_protocol(group: ConsumerGroup) -> str:
    """Return a protocol that all classic members of a group have."""
    offers = [m.classic.protocols for m in group.members.values() if m.classic is not None]
    common = {offer.name for offer in offers[0]}.intersection(
        *({offer.name for offer in one} for one in offers)
    )
    return next((offer.name for offer in offers[0] if offer.name in common), offers[0][0].name)


def encode_share(places: Places, topics: Topics, version: int) -> bytes:
    """Write partitions as the clients of the classic protocol read them."""
    named = {}
    for topic_id, numbers in by_topic(places).items():
        info = topics.find_by_id(topic_id)
        if info is not None:
            named[info.name] = numbers
    return encode_assignment(named, version)


def share_version(member: ConsumerMember) -> int:
    """Return the version in which a classic member reads its share: that of its subscription."""
    assert member.classic is not None
    return _version_of(member.classic, member.classic.protocols[0].name)


def _version_of(classic: ClassicInfo, protocol: str) -> int:
    offer = next((p for p in classic.protocols if p.name == protocol), classic.protocols[0])
    if len(offer.metadata) < 2:
        raise DecodeError(0, "a subscription without a version")
    return int.from_bytes(offer.metadata[:2], "big")
