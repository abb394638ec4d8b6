"""Who is to read what: the assignors of the consumer protocol, on the server's side.

Both are pure functions of the members, what they have now, and the topics. `range` gives each
member a stretch of every topic, so that those who read several topics alike get partitions of the
same numbers. `uniform` gives all members as many partitions as each other, and leaves with each as
much as possible of what it has.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from siltstone.coordinator.group.consumer_records import Place, Places


class AssignableMember(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[uuid.UUID]
    has_now: Places


PartitionCounts = Mapping[uuid.UUID, int]
Assignor = Callable[[Sequence[AssignableMember], PartitionCounts], dict[str, Places]]


def assign_range(members: Sequence[AssignableMember], counts: PartitionCounts) -> dict[str, Places]:
    """Give each member a stretch of every topic that it wants."""
    # Those with a name of their own first: they keep their place when they come back.
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
    shares: dict[str, set[Place]] = {member.member_id: set() for member in members}
    for topic_id, count in sorted(counts.items()):
        readers = [member for member in ordered if topic_id in member.topic_ids]
        if not readers:
            continue
        size, extra = divmod(count, len(readers))
        first = 0
        for position, member in enumerate(readers):
            stop = first + size + (position < extra)
            shares[member.member_id].update((topic_id, n) for n in range(first, stop))
            first = stop
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign_uniform(
    members: Sequence[AssignableMember], counts: PartitionCounts
) -> dict[str, Places]:
    """Give members equally many partitions, and leave them what they have where that fits."""
    members = sorted(members, key=lambda m: m.member_id)
    shares: dict[str, set[Place]] = {}
    taken: set[Place] = set()
    is_alike = len({member.topic_ids for member in members}) <= 1
    wanted = {t for member in members for t in member.topic_ids if t in counts}
    limits = _limits(members, sum(counts[t] for t in wanted)) if is_alike else None
    for member in sorted(members, key=lambda m: (-len(m.has_now), m.member_id)):
        keeps = sorted(
            place
            for place in member.has_now
            if place not in taken
            and place[0] in member.topic_ids
            and place[1] < counts.get(place[0], 0)
        )
        if limits is not None:
            keeps = keeps[: limits.pop(0)]
        shares[member.member_id] = set(keeps)
        taken.update(keeps)
    free = [(t, n) for t in sorted(wanted) for n in range(counts[t]) if (t, n) not in taken]
    if is_alike:
        _fill(shares, free)
    else:
        _spread(members, shares, free)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _limits(members: Sequence[AssignableMember], total: int) -> list[int]:
    """Return how much each may keep: the first few one more than the others."""
    if not members:
        return []
    size, extra = divmod(total, len(members))
    return [size + (position < extra) for position in range(len(members))]


def _fill(shares: dict[str, set[Place]], free: list[Place]) -> None:
    """Share out among members that all want the same; nobody has more than his part yet."""
    if not shares:
        return
    total = len(free) + sum(map(len, shares.values()))
    size, extra = divmod(total, len(shares))
    # Whoever has one more than the others already keeps it.
    extra -= sum(len(share) > size for share in shares.values())
    position = 0
    for share in shares.values():
        limit = size
        if len(share) <= size and extra > 0:
            limit, extra = size + 1, extra - 1
        while len(share) < limit and position < len(free):
            share.add(free[position])
            position += 1


def _spread(
    members: Sequence[AssignableMember], shares: dict[str, set[Place]], free: list[Place]
) -> None:
    """Share out among members that want different topics, and even out what can be."""
    readers: dict[uuid.UUID, list[str]] = {}
    for member in members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)

    def least(topic_id: uuid.UUID) -> str:
        return min(readers[topic_id], key=lambda m: (len(shares[m]), m))

    for place in sorted(free, key=lambda p: (len(readers[p[0]]), p)):
        shares[least(place[0])].add(place)
    has_moved = True
    while has_moved:  # Each move makes the sum of squares smaller, so it ends.
        has_moved = False
        for member_id in sorted(shares, key=lambda m: (-len(shares[m]), m)):
            for place in sorted(shares[member_id]):
                other = least(place[0])
                if len(shares[member_id]) - len(shares[other]) >= 2:
                    shares[member_id].remove(place)
                    shares[other].add(place)
                    has_moved = True


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
