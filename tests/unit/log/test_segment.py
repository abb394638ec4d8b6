"""One segment: what its files look like, how it is indexed and read."""

import os
from pathlib import Path

import pytest

from siltstone.errors import CorruptBatchError, OffsetOrderError
from siltstone.log.segment import FileSlice
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import read_header
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.segments import BASE, NAME, append, batch, create, reopen

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
INDEX_BYTES = 10_485_760


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
