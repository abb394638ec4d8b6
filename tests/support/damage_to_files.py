"""Damage to segments, indexes and checkpoints."""

import itertools
from pathlib import Path
from typing import Final

from siltstone.log import filenames
from tests.support.damage import mutation
from tests.support.edited_logs import EditedLog

OFFSET_ENTRY: Final = ">ii"
TIME_ENTRY: Final = ">qi"


# Segments and files


@mutation("I2 I4 I9", "I2 I3 I4 I7 I9")
def _overlap_two_segments(log: EditedLog, before: EditedLog) -> None:
    base_offset = log.segment_of(log.find("u"))
    for extension in (".log", ".index", ".timeindex"):
        data = log.path(base_offset, extension).read_bytes()
        log.path(base_offset + 1, extension).write_bytes(data)


@mutation("I1 I4", "I1 I4 I6 I7 I10")
def _cut_a_batch(log: EditedLog, before: EditedLog) -> None:
    path = log.path(log.segment_of(log.find("u")), ".log")
    path.write_bytes(path.read_bytes()[:-5])


@mutation("I4", "I4 I6 I7 I10")
def _cut_a_segment_between_batches(log: EditedLog, before: EditedLog) -> None:
    base_offset = log.segment_of(log.find("u"))
    log.write(base_offset, log.batches(base_offset)[:-1], keeps_indexes=True)


@mutation("I1")
def _add_garbage_to_a_segment(log: EditedLog, before: EditedLog) -> None:
    path = log.path(log.segment_of(log.find("u")), ".log")
    path.write_bytes(path.read_bytes() + b"garbage")


@mutation("I1")
def _add_zeros_to_a_segment(log: EditedLog, before: EditedLog) -> None:
    path = log.path(log.segment_of(log.find("u")), ".log")
    path.write_bytes(path.read_bytes() + bytes(100))


@mutation("I1 I20", "I1 I6 I7 I10 I15 I19 I20")
def _overwrite_the_middle_of_a_segment(log: EditedLog, before: EditedLog) -> None:
    path = log.path(log.segment_of(log.find("q")), ".log")
    data = bytearray(path.read_bytes())
    data[20:200] = bytes(180)
    path.write_bytes(bytes(data))


@mutation("", "I6 I7 I10")
def _lose_a_segment(log: EditedLog, before: EditedLog) -> None:
    base_offset = log.segment_of(log.find("u"))
    for extension in (".log", ".index", ".timeindex", ".snapshot"):
        log.path(base_offset, extension).unlink()


@mutation("I5 I20 I22")
def _lose_the_end_of_the_log(log: EditedLog, before: EditedLog) -> None:
    for base_offset in (b for b in log.base_offsets() if b > before.find("u")):
        for path in log.directory.glob(f"{base_offset:020d}.*"):
            if path.suffix != ".snapshot":
                path.unlink()
    base_offset = log.segment_of(log.find("u"))
    log.write(base_offset, log.batches(base_offset)[:-1])


@mutation("", "I8")
def _change_what_no_pass_has_reached(log: EditedLog, before: EditedLog) -> None:
    """It was not there when the pass ran, so that is put right."""
    base_offset = before.base_offsets()[-1]
    log.change_record(log.find("v"), value=b"other value!")
    before.write(base_offset, log.batches(base_offset))
    log.change_record(log.find("v"), value=b"third value!")


@mutation("I21")
def _leave_a_swap(log: EditedLog, before: EditedLog) -> None:
    path = log.path(log.base_offsets()[1], ".log")
    path.with_name(path.name + ".swap").write_bytes(path.read_bytes())


@mutation("", "", warnings="I21")
def _leave_a_cleaned_segment(log: EditedLog, before: EditedLog) -> None:
    path = log.path(log.base_offsets()[1], ".log")
    path.with_name(path.name + ".cleaned").write_bytes(b"")


@mutation("", "", warnings="I21")
def _leave_what_a_task_wrote(log: EditedLog, before: EditedLog) -> None:
    (log.directory / filenames.pass_file_name("1", "x", 0, ".log")).write_bytes(b"")


# Offset index and time index


def _index_of(log: EditedLog) -> Path:
    return log.path(log.segment_of(log.find("q")), ".index")


def _time_index_of(log: EditedLog) -> Path:
    return log.path(log.segment_of(log.find("q")), ".timeindex")


@mutation("", "", warnings="I4")
def _lose_an_offset_index(log: EditedLog, before: EditedLog) -> None:
    _index_of(log).unlink()


@mutation("I4")
def _tear_an_offset_index(log: EditedLog, before: EditedLog) -> None:
    _index_of(log).write_bytes(_index_of(log).read_bytes()[:-3])


@mutation("I4")
def _move_a_position(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _index_of(log), OFFSET_ENTRY, lambda rows: [*rows[:-1], [rows[-1][0], rows[-1][1] + 1]]
    )


@mutation("I4")
def _point_behind_the_batch(log: EditedLog, before: EditedLog) -> None:
    """Each offset gets the position of the batch after it."""
    log.edit_entries(
        _index_of(log),
        OFFSET_ENTRY,
        lambda rows: [[a[0], b[1]] for a, b in itertools.pairwise(rows)],
    )


@mutation("I4")
def _point_behind_the_file(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_index_of(log), OFFSET_ENTRY, lambda rows: [*rows, [500, 1 << 20]])


@mutation("I4")
def _swap_two_entries(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_index_of(log), OFFSET_ENTRY, lambda rows: [rows[1], rows[0], *rows[2:]])


@mutation("I4")
def _repeat_an_entry(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_index_of(log), OFFSET_ENTRY, lambda rows: [rows[0], *rows])


@mutation("I4")
def _speak_of_an_offset_in_a_gap(log: EditedLog, before: EditedLog) -> None:
    """Nothing is missed by it, but no append has ever written it."""
    first = log.path(0, ".index")
    log.edit_entries(
        first, OFFSET_ENTRY, lambda rows: [[6, p] if o == 9 else [o, p] for o, p in rows]
    )


@mutation("I4")
def _leave_zeros_in_an_offset_index(log: EditedLog, before: EditedLog) -> None:
    _index_of(log).write_bytes(_index_of(log).read_bytes() + bytes(16))


@mutation("", "", warnings="I4")
def _lose_a_time_index(log: EditedLog, before: EditedLog) -> None:
    _time_index_of(log).unlink()


@mutation("", "", warnings="I4")
def _empty_a_time_index(log: EditedLog, before: EditedLog) -> None:
    _time_index_of(log).write_bytes(b"")


@mutation("I4")
def _lose_the_last_entry_of_a_time_index(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_time_index_of(log), TIME_ENTRY, lambda rows: rows[:-1])


@mutation("I4")
def _make_a_time_older(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _time_index_of(log), TIME_ENTRY, lambda rows: [[rows[0][0] - 1, rows[0][1]], *rows[1:]]
    )


@mutation("I4")
def _make_the_last_time_newer(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _time_index_of(log), TIME_ENTRY, lambda rows: [*rows[:-1], [rows[-1][0] + 1, rows[-1][1]]]
    )


@mutation("I4")
def _let_a_time_point_behind_its_batch(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _time_index_of(log), TIME_ENTRY, lambda rows: [[rows[0][0], rows[1][1]], *rows[2:]]
    )


@mutation("I4")
def _tear_a_time_index(log: EditedLog, before: EditedLog) -> None:
    _time_index_of(log).write_bytes(_time_index_of(log).read_bytes() + b"\1")


# Checkpoints


@mutation("I22", "I22")
def _put_the_checkpoint_above_the_log(log: EditedLog, before: EditedLog) -> None:
    log.write_offset(filenames.CLEANER_OFFSETS, 1000)


@mutation("I8 I9 I18 I19")
def _put_the_checkpoint_into_the_active_segment(log: EditedLog, before: EditedLog) -> None:
    log.write_offset(filenames.CLEANER_OFFSETS, log.find("a") + 1)


@mutation("I9 I18")
def _put_the_checkpoint_into_the_dirty_section(log: EditedLog, before: EditedLog) -> None:
    log.write_offset(filenames.CLEANER_OFFSETS, log.segment_of(log.find("x")))


@mutation("I22", "I22")
def _write_nonsense_into_the_checkpoint(log: EditedLog, before: EditedLog) -> None:
    (log.log_dir / filenames.CLEANER_OFFSETS).write_text("0\n1\norders x 3\n")


@mutation("I5", "I5")
def _let_the_log_start_after_its_end(log: EditedLog, before: EditedLog) -> None:
    log.write_offset(filenames.LOG_START_OFFSETS, 1000)


@mutation("I5", "I5")
def _replicate_more_than_there_is(log: EditedLog, before: EditedLog) -> None:
    log.write_offset(filenames.HIGH_WATERMARKS, 1000)


@mutation("", "I5")
def _raise_the_log_start_of_a_compacted_log(log: EditedLog, before: EditedLog) -> None:
    log.write_offset(filenames.LOG_START_OFFSETS, 5)


@mutation("", "I5", warnings="")
def _lower_the_log_start(log: EditedLog, before: EditedLog) -> None:
    before.write_offset(filenames.LOG_START_OFFSETS, 5)
