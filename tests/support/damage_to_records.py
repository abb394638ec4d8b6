"""Damage to records and batches: dropped, changed, moved, or no longer what they say."""

from siltstone.records.batch import Batch
from siltstone.records.builder import build_batch, encode_batch
from siltstone.records.compression import Codec, compress
from siltstone.records.layout import (
    CRC_POSITION,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from siltstone.records.record import Record
from tests.support.cleaned_logs import DELETE_RETENTION_MS
from tests.support.clock import START_MS
from tests.support.damage import mutation, put_back, with_horizon
from tests.support.edited_logs import EditedLog

# Records


@mutation("", "I6 I10 I7")
def _drop_a_winner(log: EditedLog, before: EditedLog) -> None:
    log.drop_record(log.find("d"))


@mutation("", "I6 I10 I7")
def _drop_the_winner_of_a_compressed_batch(log: EditedLog, before: EditedLog) -> None:
    log.drop_record(log.find("l"))


@mutation("I9", "I9 I7")
def _keep_a_loser(log: EditedLog, before: EditedLog) -> None:
    put_back(log, before, before.find("a", "1"))


@mutation("I9", "I9 I7")
def _keep_a_loser_of_a_tombstone(log: EditedLog, before: EditedLog) -> None:
    put_back(log, before, before.find("k", "1"))


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
    log.replace(log.find("k", None), with_horizon(batch, None))


@mutation("", "I15")
def _move_a_horizon(log: EditedLog, before: EditedLog) -> None:
    batch = log.batch(log.find("k", None))
    assert batch.header.delete_horizon_ms is not None
    horizon_ms = batch.header.delete_horizon_ms - 1
    log.replace(log.find("k", None), with_horizon(batch, horizon_ms))


@mutation("I15")
def _set_a_horizon_without_a_reason(log: EditedLog, before: EditedLog) -> None:
    batch = log.batch(log.find("t"))
    horizon_ms = START_MS + 10 * DELETE_RETENTION_MS
    log.replace(log.find("t"), with_horizon(batch, horizon_ms))


def _flip_and_sign(log: EditedLog, offset: int, position: int) -> None:
    batch = log.batch(offset)
    payload = bytearray(batch.data[HEADER_SIZE:])
    payload[position] ^= 4
    log.replace(offset, encode_batch(batch.header, bytes(payload)))


def _record_bytes(batch: Batch) -> list[memoryview]:
    """Take apart the records of a batch whose lengths fit a byte."""
    parts = []
    payload = batch.data[HEADER_SIZE:]
    while payload:
        end = 1 + (payload[0] >> 1)
        parts.append(payload[:end])
        payload = payload[end:]
    return parts
