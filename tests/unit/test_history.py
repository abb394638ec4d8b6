"""The history checker finds each anomaly that is put in front of it, and nothing in sound ones."""

import pytest

from tests.support.history import History, Kind, Outcome, Read, Write

COMMITTED, ABORTED, UNKNOWN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN


def write(value: str, outcome: Outcome = COMMITTED, key: str | None = None) -> Write:
    return Write(0, (key or value).encode(), value.encode(), outcome)


def reads(*pairs: tuple[int, str], key: str | None = None) -> list[Read]:
    return [Read(offset, (key or value).encode(), value.encode()) for offset, value in pairs]


SOUND = [
    History(),
    History(
        [write("a"), write("b", ABORTED), write("c", UNKNOWN), write("d", UNKNOWN)],
        {0: [reads((0, "a")), reads((0, "a"), (4, "c")), []]},
        {0: reads((0, "a"), (4, "c"))},
    ),
    # Superseded, seen and unseen, and a consumer that came when they were gone.
    History(
        [write("1", key="k"), write("2", key="k"), write("3", key="k"), write("x")],
        {0: [[*reads((0, "1"), key="k"), *reads((5, "x"))], reads((5, "x"))]},
        {0: [*reads((5, "x")), *reads((6, "3"), key="k")]},
    ),
]

BROKEN = [
    (Kind.LOST_WRITE, History([write("a"), write("b")], {}, {0: reads((1, "b"))})),
    # The key is there, but with an older value: the newer one was seen, and is gone.
    (
        Kind.LOST_WRITE,
        History(
            [write("1", key="k"), write("2", key="k")],
            {0: [reads((3, "2"), key="k")]},
            {0: reads((0, "1"), key="k")},
        ),
    ),
    (Kind.DUPLICATE_WRITE, History([write("a")], {}, {0: reads((0, "a"), (5, "a"))})),
    # Twice, though never in one run: compaction took the first.
    (
        Kind.DUPLICATE_WRITE,
        History([write("a", UNKNOWN)], {0: [reads((0, "a"))]}, {0: reads((5, "a"))}),
    ),
    (
        Kind.ABORTED_READ,
        History([write("a", ABORTED)], {0: [reads((0, "a"))]}, {0: []}),
    ),
    (Kind.ABORTED_READ, History([write("a", ABORTED)], {}, {0: reads((0, "a"))})),
    (Kind.UNWRITTEN_READ, History([], {}, {0: reads((0, "a"))})),
    (
        Kind.CHANGED_READ,
        History([write("a"), write("b")], {0: [reads((0, "a"))]}, {0: reads((0, "b"))}),
    ),
    (
        Kind.NON_MONOTONIC_POLL,
        History(
            [write("a"), write("b")],
            {0: [reads((1, "b"), (0, "a"))]},
            {0: reads((0, "a"), (1, "b"))},
        ),
    ),
    (
        Kind.SKIPPED_RECORD,
        History(
            [write("a"), write("b"), write("c")],
            {0: [reads((0, "a"), (2, "c"))]},
            {0: reads((0, "a"), (1, "b"), (2, "c"))},
        ),
    ),
]


@pytest.mark.parametrize("history", SOUND)
def test_nothing_is_found_in_a_sound_history(history: History) -> None:
    assert history.check() == []


@pytest.mark.parametrize(("kind", "history"), BROKEN)
def test_a_seeded_anomaly_is_found(kind: Kind, history: History) -> None:
    assert kind in {anomaly.kind for anomaly in history.check()}


def test_partitions_are_judged_one_by_one() -> None:
    history = History(
        [write("a")._replace(partition=1), write("b")],
        {},
        {0: reads((0, "b")), 1: reads((0, "b"))},
    )

    found = {(anomaly.kind, anomaly.partition) for anomaly in history.check()}

    assert found == {(Kind.UNWRITTEN_READ, 1), (Kind.LOST_WRITE, 1)}
