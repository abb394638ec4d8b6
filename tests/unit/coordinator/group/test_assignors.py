"""The assignors: everything is read, evenly, and as little as possible changes hands."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from siltstone.coordinator.group.assignors import (
    ASSIGNORS,
    AssignableMember,
    assign_range,
    assign_uniform,
)
from siltstone.coordinator.group.consumer_records import Places

TOPICS = [uuid.UUID(int=number) for number in (1, 2, 3)]

COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
SUBSCRIPTIONS = st.lists(st.frozensets(st.sampled_from(TOPICS)), max_size=5)


def member(
    number: int, topics: frozenset[uuid.UUID], has: Places = frozenset()
) -> AssignableMember:
    return AssignableMember(f"m{number}", None, topics, has)


@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS, name=st.sampled_from(sorted(ASSIGNORS)))
def test_each_partition_that_somebody_wants_has_one_reader_who_wants_it(
    subscriptions: list[frozenset[uuid.UUID]], counts: dict[uuid.UUID, int], name: str
) -> None:
    members = [member(n, topics) for n, topics in enumerate(subscriptions)]

    shares = ASSIGNORS[name](members, counts)

    assert shares.keys() == {m.member_id for m in members}
    assert all(t in m.topic_ids for m in members for t, _ in shares[m.member_id])
    everything = sorted(place for share in shares.values() for place in share)
    wanted = {t for topics in subscriptions for t in topics}
    assert everything == sorted((t, n) for t in wanted for n in range(counts.get(t, 0)))


@given(size=st.integers(1, 6), more=st.integers(0, 3), counts=COUNTS, leaves=st.booleans())
def test_uniform_shares_are_even_and_stay_where_they_were(
    size: int, more: int, counts: dict[uuid.UUID, int], leaves: bool
) -> None:
    topics = frozenset(TOPICS)
    before = assign_uniform([member(n, topics) for n in range(size)], counts)
    first = 1 if leaves and size > 1 else 0
    members = [
        member(n, topics, before.get(f"m{n}", frozenset())) for n in range(first, size + more)
    ]

    after = assign_uniform(members, counts)

    sizes = sorted(len(share) for share in after.values())
    assert sizes[-1] - sizes[0] <= 1
    # Nobody gives up more than he must to come down to an even share.
    for one in members:
        kept = after[one.member_id] & one.has_now
        assert len(kept) >= min(len(one.has_now), sum(counts.values()) // len(members))


@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_uniform_shares_of_different_topics_cannot_be_evened_out_by_a_move(
    subscriptions: list[frozenset[uuid.UUID]], counts: dict[uuid.UUID, int]
) -> None:
    members = [member(n, topics) for n, topics in enumerate(subscriptions)]

    shares = assign_uniform(members, counts)

    if len(set(subscriptions)) > 1:
        for giver in members:
            for topic_id, _ in shares[giver.member_id]:
                for taker in members:
                    if topic_id in taker.topic_ids:
                        difference = len(shares[giver.member_id]) - len(shares[taker.member_id])
                        assert difference <= 1


def test_a_range_is_the_same_stretch_of_every_topic() -> None:
    topics = frozenset(TOPICS[:2])
    members = [member(n, topics) for n in range(2)]

    shares = assign_range(members, {TOPICS[0]: 3, TOPICS[1]: 3})

    assert shares == {
        "m0": frozenset((t, n) for t in TOPICS[:2] for n in (0, 1)),
        "m1": frozenset((t, 2) for t in TOPICS[:2]),
    }
