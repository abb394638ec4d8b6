"""Damage of every kind, seeded into a sound log: each must be found, and by its number.

Each is looked for twice. *Alone*: nothing but the log itself, whose manifests are gone. *Against*:
a copy from before the pass, and a manifest that was forged to say that the files are as they are
now, so that what is found is found by what is in them.
"""

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from siltstone.cleaner.rebuild import rebuild_batch
from siltstone.cleaner.verify import Report, Severity, VerifyRequest, verify_partition
from siltstone.log import filenames
from siltstone.log.producer_snapshot import read_snapshot, write_snapshot
from siltstone.records.batch import Batch, read_batch
from siltstone.records.builder import build_batch, build_empty_batch, encode_batch
from siltstone.records.compression import Codec, compress
from siltstone.records.control import ControlType, Marker, encode_marker
from siltstone.records.layout import (
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from siltstone.records.record import Record
from tests.support.cleaned_logs import DELETE_RETENTION_MS, CleanedLog, make_cleaned_log
from tests.support.clock import START_MS
from tests.support.edited_logs import EditedLog

OFFSET_ENTRY: Final = ">ii"
TIME_ENTRY: Final = ">qi"
ABORTED_ENTRY: Final = ">hqqqq"

Damage = Callable[[EditedLog, EditedLog], None]  # to the log, with its copy from before at hand


@dataclass(frozen=True)
class Mutation:
    name: str
    damage: Damage
    alone: str = ""  # the invariants that are found broken, and no others; none: it cannot be told
    against: str | None = None  # those, maybe with consequences of theirs; None: as alone
    warnings: str = ""  # alone, and maybe others

    def __str__(self) -> str:
        return self.name


MUTATIONS: list[Mutation] = []


def mutation(
    alone: str = "", against: str | None = None, warnings: str = ""
) -> Callable[[Damage], Damage]:
    """Enter a mutation; its function's name says what is done."""

    def enter(damage: Damage) -> Damage:
        name = damage.__name__.strip("_").replace("_", " ")
        MUTATIONS.append(Mutation(name, damage, alone, against, warnings))
        return damage

    return enter


@pytest.fixture(scope="module")
def sound_log(tmp_path_factory: pytest.TempPathFactory) -> CleanedLog:
    return make_cleaned_log(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def log(sound_log: CleanedLog, tmp_path: Path) -> CleanedLog:
    return sound_log.copy_to(tmp_path)


def verify(log: CleanedLog, *, against: bool = False, deep: bool = True) -> Report:
    return verify_partition(
        VerifyRequest(
            partition=log.after.partition,
            log_dir=log.after.log_dir,
            config=log.config,
            now_ms=log.now_ms,
            deep=deep,
            before_dir=log.before.log_dir if against else None,
        )
    )


def broken(report: Report, severity: Severity = Severity.VIOLATION) -> set[str]:
    return {f.invariant for f in report.findings if f.severity is severity}


def describe(report: Report) -> str:
    return "\n".join(str(finding) for finding in report.findings)


# What nobody may find


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("against", [False, True])
def test_nothing_is_found_in_the_sound_log(log: CleanedLog, deep: bool, against: bool) -> None:
    assert verify(log, deep=deep, against=against).findings == ()

    log.after.forget_manifests()
    report = verify(log, deep=deep)
    assert report.findings == (), describe(report)


def test_nothing_is_found_in_a_sound_log_whose_indexes_were_rebuilt(log: CleanedLog) -> None:
    for base_offset in log.after.base_offsets():
        log.after.write(base_offset, log.after.batches(base_offset))

    assert verify(log, against=True).findings == ()


def test_without_manifests_a_sound_pass_is_found_sound(log: CleanedLog) -> None:
    log.after.forget_manifests()
    log.before.forget_manifests()

    assert verify(log, against=True).violations == ()


# Records


@mutation("", "I6 I10 I7")
def _drop_a_winner(log: EditedLog, before: EditedLog) -> None:
    log.drop_record(log.find("d"))


@mutation("", "I6 I10 I7")
def _drop_the_winner_of_a_compressed_batch(log: EditedLog, before: EditedLog) -> None:
    log.drop_record(log.find("l"))


@mutation("I9", "I9 I7")
def _keep_a_loser(log: EditedLog, before: EditedLog) -> None:
    _put_back(log, before, before.find("a", "1"))


@mutation("I9", "I9 I7")
def _keep_a_loser_of_a_tombstone(log: EditedLog, before: EditedLog) -> None:
    _put_back(log, before, before.find("k", "1"))


@mutation("", "I16 I10 I3 I7")
def _resurrect_a_key_whose_tombstone_is_gone(log: EditedLog, before: EditedLog) -> None:
    tombstone = before.batch(before.find("b", None))
    offset = tombstone.header.base_offset - 11  # where its value was, two passes ago
    record = Record(offset, START_MS, b"b", b"1")
    log.insert(build_batch([record], leader_epoch=0))


@mutation("I9", "I3 I9 I10")
def _add_a_record_without_a_key(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("t"), key=None)


@mutation("", "I3 I10")
def _change_a_key(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("t"), key=b"T")


@mutation("", "I3")
def _change_a_value(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("d"), value=b"other value!")


@mutation("", "I3")
def _change_a_value_of_a_compressed_batch(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("l"), value=b"other value!")


@mutation("", "I3")
def _change_the_headers_of_a_record(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("h"), headers=(("source", b"elsewhere"), ("none", None)))


@mutation("", "I3")
def _empty_a_null_header(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("h"), headers=(("source", b"test"), ("none", b"")))


@mutation("", "I3")
def _change_a_timestamp(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("h"), timestamp_ms=START_MS + 1)


@mutation("I1", "I1 I3")
def _change_the_newest_timestamp_but_not_the_header(log: EditedLog, before: EditedLog) -> None:
    offset = log.find("d")
    header = log.batch(offset).header
    log.change_record(offset, timestamp_ms=header.max_timestamp_ms - 1)
    log.change_header(offset, max_timestamp_ms=header.max_timestamp_ms)


@mutation("", "I3 I7")
def _add_a_record_in_a_gap(log: EditedLog, before: EditedLog) -> None:
    record = Record(1, START_MS, b"new", b"x")
    log.insert(build_batch([record], leader_epoch=0))


@mutation("", "I3 I6 I7 I10")
def _shift_an_offset(log: EditedLog, before: EditedLog) -> None:
    offset = log.find("h")
    log.edit(offset, lambda rs: [r._replace(offset=r.offset - (r.offset == offset)) for r in rs])


@mutation("I4", "I3 I4 I6 I7 I10")
def _shift_a_batch(log: EditedLog, before: EditedLog) -> None:
    """The base offset is not covered by the checksum; the indexes still know the old one."""
    offset = log.find("q")
    batch = log.batch(offset)
    data = (batch.header.base_offset - 1).to_bytes(8, "big") + bytes(batch.data[8:])
    log.drop(log.batch(offset - 2).header.base_offset)
    log.replace(offset, data, keeps_indexes=True)


@mutation("I1")
def _reorder_records_of_a_batch(log: EditedLog, before: EditedLog) -> None:
    offset = log.find("t")
    batch = log.batch(offset)
    first, second = (bytes(part) for part in _record_bytes(batch))
    log.replace(offset, encode_batch(batch.header, second + first))


@mutation("I2")
def _reorder_batches(log: EditedLog, before: EditedLog) -> None:
    base_offset = log.segment_of(log.find("u"))
    first, second, third = log.batches(base_offset)
    log.write(base_offset, [first, third, second])


# Batches


@mutation("I1")
def _flip_a_bit_of_a_value(log: EditedLog, before: EditedLog) -> None:
    log.flip(log.find("d"), HEADER_SIZE + 10)


@mutation("I1")
def _flip_a_bit_of_a_checksum(log: EditedLog, before: EditedLog) -> None:
    log.flip(log.find("u"), CRC_POSITION)


@mutation("", "I3")
def _flip_a_bit_of_a_value_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    offset = log.find("u")
    _flip_and_sign(log, offset, log.batch(offset).header.size_bytes - HEADER_SIZE - 2)


@mutation("I1")
def _flip_a_bit_of_a_length_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    _flip_and_sign(log, log.find("u"), 0)


@mutation("I1")
def _flip_a_bit_of_gzip_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    _flip_and_sign(log, log.find("l"), 14)


@mutation("I1")
def _flip_a_bit_of_zstd_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    _flip_and_sign(log, log.find("j"), 0)


@mutation("I1")
def _flip_a_bit_of_lz4_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    _flip_and_sign(log, log.find("p"), 5)


@mutation("I1")
def _flip_a_bit_of_snappy_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    _flip_and_sign(log, log.find("n"), 20)


@mutation("I1")
def _claim_a_record_too_many(log: EditedLog, before: EditedLog) -> None:
    log.change_header(log.find("t"), record_count=3)


@mutation("I1")
def _claim_a_record_too_few(log: EditedLog, before: EditedLog) -> None:
    log.change_header(log.find("t"), record_count=1)


@mutation("I1")
def _claim_another_codec(log: EditedLog, before: EditedLog) -> None:
    log.change_header(log.find("t"), attributes=4)


@mutation("I2")
def _reach_into_the_next_segment(log: EditedLog, before: EditedLog) -> None:
    log.change_header(log.find("u"), last_offset_delta=5)


@mutation("", "I3")
def _change_the_leader_epoch(log: EditedLog, before: EditedLog) -> None:
    """It is not covered by the checksum."""
    data = bytearray(log.batch(log.find("u")).data)
    data[15] += 1
    log.replace(log.find("u"), bytes(data))


@mutation("I20", "I3 I20")
def _change_the_sequence_of_a_producer(log: EditedLog, before: EditedLog) -> None:
    log.change_header(log.find("f", "4"), base_sequence=7)


@mutation("", "I3")
def _change_who_sets_the_time(log: EditedLog, before: EditedLog) -> None:
    log.change_header(log.find("u"), attributes=TIMESTAMP_TYPE_BIT)


@mutation("", "I1")
def _write_a_batch_anew_that_lost_nothing(log: EditedLog, before: EditedLog) -> None:
    """Same records, but not the bytes that the producer sent."""
    batch = log.batch(log.find("j"))
    payload = compress(Codec.ZSTD, batch.payload(), level=19)
    log.replace(log.find("j"), encode_batch(batch.header, payload))


@mutation("", "I3")
def _change_the_time_of_an_empty_batch(log: EditedLog, before: EditedLog) -> None:
    offset = log.find_batch(8, is_empty=True)
    header = log.batch(offset).header
    log.change_header(offset, max_timestamp_ms=header.max_timestamp_ms - 1)


# Tombstones and horizons


@mutation("", "I15 I7")
def _drop_a_tombstone_early(log: EditedLog, before: EditedLog) -> None:
    log.drop_record(log.find("k", None))


@mutation("", "I15", warnings="I15")
def _take_a_horizon_away(log: EditedLog, before: EditedLog) -> None:
    batch = log.batch(log.find("k", None))
    log.replace(log.find("k", None), _with_horizon(batch, None))


@mutation("", "I15")
def _move_a_horizon(log: EditedLog, before: EditedLog) -> None:
    batch = log.batch(log.find("k", None))
    assert batch.header.delete_horizon_ms is not None
    horizon_ms = batch.header.delete_horizon_ms - 1
    log.replace(log.find("k", None), _with_horizon(batch, horizon_ms))


@mutation("I15")
def _set_a_horizon_without_a_reason(log: EditedLog, before: EditedLog) -> None:
    batch = log.batch(log.find("t"))
    horizon_ms = START_MS + 10 * DELETE_RETENTION_MS
    log.replace(log.find("t"), _with_horizon(batch, horizon_ms))


# Transactions


@mutation("I19 I20", "I7 I10 I18 I19 I20")
def _drop_a_commit_marker(log: EditedLog, before: EditedLog) -> None:
    log.drop(_marker_after(log, log.find("g")))


@mutation("I19 I20", "I19 I20 I7")
def _drop_an_abort_marker(log: EditedLog, before: EditedLog) -> None:
    log.drop(_marker_after(log, log.find_batch(8, is_empty=True)))


@mutation("", "I19 I7")
def _drop_a_marker_without_data_early(log: EditedLog, before: EditedLog) -> None:
    offset = log.find_batch(6, is_control=True)
    log.replace(offset, build_empty_batch(log.batch(offset).header))


@mutation("I18", "I18 I7")
def _leave_aborted_data(log: EditedLog, before: EditedLog) -> None:
    offset = log.find_batch(8, is_empty=True)
    log.replace(offset, bytes(before.batch(offset).data))


@mutation("I9 I19", "I18 I19 I9 I7 I10")
def _make_aborted_data_visible(log: EditedLog, before: EditedLog) -> None:
    """The data is back, and its abort marker says commit; the index still knows better."""
    offset = log.find_batch(8, is_empty=True)
    log.replace(offset, bytes(before.batch(offset).data))
    marker = _marker_after(log, offset)
    log.replace(marker, _as(log.batch(marker), ControlType.COMMIT))


@mutation("I18 I20", "I1 I3 I10 I18 I20")
def _turn_a_commit_into_an_abort(log: EditedLog, before: EditedLog) -> None:
    marker = _marker_after(log, log.find("g"))
    log.replace(marker, _as(log.batch(marker), ControlType.ABORT))


@mutation("I19", "I15 I19")
def _set_the_horizon_of_a_marker_whose_data_is_left(log: EditedLog, before: EditedLog) -> None:
    marker = _marker_after(log, log.find("g"))
    log.replace(marker, _with_horizon(log.batch(marker), START_MS))


@mutation("I19", "I3 I19")
def _go_on_with_another_epoch_in_a_transaction(log: EditedLog, before: EditedLog) -> None:
    """As if the marker between the two were lost."""
    offset = log.find("i")
    batch = log.batch(offset)
    first, second = batch.iter_records()
    fields: dict[str, Any] = {
        "leader_epoch": 0,
        "producer_id": 7,
        "is_transactional": True,
        "base_offset": None,
    }
    one = build_batch([first], **fields, producer_epoch=0, base_sequence=0)
    other = build_batch([second], **fields, producer_epoch=1, base_sequence=0)
    log.replace(offset, one, other)


@mutation("I20")
def _drop_an_entry_of_a_transaction_index(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_aborted_path(log), ABORTED_ENTRY, lambda rows: rows[1:])


@mutation("I20")
def _list_an_aborted_transaction_that_never_was(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_aborted_path(log), ABORTED_ENTRY, lambda rows: [*rows, [0, 99, 30, 31, 32]])


@mutation("I20")
def _list_an_aborted_transaction_from_too_late_on(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _aborted_path(log),
        ABORTED_ENTRY,
        lambda rows: [[v, p, f + 1, *rest] for v, p, f, *rest in rows],
    )


@mutation("I20")
def _list_an_aborted_transaction_of_another_producer(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(
        _aborted_path(log), ABORTED_ENTRY, lambda rows: [[v, 1, *rest] for v, _, *rest in rows]
    )


@mutation("I20")
def _tear_a_transaction_index(log: EditedLog, before: EditedLog) -> None:
    path = _aborted_path(log)
    path.write_bytes(path.read_bytes() + b"\0\0")


@mutation("I20")
def _write_an_unknown_version_into_a_transaction_index(log: EditedLog, before: EditedLog) -> None:
    log.edit_entries(_aborted_path(log), ABORTED_ENTRY, lambda rows: [[1, *r[1:]] for r in rows])


# Producers


@mutation("", "I20", warnings="I20")
def _drop_the_empty_last_batch_of_a_producer(log: EditedLog, before: EditedLog) -> None:
    log.drop(log.find_batch(8, is_empty=True))


@mutation("I20")
def _damage_a_snapshot(log: EditedLog, before: EditedLog) -> None:
    path = _newest_snapshot(log)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@mutation("I20")
def _change_a_sequence_in_a_snapshot_and_sign_it(log: EditedLog, before: EditedLog) -> None:
    path = _newest_snapshot(log)
    entries = read_snapshot(path, path.read_bytes())
    path.write_bytes(
        write_snapshot(
            e._replace(batches=tuple(b._replace(last_sequence=9) for b in e.batches))
            for e in entries
        )
    )


@mutation("I20")
def _end_an_open_transaction_in_a_snapshot(log: EditedLog, before: EditedLog) -> None:
    path = _newest_snapshot(log)
    entries = read_snapshot(path, path.read_bytes())
    path.write_bytes(write_snapshot(e._replace(current_txn_first_offset=None) for e in entries))


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


# The suite itself


@pytest.mark.parametrize("seeded", MUTATIONS, ids=str)
def test_damage_is_found_by_its_number(seeded: Mutation, log: CleanedLog) -> None:
    untouched = cleaned_bytes(log)
    seeded.damage(log.after, log.before)

    if cleaned_bytes(log) != untouched:
        report = verify(log, deep=False)
        assert "I7" in broken(report), f"by the manifest: {describe(report)}"

    with contextlib.suppress(FileNotFoundError):  # No signature can hide that a file is missing.
        log.after.sign_manifest()
    report = verify(log, against=True)
    expected = seeded.alone if seeded.against is None else seeded.against
    assert broken(report) >= set(expected.split()), f"against the copy: {describe(report)}"
    assert bool(broken(report)) == bool(expected), f"against the copy: {describe(report)}"

    log.after.forget_manifests()
    report = verify(log)
    assert broken(report) == set(seeded.alone.split()), f"alone: {describe(report)}"
    assert broken(report, Severity.WARNING) >= set(seeded.warnings.split()), describe(report)


def cleaned_bytes(log: CleanedLog) -> dict[int, bytes]:
    """Return the log files that the pass has left."""
    end_offset = log.before.base_offsets()[-1]
    bases = [base for base in log.after.base_offsets() if base < end_offset]
    return {base: log.after.path(base, ".log").read_bytes() for base in bases}


# Manifests


def _set(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        target: Any = fields
        for name in path[:-1]:
            target = target[name]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("counts", "superseded", value=3),
        _set("counts", "records_kept", value=1),
        _set("counts", "tombstones_kept", value=1000),
        _set("counts", "aborted_removed", value=-2),
        _set("counts", "bytes_read", value=1),
        _set("counts", "bytes_written", value=1),
        _set("groups", 0, "outputs", 0, "files", 0, "crc32c", value=1),
        _set("groups", 0, "outputs", 0, "files", 0, "size_bytes", value=1),
        _set("groups", 0, "base_offsets", value=[12]),
        _set("inputs", 0, "size_bytes", value=1),
        _set("plan", "partition", value={"topic": "orders", "partition": 7}),
        _set("plan", "pass_id", value="another"),
        _set("plan", value={}),
        _set("version", value=2),
        _set("committed_ms", value="today"),
        _set("counts", value=[]),
    ],
)
def test_a_manifest_that_was_tampered_with_is_found(
    change: Callable[[dict[str, Any]], None], log: CleanedLog
) -> None:
    log.after.edit_manifest(change)

    assert broken(verify(log)) == {"I7"}


def test_a_manifest_that_counts_wrongly_but_adds_up_is_found(log: CleanedLog) -> None:
    def change(fields: dict[str, Any]) -> None:
        fields["counts"]["superseded"] += 1
        fields["counts"]["aborted_removed"] -= 1

    log.after.edit_manifest(change)

    assert broken(verify(log)) == set()
    assert broken(verify(log, against=True)) == {"I7"}


def test_a_manifest_that_read_other_bytes_than_the_one_before_it_left_is_worth_a_warning(
    log: CleanedLog,
) -> None:
    """A pass that ends between its swap and its manifest is repeated, and does no harm."""
    log.after.edit_manifest(_set("inputs", 0, "crc32c", value=1))

    report = verify(log)

    assert (broken(report), broken(report, Severity.WARNING)) == (set(), {"I7"})


def test_a_change_since_the_last_pass_may_be_a_pass_that_was_killed(log: CleanedLog) -> None:
    log.after.change_record(log.after.find("d"), value=b"other value!")
    assert broken(verify(log)) == {"I7"}

    (log.after.log_dir / filenames.CLEAN_SHUTDOWN).unlink()

    report = verify(log)
    assert (broken(report), broken(report, Severity.WARNING)) == (set(), {"I7"})


def test_a_manifest_that_is_no_json_is_found(log: CleanedLog) -> None:
    log.after.manifests()[-1].write_text("{")

    assert broken(verify(log)) == {"I7"}


def test_an_index_that_is_not_what_the_pass_wrote_is_only_worth_a_warning(log: CleanedLog) -> None:
    path = log.after.path(log.after.base_offsets()[1], ".index")
    path.write_bytes(path.read_bytes()[8:])

    report = verify(log)

    assert (broken(report), broken(report, Severity.WARNING)) == (set(), {"I7"})


# Helpers


def _put_back(log: EditedLog, before: EditedLog, offset: int) -> None:
    """Bring a record of the copy back, into its batch if that is there."""
    old = before.batch(offset)
    kept = []
    for base_offset in log.base_offsets():
        for batch in map(read_batch, log.batches(base_offset)):
            if batch.header.base_offset == old.header.base_offset:
                kept = list(batch.iter_records())
    back = [r for r in old.iter_records() if r.offset == offset or r in kept]
    if kept:
        log.edit(offset, lambda _: back)
    else:
        header = old.header
        log.insert(
            build_batch(
                back,
                base_offset=header.base_offset,
                last_offset_delta=header.last_offset_delta,
                codec=header.codec,
                leader_epoch=header.leader_epoch,
            )
        )


def _flip_and_sign(log: EditedLog, offset: int, position: int) -> None:
    batch = log.batch(offset)
    payload = bytearray(batch.data[HEADER_SIZE:])
    payload[position] ^= 4
    log.replace(offset, encode_batch(batch.header, bytes(payload)))


def _with_horizon(batch: Batch, horizon_ms: int | None) -> bytes:
    header = batch.header._replace(attributes=batch.header.attributes & ~DELETE_HORIZON_BIT)
    return rebuild_batch(header, list(batch.iter_records()), horizon_ms)


def _marker_after(log: EditedLog, offset: int) -> int:
    """Return the offset of the marker that ends the transaction of a batch."""
    producer_id = log.batch(offset).header.producer_id
    return min(
        header.base_offset
        for base_offset in log.base_offsets()
        for header in (read_batch(data).header for data in log.batches(base_offset))
        if header.is_control and header.producer_id == producer_id and header.base_offset > offset
    )


def _as(batch: Batch, control_type: ControlType) -> bytes:
    (record,) = batch.iter_records()
    header = batch.header
    return build_batch(
        [encode_marker(Marker(control_type, 0), record.offset, record.timestamp_ms)],
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def _record_bytes(batch: Batch) -> list[memoryview]:
    """Take apart the records of a batch whose lengths fit a byte."""
    parts = []
    payload = batch.data[HEADER_SIZE:]
    while payload:
        end = 1 + (payload[0] >> 1)
        parts.append(payload[:end])
        payload = payload[end:]
    return parts


def _aborted_path(log: EditedLog) -> Path:
    return log.path(log.segment_of(log.find("q")), ".txnindex")


def _newest_snapshot(log: EditedLog) -> Path:
    return max(log.directory.glob("*.snapshot"))
