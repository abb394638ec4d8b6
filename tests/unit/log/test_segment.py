"""One segment: what its files look like, and that no damage to an index gives a wrong answer."""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import CorruptBatchError, OffsetOrderError
from siltstone.log.segment import FileSlice, Segment
from siltstone.log.stored_batches import StoredHeader
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import read_batch, read_header
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.make_log import HastyDisk, parse_config, parse_records
from tests.support.strategies import damaged

BASE = 100
BATCH_BYTES = 70  # of one record with a key and a value of one byte each
NAME = f"{BASE:020d}"
INDEX_BYTES = 10_485_760
SMALL_INDEX_BYTES = 1_000  # where many are made


def create(directory: Path, base_offset: int = BASE, **settings: object) -> Segment:
    return Segment.create(HastyDisk(), directory, base_offset, parse_config(settings), now_ms=0)


def reopen(segment: Segment, **settings: object) -> Segment:
    """Open the files of a segment anew, as a loader that trusts them."""
    return Segment(
        HastyDisk(),
        segment.directory,
        segment.base_offset,
        parse_config(settings),
        created_ms=0,
        size_bytes=segment.path.stat().st_size,
    )


def batch(offset: int, text: str = "k=v", *, now_ms: int = 5) -> bytes:
    return build_batch(parse_records(text, now_ms, offset))


def append(segment: Segment, *batches: bytes) -> None:
    """Append batches in one call."""
    segment.append(batches, [read_header(data) for data in batches])


def sizes(directory: Path) -> dict[str, int]:
    return {path.name.removeprefix(NAME): path.stat().st_size for path in directory.iterdir()}


class TestFiles:
    def test_a_new_segment_is_an_empty_log_file(self, tmp_path: Path) -> None:
        create(tmp_path)

        assert sizes(tmp_path) == {".log": 0}

    def test_whatever_lay_around_under_its_names_is_gone(self, tmp_path: Path) -> None:
        for extension in (".log", ".index", ".timeindex", ".txnindex"):
            (tmp_path / f"{NAME}{extension}").write_bytes(b"something else")

        segment = create(tmp_path)

        assert sizes(tmp_path) == {".log": 0}
        assert segment.offset_index.entries() == []
        assert segment.transaction_index.entries == []

    def test_indexes_have_their_full_size_while_the_segment_is_active(self, tmp_path: Path) -> None:
        segment = create(tmp_path, index_interval_bytes=0)

        append(segment, batch(BASE), batch(BASE + 1, now_ms=6))

        assert sizes(tmp_path) == {
            ".log": 2 * BATCH_BYTES,
            ".index": INDEX_BYTES,  # the largest multiple of 8
            ".timeindex": INDEX_BYTES - 4,  # the largest multiple of 12
        }

    def test_indexes_are_cut_to_their_entries_when_it_is_not_active_any_more(
        self, tmp_path: Path
    ) -> None:
        segment = create(tmp_path, index_interval_bytes=0)
        append(segment, batch(BASE), batch(BASE + 1, now_ms=6), batch(BASE + 2, now_ms=7))

        segment.become_inactive()

        assert sizes(tmp_path) == {".log": 3 * BATCH_BYTES, ".index": 16, ".timeindex": 24}

    def test_a_small_segment_has_one_time_and_no_offset_in_its_indexes(
        self, tmp_path: Path
    ) -> None:
        segment = create(tmp_path)
        append(segment, batch(BASE), batch(BASE + 1, now_ms=6))

        segment.become_inactive()

        assert sizes(tmp_path) == {".log": 2 * BATCH_BYTES, ".index": 0, ".timeindex": 12}
        assert segment.time_index.entries() == [(6, BASE + 1)]

    def test_a_segment_without_timestamps_has_no_times(self, tmp_path: Path) -> None:
        segment = create(tmp_path, index_interval_bytes=0)
        append(segment, *(batch(BASE + n, now_ms=-1) for n in range(3)))

        segment.become_inactive()

        assert sizes(tmp_path) == {".log": 3 * BATCH_BYTES, ".index": 16, ".timeindex": 0}

    def test_a_preallocated_file_is_cut_to_its_batches_in_the_end(self, tmp_path: Path) -> None:
        segment = create(tmp_path, preallocate=True, segment_bytes=1_000)
        append(segment, batch(BASE), batch(BASE + 1))
        assert sizes(tmp_path)[".log"] == 1_000
        assert len(list(segment.iter_batches())) == 2
        assert segment.next_offset() == BASE + 2

        segment.become_inactive()

        assert sizes(tmp_path)[".log"] == 2 * BATCH_BYTES

    def test_renaming_takes_all_files_along(self, tmp_path: Path) -> None:
        segment = create(tmp_path, index_interval_bytes=0)
        append(segment, batch(BASE), batch(BASE + 1, now_ms=6))
        segment.transaction_index.append(AbortedTxn(1, BASE, BASE + 1, BASE + 2))

        segment.rename(".deleted")

        assert set(sizes(tmp_path)) == {
            ".log.deleted",
            ".index.deleted",
            ".timeindex.deleted",
            ".txnindex.deleted",
        }
        assert [path.name.removeprefix(NAME) for path in segment.paths()] == [
            ".log.deleted",
            ".index.deleted",
            ".timeindex.deleted",
            ".txnindex.deleted",
        ]
        assert len(list(segment.iter_batches())) == 2

    def test_renaming_does_not_miss_what_never_was(self, tmp_path: Path) -> None:
        segment = create(tmp_path)

        segment.rename(".swap")

        assert set(sizes(tmp_path)) == {".log.swap"}

    def test_a_slice_outlives_its_segment(self, tmp_path: Path) -> None:
        segment = create(tmp_path)
        append(segment, batch(BASE), batch(BASE + 1))
        part = FileSlice(segment.file, BATCH_BYTES, BATCH_BYTES)

        segment.close()
        segment.path.unlink()

        assert part.read() == batch(BASE + 1)


class TestIndexing:
    """KAFKA-806: every batch counts, however many come in one call."""

    def test_an_entry_needs_more_than_the_interval_before_it(self, tmp_path: Path) -> None:
        segment = create(tmp_path, index_interval_bytes=2 * BATCH_BYTES)

        for offset in range(BASE, BASE + 8):
            append(segment, batch(offset, now_ms=offset))

        assert segment.offset_index.entries() == [(BASE + 3, 210), (BASE + 6, 420)]
        assert segment.time_index.entries() == [
            (BASE + 3, BASE + 3),
            (BASE + 6, BASE + 6),
        ]

    @pytest.mark.parametrize("calls", [1, 2, 8])
    def test_it_does_not_matter_how_many_calls_there_were(self, tmp_path: Path, calls: int) -> None:
        segment = create(tmp_path, index_interval_bytes=2 * BATCH_BYTES)
        batches = [batch(offset, now_ms=offset) for offset in range(BASE, BASE + 8)]

        for n in range(0, 8, 8 // calls):
            append(segment, *batches[n : n + 8 // calls])

        assert segment.offset_index.entries() == [(BASE + 3, 210), (BASE + 6, 420)]

    def test_twenty_batches_of_a_follower_in_two_calls(self, tmp_path: Path) -> None:
        """Facts 3.2 had one entry, (19, 1200); since KAFKA-806 all but the first have one."""
        segment = create(tmp_path, 0, index_interval_bytes=100)
        batches = [batch(offset, f"k={'v' * 51}", now_ms=offset) for offset in range(20)]
        assert {len(data) for data in batches} == {120}

        append(segment, *batches[:10])
        append(segment, *batches[10:])

        assert segment.offset_index.entries() == [(n, 120 * n) for n in range(1, 20)]

    def test_an_entry_names_the_last_offset_of_its_batch(self, tmp_path: Path) -> None:
        segment = create(tmp_path, index_interval_bytes=0)

        append(segment, batch(BASE, "a=1 b=1"), batch(BASE + 2, "c=1@20 d=1@30 e=1@10"))

        assert segment.offset_index.entries() == [(BASE + 4, 79)]
        assert segment.time_index.entries() == [(30, BASE + 4)]

    def test_the_time_index_holds_the_newest_so_far(self, tmp_path: Path) -> None:
        segment = create(tmp_path, index_interval_bytes=0)

        for offset, now_ms in enumerate([10, 50, 20, 50, 60, 30], BASE):
            append(segment, batch(offset, now_ms=now_ms))
        assert segment.time_index.entries() == [(50, BASE + 1), (60, BASE + 4)]
        segment.become_inactive()

        assert segment.time_index.entries() == [(50, BASE + 1), (60, BASE + 4)]
        assert segment.max_timestamp == (60, BASE + 4)

    def test_a_newest_timestamp_that_is_not_indexed_yet_gets_the_final_entry(
        self, tmp_path: Path
    ) -> None:
        segment = create(tmp_path)
        for offset, now_ms in enumerate([10, 50, 20], BASE):
            append(segment, batch(offset, now_ms=now_ms))

        segment.become_inactive()

        assert segment.time_index.entries() == [(50, BASE + 1)]
        assert reopen(segment).max_timestamp == (50, BASE + 1)

    def test_counting_starts_over_in_a_segment_that_is_opened_again(self, tmp_path: Path) -> None:
        segment = create(tmp_path, index_interval_bytes=100)
        append(segment, batch(BASE), batch(BASE + 1))
        segment.become_inactive()

        segment = reopen(segment, index_interval_bytes=100)
        append(segment, *(batch(BASE + n) for n in range(2, 7)))

        assert segment.offset_index.entries() == [(BASE + 4, 280), (BASE + 6, 420)]

    def test_an_offset_that_does_not_fit_is_refused(self, tmp_path: Path) -> None:
        segment = create(tmp_path)

        append(segment, batch(BASE + 2**31 - 1))
        with pytest.raises(OffsetOrderError):
            append(segment, batch(BASE + 2**31))

        assert segment.size_bytes == BATCH_BYTES


class TestAge:
    def test_the_newest_timestamp_tells_how_old_a_segment_is(self, tmp_path: Path) -> None:
        segment = create(tmp_path)
        append(segment, batch(BASE, now_ms=90), batch(BASE + 1, now_ms=30))

        assert segment.largest_timestamp_ms == 90

    def test_without_timestamps_its_file_does(self, tmp_path: Path) -> None:
        segment = create(tmp_path)
        append(segment, batch(BASE, now_ms=-1))
        os.utime(segment.path, ns=(0, 123_456_789_000_000))

        assert segment.largest_timestamp_ms == 123_456_789


class TestReading:
    def test_batches_larger_than_any_buffer_are_read(self, tmp_path: Path) -> None:
        segment = create(tmp_path)
        large = build_batch([Record(BASE + 1, 5, b"k", b"v" * 3_000_000)])
        append(segment, batch(BASE), large, batch(BASE + 2), batch(BASE + 3))

        assert [found.header.base_offset for _, found in segment.iter_batches()] == [
            BASE,
            BASE + 1,
            BASE + 2,
            BASE + 3,
        ]
        assert [stored.position for stored in segment.iter_headers()] == [
            0,
            BATCH_BYTES,
            BATCH_BYTES + len(large),
            2 * BATCH_BYTES + len(large),
        ]
        assert bytes(segment.read_batch(BATCH_BYTES).data) == large

    def test_headers_at_the_edge_of_a_window_are_whole(self, tmp_path: Path) -> None:
        segment = create(tmp_path)
        # Of all sizes, so that a header begins at every position before the end of a window.
        batches = [batch(BASE + n, f"k={'v' * (n % 61)}") for n in range(400)]
        append(segment, *batches)

        assert [stored.header for stored in segment.iter_headers()] == [
            read_header(data) for data in batches
        ]

    @pytest.mark.parametrize(
        ("position", "byte", "message"),
        [
            (BATCH_BYTES + 16, 1, "magic 1 is not supported"),
            (BATCH_BYTES + 16, 9, "unknown magic 9"),
            (BATCH_BYTES + 11, 3, "batch length 3 is too small"),
            (BATCH_BYTES + 10, 9, "batch of 2374 bytes ends after the file"),
            (BATCH_BYTES + 22, 7, "unknown codec 7"),
            (2 * BATCH_BYTES - 1, 9, "header says CRC 0x"),
        ],
    )
    def test_damage_is_reported_with_its_place(
        self, tmp_path: Path, position: int, byte: int, message: str
    ) -> None:
        segment = create(tmp_path)
        append(segment, batch(BASE), batch(BASE + 1))
        data = bytearray(segment.path.read_bytes())
        data[position] = byte
        segment.path.write_bytes(data)

        with pytest.raises(CorruptBatchError) as error:
            list(segment.iter_batches())

        assert str(error.value).startswith(
            f"{tmp_path.name}/{NAME}.log is corrupt at position {BATCH_BYTES}: {message}"
        )
        assert error.value.position == BATCH_BYTES


# A segment's answers must be those of a scan, whatever its indexes say (I4).


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
