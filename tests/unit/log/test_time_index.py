from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import FileSystem
from siltstone.log.time_index import TimeIndex, TimestampOffset

BASE = 1_000
ENTRY_BYTES = 12
MAX_BYTES = 50  # room for four entries, and two bytes that are of no use
NOTHING = TimestampOffset(-1, BASE)


def open_index(directory: Path, *, writable: bool = True, max_bytes: int = MAX_BYTES) -> TimeIndex:
    return TimeIndex(FileSystem(), directory / "1000.timeindex", BASE, max_bytes, writable=writable)


def fill(directory: Path, *entries: tuple[int, int], max_bytes: int = MAX_BYTES) -> TimeIndex:
    index = open_index(directory, max_bytes=max_bytes)
    for timestamp_ms, offset in entries:
        index.maybe_append(TimestampOffset(timestamp_ms, offset))
    return index


def read_file(index: TimeIndex) -> bytes:
    return index.file.path.read_bytes()


class TestBytes:
    def test_an_entry_is_a_timestamp_and_an_offset_relative_to_the_base(
        self, tmp_path: Path
    ) -> None:
        index = fill(tmp_path, (1, BASE), (2**63 - 1, BASE + 2**31 - 1))
        index.file.flush()

        assert read_file(index)[:24].hex(" ", 4) == (
            "00000000 00000001 00000000 7fffffff ffffffff 7fffffff"
        )

    def test_the_file_has_its_full_size_while_it_grows(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (500, BASE + 1))

        assert len(read_file(index)) == 48

    def test_it_is_cut_to_its_entries_when_it_stops_growing(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (500, BASE + 1), (600, BASE + 2))

        index.file.trim()

        assert len(read_file(index)) == 2 * ENTRY_BYTES
        assert open_index(tmp_path).entries() == [(500, BASE + 1), (600, BASE + 2)]


class TestAppending:
    @pytest.mark.parametrize("timestamp_ms", [500, 499, -1])
    def test_an_entry_that_is_not_newer_is_left_out(
        self, tmp_path: Path, timestamp_ms: int
    ) -> None:
        index = fill(tmp_path, (500, BASE + 1), (timestamp_ms, BASE + 2))

        assert index.entries() == [(500, BASE + 1)]

    def test_records_without_timestamps_leave_it_empty(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (-1, BASE + 1), (-1, BASE + 2))

        assert index.entries() == []
        assert index.last == NOTHING

    def test_the_same_offset_may_come_again_with_a_newer_time(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (500, BASE + 1), (600, BASE + 1))

        assert index.last == (600, BASE + 1)

    def test_offsets_must_not_fall(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (500, BASE + 5))

        with pytest.raises(CorruptIndexError, match="offset 1004 after 1005: entries must rise"):
            index.maybe_append(TimestampOffset(600, BASE + 4))

    def test_the_last_place_is_kept_for_the_final_entry(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (1, BASE + 1), (2, BASE + 2), (3, BASE + 3))
        assert index.is_full

        index.maybe_append(TimestampOffset(4, BASE + 4))
        assert index.last == (3, BASE + 3)
        index.maybe_append(TimestampOffset(4, BASE + 4), final=True)
        assert index.last == (4, BASE + 4)


class TestChanging:
    ENTRIES = ((500, BASE + 1), (600, BASE + 5), (700, BASE + 9))

    def test_truncating_drops_what_is_at_or_above_an_offset(self, tmp_path: Path) -> None:
        index = fill(tmp_path, *self.ENTRIES)

        index.truncate_to(BASE + 5)

        assert index.entries() == [(500, BASE + 1)]
        assert len(read_file(index)) == 48

    def test_replacing_leaves_just_the_new_entries_that_rise(self, tmp_path: Path) -> None:
        index = fill(tmp_path, *self.ENTRIES)

        index.replace(
            [
                TimestampOffset(-1, BASE),
                TimestampOffset(5, BASE + 2),
                TimestampOffset(5, BASE + 3),
                TimestampOffset(8, BASE + 3),
            ]
        )

        assert index.entries() == [(5, BASE + 2), (8, BASE + 3)]
        assert len(read_file(index)) == 2 * ENTRY_BYTES

    def test_replacing_has_room_for_the_newest_in_any_case(self, tmp_path: Path) -> None:
        index = open_index(tmp_path)

        index.replace([TimestampOffset(n, BASE + n) for n in range(1, 20)])

        assert [entry.timestamp_ms for entry in index.entries()] == [1, 2, 3, 19]

    def test_nothing_is_written_for_a_reader(self, tmp_path: Path) -> None:
        fill(tmp_path, *self.ENTRIES).file.trim()
        before = (tmp_path / "1000.timeindex").read_bytes()

        index = open_index(tmp_path, writable=False)
        index.truncate_to(BASE + 5)
        index.maybe_append(TimestampOffset(800, BASE + 11), final=True)
        index.replace([TimestampOffset(5, BASE + 2)])

        assert index.entries() == [(5, BASE + 2)]
        assert (tmp_path / "1000.timeindex").read_bytes() == before


class TestReopening:
    def test_the_zeros_that_a_crash_leaves_are_no_entries(self, tmp_path: Path) -> None:
        fill(tmp_path, (500, BASE + 1), (600, BASE + 2)).file.flush()

        assert open_index(tmp_path).last == (600, BASE + 2)

    def test_a_torn_entry_makes_the_index_corrupt(self, tmp_path: Path) -> None:
        (tmp_path / "1000.timeindex").write_bytes(bytes(13))

        with pytest.raises(CorruptIndexError, match="13 bytes are no multiple of 12"):
            open_index(tmp_path).entries()

    def test_sound_ends_pass(self, tmp_path: Path) -> None:
        fill(tmp_path, (500, BASE), (600, BASE + 5)).check_ends()
        open_index(tmp_path / "absent").check_ends()

    @pytest.mark.parametrize(
        "data",
        [
            "0000000000000258 00000001 00000000000001f4 00000005",  # the time falls
            "00000000000001f4 00000005 0000000000000258 00000001",  # the offset falls
            "00000000000001f4 ffffffff 0000000000000258 00000001",  # before the base
        ],
    )
    def test_ends_that_do_not_rise_are_corrupt(self, tmp_path: Path, data: str) -> None:
        (tmp_path / "1000.timeindex").write_bytes(bytes.fromhex(data))

        with pytest.raises(CorruptIndexError, match="do not rise"):
            open_index(tmp_path).check_ends()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), max_size=20), st.booleans())
def test_every_look_up_gives_what_a_scan_gives(
    steps: list[tuple[int, int]], is_trimmed: bool
) -> None:
    entries = []
    last = NOTHING
    for time_step, offset_step in steps:
        last = TimestampOffset(last.timestamp_ms + time_step, last.offset + offset_step)
        entries.append(last)
    with TemporaryDirectory() as directory:
        index = fill(Path(directory), *entries, max_bytes=1_000)
        if is_trimmed:
            index.file.trim()
            index = open_index(Path(directory), max_bytes=1_000)
        # (0, base) is written as zeros, and so is forgotten if nothing follows: see Segment.
        known = index.entries()
        assert known == entries or entries == [(0, BASE)]

        for time_ms in range(-1, 200):
            below = [entry for entry in known if entry.timestamp_ms <= time_ms]
            assert index.find(time_ms) == (below[-1] if below else NOTHING)
