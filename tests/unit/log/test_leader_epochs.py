import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.log.leader_epochs import UNDEFINED_END, EpochEnd, EpochEntry, LeaderEpochs

LOG_END_OFFSET = 100


def epochs_of(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*pair) for pair in pairs)


rising_pairs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 10)), max_size=6).map(
    lambda steps: [
        (sum(s[0] for s in steps[: i + 1]), sum(s[1] for s in steps[: i + 1]))
        for i in range(len(steps))
    ]
)


def test_an_empty_log_has_no_epoch() -> None:
    epochs = LeaderEpochs()

    assert epochs.entries == ()
    assert epochs.latest() is None
    assert epochs.find_epoch_at(0) is None
    assert epochs.end_offset_for(0, LOG_END_OFFSET) == UNDEFINED_END


def test_the_first_offset_of_an_epoch_stays_its_start() -> None:
    epochs = LeaderEpochs()

    assert epochs.assign(2, 6)
    assert not epochs.assign(2, 7)
    assert not epochs.assign(2, 6)
    assert epochs.assign(3, 9)
    assert epochs.entries == ((2, 6), (3, 9))
    assert epochs.latest() == EpochEntry(3, 9)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ((4, 9), ((2, 6), (3, 8), (4, 9))),
        ((4, 8), ((2, 6), (4, 8))),
        ((4, 7), ((2, 6), (4, 7))),
        ((4, 0), ((4, 0),)),
        ((3, 7), ((2, 6), (3, 7))),
        ((2, 9), ((2, 9),)),
        ((1, 9), ((1, 9),)),
        ((3, 6), ((3, 6),)),
    ],
)
def test_a_new_entry_replaces_those_that_contradict_it(
    entry: tuple[int, int], expected: tuple[tuple[int, int], ...]
) -> None:
    epochs = epochs_of((2, 6), (3, 8))

    assert epochs.assign(*entry)

    assert epochs.entries == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=20))
def test_epochs_and_offsets_always_rise(assigned: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()

    for epoch, start_offset in assigned:
        epochs.assign(epoch, start_offset)

        entries = epochs.entries
        for older, newer in itertools.pairwise(entries):
            assert older.epoch < newer.epoch
            assert older.start_offset < newer.start_offset
        latest = epochs.latest()
        assert latest is not None
        assert latest.epoch == epoch
        assert latest.start_offset <= start_offset


@given(rising_pairs)
def test_entries_that_rise_are_taken_as_they_are(pairs: list[tuple[int, int]]) -> None:
    assert epochs_of(*pairs).entries == tuple(pairs)


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (-1, UNDEFINED_END),  # the asker knows no epoch
        (0, EpochEnd(0, 10)),  # older than the log: where the first known epoch begins
        (2, EpochEnd(2, 20)),
        (3, EpochEnd(2, 20)),  # never wrote here: the one before it
        (5, EpochEnd(5, 30)),
        (6, EpochEnd(5, 30)),
        (7, EpochEnd(7, LOG_END_OFFSET)),  # still being written
        (8, UNDEFINED_END),  # newer than the log
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(requested: int, expected: EpochEnd) -> None:
    epochs = epochs_of((2, 10), (5, 20), (7, 30))

    assert epochs.end_offset_for(requested, LOG_END_OFFSET) == expected


@given(rising_pairs, st.integers(0, 30))
def test_the_end_of_an_epoch_agrees_with_a_search_of_all_entries(
    pairs: list[tuple[int, int]], requested: int
) -> None:
    later = [start for epoch, start in pairs if epoch > requested]
    earlier = [epoch for epoch, _ in pairs if epoch <= requested]
    if later:
        expected = EpochEnd(earlier[-1] if earlier else requested, later[0])
    elif earlier and earlier[-1] == requested:
        expected = EpochEnd(requested, LOG_END_OFFSET)
    else:
        expected = UNDEFINED_END

    assert epochs_of(*pairs).end_offset_for(requested, LOG_END_OFFSET) == expected


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, None), (10, 2), (19, 2), (20, 5), (30, 7), (99, 7)]
)
def test_an_offset_belongs_to_the_last_epoch_that_began_by_then(
    offset: int, epoch: int | None
) -> None:
    assert epochs_of((2, 10), (5, 20), (7, 30)).find_epoch_at(offset) == epoch


@pytest.mark.parametrize(("epoch", "previous"), [(2, None), (3, 2), (5, 2), (7, 5), (99, 7)])
def test_the_previous_epoch_is_the_largest_below(epoch: int, previous: int | None) -> None:
    assert epochs_of((2, 10), (5, 20), (7, 30)).find_previous_epoch(epoch) == previous


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (5, ((2, 6), (3, 8), (4, 11))),
        (6, ((2, 6), (3, 8), (4, 11))),
        (7, ((2, 7), (3, 8), (4, 11))),
        (8, ((3, 8), (4, 11))),
        (9, ((3, 9), (4, 11))),
        (11, ((4, 11),)),
        (50, ((4, 50),)),
    ],
)
def test_a_new_log_start_keeps_the_epoch_that_wrote_it(
    start_offset: int, expected: tuple[tuple[int, int], ...]
) -> None:
    epochs = epochs_of((2, 6), (3, 8), (4, 11))

    changed = epochs.truncate_from_start(start_offset)

    assert epochs.entries == expected
    assert changed == (expected != ((2, 6), (3, 8), (4, 11)))


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [
        (12, ((2, 6), (3, 8), (4, 11))),
        (11, ((2, 6), (3, 8))),
        (9, ((2, 6), (3, 8))),
        (8, ((2, 6),)),
        (6, ()),
        (0, ()),
    ],
)
def test_a_truncation_forgets_the_epochs_that_began_at_or_after_it(
    end_offset: int, expected: tuple[tuple[int, int], ...]
) -> None:
    epochs = epochs_of((2, 6), (3, 8), (4, 11))

    changed = epochs.truncate_from_end(end_offset)

    assert epochs.entries == expected
    assert changed == (len(expected) != 3)


@given(rising_pairs, st.integers(0, 70), st.integers(0, 70))
def test_truncation_does_not_change_who_wrote_what_is_left(
    pairs: list[tuple[int, int]], start_offset: int, end_offset: int
) -> None:
    epochs = epochs_of(*pairs)
    before = [epochs.find_epoch_at(offset) for offset in range(80)]

    epochs.truncate_from_start(start_offset)
    epochs.truncate_from_end(end_offset)

    for offset in range(start_offset, end_offset):
        assert epochs.find_epoch_at(offset) == before[offset]


def test_everything_can_be_forgotten() -> None:
    epochs = epochs_of((2, 6))

    assert epochs.clear()
    assert not epochs.clear()
    assert epochs.entries == ()
