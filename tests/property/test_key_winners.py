"""Winners over slices: the kernels against a dict."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siltstone.cleaner import kernels, key_kernels
from siltstone.cleaner.chunks import Chunk
from siltstone.cleaner.key_marks import KeyMarks
from siltstone.cleaner.key_winners import (
    KeyWinners,
    mark_survivors,
    plain_range,
    plain_survivors,
)
from siltstone.log.filesystem import File
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from siltstone.records.scan import as_bytes, walk

WORDS = st.integers(0, 2**64 - 1)


@st.composite
def blocks(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Draw blocks of several slices with keys in common; each key is in a slice once."""
    keys = draw(st.lists(st.tuples(WORDS, st.integers(0, 2**32 - 1)), min_size=1, unique=True))
    # Hashes that differ in one half only, which a table must not mix up.
    keys += [(low, high ^ 1) for low, high in keys] + [(low ^ 1, high) for low, high in keys]
    keys = list(dict.fromkeys(keys))
    drawn = []
    for number in range(draw(st.integers(1, 5))):
        chosen = draw(st.lists(st.sampled_from(keys), unique=True))
        entries = [
            (low, high << 32 | 2 * ordinal + draw(st.integers(0, 1)))
            for ordinal, (low, high) in enumerate(chosen)
        ]
        drawn.append((number, np.array(entries, np.uint64).tobytes()))
    return draw(st.permutations(drawn))


@given(blocks())
def test_winners_are_those_of_a_dict(drawn: list[tuple[int, bytes]]) -> None:
    winners = KeyWinners(range_count=1)
    for number, block in drawn:
        winners.enter(number, block)

    survivors = winners.survivors(len(drawn))

    assert [set(s.tolist()) for s in survivors] == plain_survivors(drawn, len(drawn))
    assert sum(map(len, survivors)) == sum(map(len, plain_survivors(drawn, len(drawn))))


def test_a_table_of_winners_grows() -> None:
    rng = np.random.default_rng(1)
    entries = rng.integers(0, 2**64, (50_000, 2), np.uint64)
    winners = KeyWinners(range_count=1)
    winners.enter(0, entries[:30_000].tobytes())
    winners.enter(1, entries[10_000:].tobytes())

    first, second = winners.survivors(slice_count=2)

    assert set(first.tolist()) == {word & 0xFFFFFFFF for word in entries[:10_000, 1].tolist()}
    assert len(second) == 40_000


def test_keys_in_the_order_of_their_hashes_do_not_get_in_each_others_way() -> None:
    # With all of them at one end of a table this would take hours.
    entries = np.random.default_rng(2).integers(0, 2**64, (1_000_000, 2), np.uint64)
    entries = entries[np.argsort(entries[:, 0])]
    winners = KeyWinners(range_count=1)
    winners.enter(0, entries.tobytes())

    (survivors,) = winners.survivors(slice_count=1)

    assert sorted(survivors.tolist()) == sorted((entries[:, 1] & 0xFFFFFFFF).tolist())


@given(WORDS, st.integers(1, 1000))
def test_a_hash_belongs_to_one_range(low: int, range_count: int) -> None:
    found = key_kernels.hash_range(np.uint64(low), range_count)  # type: ignore[arg-type]

    assert found == plain_range(low, range_count)
    assert 0 <= found < range_count


@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=40),
    st.integers(1, 4),
)
def test_packed_keys_come_back_as_marks(records: list[tuple[int, bool]], range_count: int) -> None:
    batch = build_batch(
        [
            Record(n, 0, b"key-%d" % key if key else None, None if gone else b"v")
            for n, (key, gone) in enumerate(records)
        ]
        or [Record(0, 0, b"key", b"v")]
    )
    view = memoryview(batch)
    chunk = Chunk(0, view, as_bytes(view), walk(view).batches, np.zeros(1, np.uint8))
    keys = KeyMarks(bytes(range(16)))
    keys.enter_chunk(File(Path("in memory"), -1), chunk)

    marks = np.zeros(keys.entered, np.uint8)
    for block in keys.pack(range_count):
        winners = KeyWinners(range_count)
        winners.enter(0, block.tobytes())
        mark_survivors(winners.survivors(slice_count=1)[0], marks)

    expected = keys.mark_winners().copy()
    keyless = (expected & kernels.KEYLESS) != 0
    assert keys.keyless_count() == np.count_nonzero(keyless)
    # What is not the last of its key is not heard of again.
    expected[(expected & kernels.WINNER) == 0] = 0
    assert marks.tolist() == expected.tolist()
