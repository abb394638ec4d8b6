"""A segment's answers are those of a scan, whatever its indexes say (I4)."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from siltstone.log.segment import Segment
from siltstone.log.stored_batches import StoredHeader
from siltstone.log.time_index import TimestampOffset
from siltstone.records.batch import read_batch, read_header
from tests.support.segments import BASE, NAME, append, batch, create, reopen
from tests.support.strategies import damaged

SMALL_INDEX_BYTES = 1_000  # where many are made


class Layout:
    """Batches with gaps between them, no two with the same newest timestamp."""

    def __init__(self, rows: Sequence[tuple[int, int, int]]) -> None:
        self.batches: list[bytes] = []
        offset = BASE
        for gap, count, timestamp_ms in rows:
            offset += gap
            times = [timestamp_ms * 10 - n for n in range(count)]
            self.batches.append(batch(offset, " ".join(f"k=v@{time_ms}" for time_ms in times)))
            offset += count
        self.end_offset = offset
        self.headers = [read_header(data) for data in self.batches]
        self.positions = [0]
        for data in self.batches:
            self.positions.append(self.positions[-1] + len(data))

    def write(self, directory: Path, interval_bytes: int) -> Segment:
        """Make a closed segment of it."""
        segment = create(
            directory, index_interval_bytes=interval_bytes, segment_index_bytes=SMALL_INDEX_BYTES
        )
        append(segment, *self.batches)
        segment.become_inactive()
        segment.close()
        return segment

    def cut(self, offset: int) -> None:
        """Forget all batches that reach an offset."""
        kept = sum(header.last_offset < offset for header in self.headers)
        del self.batches[kept:], self.headers[kept:], self.positions[kept + 1 :]

    def check(self, segment: Segment) -> None:
        """Compare every answer of a segment with that of a scan."""
        records = [record for data in self.batches for record in read_batch(data).iter_records()]
        assert segment.next_offset() == (self.headers[-1].next_offset if self.headers else BASE)
        self._check_newest(segment.max_timestamp)
        for offset in range(BASE, self.end_offset + 2):
            assert segment.find_batch(offset) == self._find_batch(offset)
        for time_ms in {
            0,
            *(header.max_timestamp_ms + n for header in self.headers for n in (0, 1)),
        }:
            for start_offset in (BASE, BASE + 3):
                expected = (
                    TimestampOffset(record.timestamp_ms, record.offset)
                    for record in records
                    if record.timestamp_ms >= time_ms and record.offset >= start_offset
                )
                found = segment.find_timestamp(time_ms, start_offset)
                assert found == next(expected, None)
        for position in self.positions[:-1]:
            for max_bytes in (0, 70, 71, 200):
                found_end = segment.find_end(position, max_bytes, segment.size_bytes)
                assert found_end == self._find_end(position, max_bytes)
                # An abort must not be overlooked: the bound may be too high, never too low.
                bound = segment.find_offset_above(found_end, self.end_offset)
                last = self.headers[self.positions.index(found_end) - 1]
                assert last.next_offset <= bound

    def _find_batch(self, offset: int) -> StoredHeader | None:
        for position, header in zip(self.positions, self.headers, strict=False):
            if header.last_offset >= offset:
                return StoredHeader(position, header)
        return None

    def _find_end(self, position: int, max_bytes: int) -> int:
        ends = [end for end in self.positions if end > position]
        fitting = [end for end in ends if end <= position + max_bytes]
        return fitting[-1] if fitting else ends[0]

    def _check_newest(self, found: TimestampOffset) -> None:
        if not self.headers:
            assert found == (-1, BASE)
            return
        header = max(self.headers, key=lambda header: header.max_timestamp_ms)
        assert found.timestamp_ms == header.max_timestamp_ms
        # Any offset of the batch will do: old Kafkas name the record, and damage may do the same.
        assert header.base_offset <= found.offset <= header.last_offset


layouts = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 40)),
    unique_by=lambda row: row[2],
    min_size=1,
    max_size=7,
).map(Layout)


intervals = st.sampled_from([0, 100, 4096])


@given(layouts, intervals, st.booleans())
def test_every_answer_is_that_of_a_scan(
    layout: Layout, interval_bytes: int, is_reopened: bool
) -> None:
    with TemporaryDirectory() as directory:
        segment = layout.write(Path(directory), interval_bytes)

        layout.check(reopen(segment) if is_reopened else segment)


@given(layouts, intervals, st.data())
def test_a_damaged_index_never_gives_a_wrong_answer(
    layout: Layout, interval_bytes: int, data: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        segment = layout.write(Path(directory), interval_bytes)
        for index in (segment.offset_index, segment.time_index):
            sound = index.file.path.read_bytes()
            noise = data.draw(damaged(st.just(sound)))
            # What is no multiple of an entry is noticed when the log is loaded.
            whole = len(noise) - len(noise) % index.file.entry_bytes
            index.file.path.write_bytes(noise[:whole])

        layout.check(reopen(segment))


@given(layouts, intervals, st.sets(st.sampled_from([".index", ".timeindex"]), min_size=1))
def test_a_missing_index_never_gives_a_wrong_answer(
    layout: Layout, interval_bytes: int, missing: set[str]
) -> None:
    with TemporaryDirectory() as directory:
        segment = layout.write(Path(directory), interval_bytes)
        for extension in missing:
            (Path(directory) / f"{NAME}{extension}").unlink()

        layout.check(reopen(segment))


@given(layouts, layouts, st.data())
def test_a_segment_with_damaged_indexes_can_be_appended_to(
    layout: Layout, addition: Layout, data: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        segment = layout.write(Path(directory), 0)
        for index in (segment.offset_index, segment.time_index):
            entries = index.file.path.read_bytes()
            noise = data.draw(st.binary(min_size=len(entries), max_size=len(entries)))
            index.file.path.write_bytes(noise)

        segment = reopen(segment, index_interval_bytes=0, segment_index_bytes=SMALL_INDEX_BYTES)
        rows = [
            (layout.end_offset - BASE if n == 0 else 1, 1, header.max_timestamp_ms // 10 + 40)
            for n, header in enumerate(addition.headers)
        ]
        more = Layout(rows)
        append(segment, *more.batches)
        segment.become_inactive()

        layout.batches += more.batches
        layout.headers += more.headers
        layout.positions += [layout.positions[-1] + position for position in more.positions[1:]]
        layout.end_offset = more.end_offset
        layout.check(segment)
        layout.check(reopen(segment))


@given(layouts, intervals, st.integers(0, 40), st.booleans())
def test_truncating_leaves_what_lies_before(
    layout: Layout, interval_bytes: int, distance: int, is_reopened: bool
) -> None:
    with TemporaryDirectory() as directory:
        segment = layout.write(Path(directory), interval_bytes)
        if is_reopened:
            segment = reopen(segment)
        before = segment.size_bytes

        removed = segment.truncate_to(BASE + distance, now_ms=9)
        layout.cut(BASE + distance)

        assert before - removed == segment.size_bytes == layout.positions[-1]
        assert segment.path.stat().st_size == segment.size_bytes
        layout.check(segment)
        segment.become_inactive()
        layout.check(reopen(segment))


def test_truncating_to_nothing_makes_a_segment_young_again(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, batch(BASE, now_ms=50))
    assert segment.first_timestamp_ms == 50

    segment.truncate_to(BASE, now_ms=9)

    assert segment.created_ms == 9
    assert segment.first_timestamp_ms == -1
    append(segment, batch(BASE, now_ms=70))
    assert segment.first_timestamp_ms == 70


def test_a_segment_that_lost_its_indexes_can_be_closed(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, batch(BASE, now_ms=50))
    segment.become_inactive()
    # An entry far beyond all offsets, and older than any record: the final one cannot follow it.
    segment.time_index.file.path.write_bytes(bytes.fromhex("0000000000000001 7fffffff"))

    segment = reopen(segment)
    segment.become_inactive()

    assert reopen(segment).time_index.entries() == [(50, BASE)]
