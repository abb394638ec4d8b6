from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import CorruptIndexError
from siltstone.log.filesystem import FileSystem
from siltstone.log.offset_index import OffsetIndex, OffsetPosition
from tests.support.busy_disk import BusyDisk
from tests.support.strategies import damaged

BASE = 1_000
ENTRY_BYTES = 8
MAX_BYTES = 50  # room for six entries, and two bytes that are of no use


def open_index(
    directory: Path, *, writable: bool = True, max_bytes: int = MAX_BYTES
) -> OffsetIndex:
    return OffsetIndex(FileSystem(), directory / "1000.index", BASE, max_bytes, writable=writable)


def fill(directory: Path, *entries: tuple[int, int], max_bytes: int = MAX_BYTES) -> OffsetIndex:
    index = open_index(directory, max_bytes=max_bytes)
    for offset, position in entries:
        index.append(offset, position)
    return index


def read_file(index: OffsetIndex) -> bytes:
    return index.file.path.read_bytes()


class TestBytes:
    def test_an_entry_is_an_offset_relative_to_the_base_and_a_position(
        self, tmp_path: Path
    ) -> None:
        index = fill(tmp_path, (BASE, 77), (BASE + 2**31 - 1, 2**31 - 1))
        index.file.flush()

        assert read_file(index)[:16].hex(" ", 4) == "00000000 0000004d 7fffffff 7fffffff"

    def test_the_file_has_its_full_size_while_it_grows(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 1, 70))

        assert len(read_file(index)) == 48  # the largest multiple of an entry
        assert read_file(index)[8:] == bytes(40)

    def test_it_is_cut_to_its_entries_when_it_stops_growing(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 1, 70), (BASE + 5, 140))

        index.file.trim()

        assert len(read_file(index)) == 2 * ENTRY_BYTES
        assert index.entries() == [(BASE + 1, 70), (BASE + 5, 140)]

    def test_an_index_without_entries_is_an_empty_file(self, tmp_path: Path) -> None:
        index = open_index(tmp_path)

        index.file.trim()

        assert read_file(index) == b""

    def test_no_file_is_made_by_looking(self, tmp_path: Path) -> None:
        index = open_index(tmp_path)

        assert index.entries() == []
        assert index.find(BASE + 7) == (BASE, 0)
        assert not index.file.exists()


class TestAppending:
    def test_offsets_must_rise(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 5, 70))

        with pytest.raises(CorruptIndexError, match="offset 1005 after 1005: entries must rise"):
            index.append(BASE + 5, 140)

        assert index.entries() == [(BASE + 5, 70)]

    def test_a_full_index_says_so(self, tmp_path: Path) -> None:
        index = fill(tmp_path, *((BASE + n, n * 70) for n in range(1, 6)))
        assert not index.is_full

        index.append(BASE + 6, 420)

        assert index.is_full

    @pytest.mark.parametrize("max_bytes", [4, 7])
    def test_an_index_without_room_is_full_from_the_start(
        self, tmp_path: Path, max_bytes: int
    ) -> None:
        assert open_index(tmp_path, max_bytes=max_bytes).is_full


class TestFlushing:
    def test_entries_that_come_during_a_flush_are_not_lost(self, tmp_path: Path) -> None:
        disk = BusyDisk()
        index = OffsetIndex(disk, tmp_path / "1000.index", BASE, 100_000, writable=True)
        entries = [OffsetPosition(BASE + n, 70 * n) for n in range(1, 2_000)]
        for entry in entries[:10]:
            index.append(*entry)

        def append_many() -> None:
            for entry in entries[10:1_500]:
                index.append(*entry)

        disk.meanwhile = append_many
        index.file.flush()
        disk.other.join()
        for entry in entries[1_500:]:
            index.append(*entry)
        index.file.trim()

        assert open_index(tmp_path, max_bytes=100_000).entries() == entries

    def test_a_truncation_during_a_flush_leaves_none_of_what_it_dropped(
        self, tmp_path: Path
    ) -> None:
        disk = BusyDisk()
        index = OffsetIndex(disk, tmp_path / "1000.index", BASE, 100_000, writable=True)
        dropped = [OffsetPosition(BASE + n, 70 * n) for n in range(1, 40)]
        entries = [OffsetPosition(BASE + n, 71 * n) for n in range(1, 30)]
        for entry in dropped:
            index.append(*entry)

        disk.meanwhile = lambda: index.truncate_to(BASE)
        index.file.flush()
        disk.other.join()
        for entry in entries:
            index.append(*entry)
        index.file.trim()

        assert open_index(tmp_path, max_bytes=100_000).entries() == entries


class TestReopening:
    ENTRIES = ((BASE + 1, 70), (BASE + 5, 140), (BASE + 9, 210))

    def test_entries_are_found_again_after_a_trim(self, tmp_path: Path) -> None:
        fill(tmp_path, *self.ENTRIES).file.trim()

        assert open_index(tmp_path).entries() == list(self.ENTRIES)

    def test_the_zeros_that_a_crash_leaves_are_no_entries(self, tmp_path: Path) -> None:
        fill(tmp_path, *self.ENTRIES).file.flush()

        index = open_index(tmp_path)

        assert index.entries() == list(self.ENTRIES)
        index.append(BASE + 11, 280)
        index.file.flush()
        assert open_index(tmp_path).entries() == [*self.ENTRIES, (BASE + 11, 280)]

    def test_entries_reach_the_file_in_blocks(self, tmp_path: Path) -> None:
        index = open_index(tmp_path, max_bytes=8 * 1024)
        for number in range(1, 64):
            index.append(BASE + number, 70 * number)
        assert open_index(tmp_path, max_bytes=8 * 1024).entries() == []

        index.append(BASE + 64, 70 * 64)

        assert len(open_index(tmp_path, max_bytes=8 * 1024).entries()) == 64

    def test_an_index_can_grow_again(self, tmp_path: Path) -> None:
        fill(tmp_path, *self.ENTRIES).file.trim()

        index = fill(tmp_path, (BASE + 11, 280))

        assert len(read_file(index)) == 48
        assert index.entries() == [*self.ENTRIES, (BASE + 11, 280)]

    def test_no_entry_is_lost_when_the_setting_was_lowered(self, tmp_path: Path) -> None:
        fill(tmp_path, *self.ENTRIES).file.trim()

        index = open_index(tmp_path, max_bytes=16)
        assert index.is_full
        index.truncate_to(BASE + 100)
        index.file.trim()

        assert open_index(tmp_path).entries() == list(self.ENTRIES)

    def test_a_torn_entry_makes_the_index_corrupt(self, tmp_path: Path) -> None:
        fill(tmp_path, *self.ENTRIES).file.trim()
        path = tmp_path / "1000.index"
        path.write_bytes(path.read_bytes()[:-3])

        with pytest.raises(CorruptIndexError, match="21 bytes are no multiple of 8"):
            open_index(tmp_path).entries()

    def test_nothing_is_written_for_a_reader(self, tmp_path: Path) -> None:
        fill(tmp_path, *self.ENTRIES).file.trim()
        before = (tmp_path / "1000.index").read_bytes()

        index = open_index(tmp_path, writable=False)
        index.truncate_to(BASE + 5)
        index.append(BASE + 7, 100)
        index.replace([OffsetPosition(BASE + 3, 50)])

        assert index.entries() == [(BASE + 3, 50)]
        assert (tmp_path / "1000.index").read_bytes() == before


class TestChanging:
    def test_truncating_drops_what_is_at_or_above_an_offset(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 1, 70), (BASE + 5, 140), (BASE + 9, 210))

        index.truncate_to(BASE + 5)

        assert index.entries() == [(BASE + 1, 70)]
        assert read_file(index)[8:] == bytes(40)

    def test_truncating_gives_a_trimmed_file_its_full_size_again(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 1, 70), (BASE + 5, 140))
        index.file.trim()

        index.truncate_to(BASE + 5)

        assert len(read_file(index)) == 48

    def test_replacing_leaves_just_the_new_entries(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 1, 70), (BASE + 5, 140), (BASE + 9, 210))

        index.replace([OffsetPosition(BASE + 2, 90)])

        assert index.entries() == [(BASE + 2, 90)]
        # Kafka takes every zero behind the entries of a closed segment for an entry.
        assert read_file(index).hex(" ", 4) == "00000002 0000005a"
        index.append(BASE + 3, 100)
        assert index.entries() == [(BASE + 2, 90), (BASE + 3, 100)]

    def test_replacing_takes_no_more_than_there_is_room_for(self, tmp_path: Path) -> None:
        index = open_index(tmp_path)

        index.replace([OffsetPosition(BASE + n, n) for n in range(1, 20)])

        assert [entry.position for entry in index.entries()] == [1, 2, 3, 4, 5, 6]


class TestChecking:
    def test_sound_entries_pass(self, tmp_path: Path) -> None:
        fill(tmp_path, (BASE, 70), (BASE + 9, 210)).check_ends(211)
        open_index(tmp_path / "absent").check_ends(0)

    def test_a_position_outside_of_the_log_is_corrupt(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 1, 70), (BASE + 9, 210))

        with pytest.raises(CorruptIndexError) as error:
            index.check_ends(210)

        assert str(error.value) == (
            f"{tmp_path.name}/1000.index: positions 70 to 210 are not in the log"
        )

    def test_offsets_that_fall_are_corrupt(self, tmp_path: Path) -> None:
        index = fill(tmp_path, (BASE + 9, 70), (BASE + 10, 210))
        path = index.file.path
        path.write_bytes(bytes.fromhex("00000009 00000046 00000003 000000d2"))

        with pytest.raises(CorruptIndexError) as error:
            open_index(tmp_path).check_ends(500)

        assert str(error.value) == f"{tmp_path.name}/1000.index: offsets 1009 to 1003 do not rise"


rising = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 200)), max_size=20).map(
    lambda steps: [
        OffsetPosition(
            BASE + sum(step for step, _ in steps[: n + 1]), sum(size for _, size in steps[: n + 1])
        )
        for n in range(len(steps))
    ]
)


@given(rising, st.booleans())
def test_every_look_up_gives_what_a_scan_gives(
    entries: list[OffsetPosition], is_trimmed: bool
) -> None:
    with TemporaryDirectory() as directory:
        index = fill(Path(directory), *entries, max_bytes=1_000)
        if is_trimmed:
            index.file.trim()
            index = open_index(Path(directory), max_bytes=1_000)

        for offset in range(BASE - 1, BASE + 200):
            below = [entry for entry in entries if entry.offset <= offset]
            assert index.find(offset) == (below[-1] if below else (BASE, 0))
        for position in range(0, 4_200, 7):
            after = [entry for entry in entries if entry.position >= position]
            before = [entry for entry in entries if entry.position <= position]
            assert index.find_from_position(position) == (after[0] if after else None)
            assert index.find_before_position(position) == (before[-1] if before else None)


@given(damaged(st.binary(max_size=80)), st.integers(BASE - 10, BASE + 2**31))
def test_no_bytes_make_a_look_up_fail_in_any_other_way(data: bytes, offset: int) -> None:
    """What an entry says may be wrong, see the tests of Segment; that it is read must be safe."""
    with TemporaryDirectory() as directory:
        (Path(directory) / "1000.index").write_bytes(data)
        index = open_index(Path(directory))

        try:
            found = index.find(offset)
        except CorruptIndexError:
            assert len(data) % ENTRY_BYTES
            return
        assert found == (BASE, 0) or found in index.entries()
        assert found == (BASE, 0) or found.offset <= offset
