"""Indexes that a verification has nothing to say about lead where a scan does."""

import itertools
import struct
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siltstone.cleaner.verify.batches import Columns, Layout
from siltstone.cleaner.verify.files import SegmentFiles
from siltstone.cleaner.verify.findings import Findings
from siltstone.cleaner.verify.indexes import check_indexes
from tests.support.random_lives import PARTITION


@st.composite
def indexed_batches(
    draw: st.DrawFn,
) -> tuple[Columns, list[tuple[int, int]], list[tuple[int, int]]]:
    """Batches of a segment with base offset 0, and entries that may be about them."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    spans = draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes)))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    times = draw(st.lists(st.integers(-1, 5), min_size=len(sizes), max_size=len(sizes)))
    ends = list(itertools.accumulate(map(sum, zip(gaps, spans, strict=True))))
    firsts = np.array(ends) - np.array(spans)
    positions = np.array([0, *itertools.accumulate(sizes[:-1])])
    columns = Columns(positions, firsts, np.array(ends) - 1, np.array(times))
    end = int(columns.last_offsets[-1])
    offset = st.integers(0, end + 1)
    position = st.sampled_from([*positions.tolist(), 3])
    entries = draw(st.lists(st.tuples(offset, position), max_size=3))
    time_entries = draw(st.lists(st.tuples(st.integers(0, 6), offset), max_size=3))
    return columns, sorted(entries), sorted(time_entries)


@given(indexed_batches())
def test_indexes_in_which_nothing_is_wrong_give_what_a_scan_gives(
    case: tuple[Columns, list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    columns, entries, time_entries = case
    segment = SegmentFiles(
        0,
        Path("0.log"),
        100,
        b"".join(struct.pack(">ii", *entry) for entry in entries),
        b"".join(struct.pack(">qi", *entry) for entry in time_entries),
        None,
        end_offset=100,
    )
    findings = Findings(PARTITION)
    check_indexes(segment, Layout(columns, 100, is_whole=True), findings, was_clean=True)
    wrong = {finding.file for finding in findings.finish()}

    def find(offset: int, position: int) -> int | None:
        """Return the number of the first batch from a position on that ends at an offset."""
        for number, (at, last) in enumerate(
            zip(columns.positions, columns.last_offsets, strict=True)
        ):
            if at >= position and last >= offset:
                return number
        return None

    def indexed_position(offset: int) -> int:
        return max((e for e in entries if e[0] <= offset), default=(0, 0))[1]

    if segment.name_of(".index") in wrong:
        return
    for offset in range(int(columns.last_offsets[-1]) + 2):
        assert find(offset, indexed_position(offset)) == find(offset, 0)
    if segment.name_of(".timeindex") in wrong:
        return
    for time_ms in range(8):
        _, offset = max((e for e in time_entries if e[0] <= time_ms), default=(-1, 0))
        first = find(offset, indexed_position(offset))
        assert first is not None
        newer = np.flatnonzero(columns.max_timestamps >= time_ms)
        assert not (newer < first).any()
        # The segment itself is found by its newest timestamp.
        last_ms = time_entries[-1][0] if time_entries else -1
        assert (last_ms >= time_ms) == bool(len(newer))
