"""Every kernel against its plain twin, over sound, damaged and random bytes."""

import types
from typing import Any

import crc32c as crc32c_package
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numba import njit

from siltstone.records import crc_kernels
from siltstone.records.batch import read_batch
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from siltstone.records.scan import as_bytes
from tests.support.strategies import BatchCase, batch_cases, damaged, join_batches, segments
from tests.support.twins import (
    Refusal,
    attempt,
    check_sound_segment,
    compare_checks,
    compare_scans,
    compare_walks,
)

LIMIT_BYTES = 1 << 20


def _with_step(step: Any) -> Any:
    """Compile the checksum anew, around one of the two ways to feed it eight bytes."""
    plain = crc_kernels.extend_crc.py_func
    names = {**plain.__globals__, "_crc_step": step}
    return njit(types.FunctionType(plain.__code__, names, plain.__name__))


step_by_table: Any = crc_kernels._crc_step_portable
extend_by_table = _with_step(step_by_table)


@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 40))
@example(b"123456789", 0, 0)
@example(bytes(range(250)) * 30, 3, 1)  # enough for the lanes
def test_both_checksums_agree_with_the_package_wherever_the_bytes_begin(
    data: bytes, before: int, after: int
) -> None:
    array = as_bytes(bytes(before) + data + bytes(after))
    expected = crc32c_package.crc32c(data)

    assert int(crc_kernels.crc32c(array, before, before + len(data))) == expected
    assert int(extend_by_table(np.uint64(0), array, before, before + len(data))) == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_eight_bytes_by_table_are_eight_bytes_by_the_package(word: int, crc: int) -> None:
    found = int(step_by_table(np.uint64(crc), np.uint64(word)))

    inverted = crc32c_package.crc32c(word.to_bytes(8, "little"), crc ^ 0xFFFFFFFF)
    assert found == inverted ^ 0xFFFFFFFF


@given(segments(), st.integers(0, 2**41))
def test_walk_and_scan_find_in_a_sound_segment_what_their_twins_find(
    cases: list[BatchCase], next_offset: int
) -> None:
    check_sound_segment(cases, next_offset, LIMIT_BYTES)


@given(damaged(segments().map(join_batches)))
def test_walk_and_scan_refuse_damage_in_the_words_of_their_twins(data: bytes) -> None:
    compare_walks(data)
    compare_scans(data, LIMIT_BYTES)


@given(st.binary(max_size=400))
@example(bytes(61))
@example(bytes(17))
@example(b"\0" * 16 + b"\1" + b"\0" * 60)
@example(b"\0" * 8 + b"\0\0\0\x0e" + b"\0" * 4 + b"\1")
def test_walk_and_scan_agree_with_their_twins_about_bytes_that_are_no_batches(data: bytes) -> None:
    compare_walks(data)
    compare_scans(data, LIMIT_BYTES)


@given(batch_cases(base_offset=0))
def test_the_check_of_a_producers_records_agrees_with_its_twin(case: BatchCase) -> None:
    compare_checks(read_batch(case.build()), LIMIT_BYTES)


@given(damaged(batch_cases(base_offset=0).map(BatchCase.build)))
def test_the_check_of_damaged_records_agrees_with_its_twin(data: bytes) -> None:
    batch = attempt(lambda: read_batch(data))
    if not isinstance(batch, Refusal):
        compare_checks(batch, LIMIT_BYTES)


@given(st.binary(max_size=60), st.sampled_from(Codec), st.integers(-3, 70))
def test_the_check_agrees_with_its_twin_about_payloads_that_are_no_records(
    payload: bytes, codec: Codec, record_count: int
) -> None:
    sound = read_batch(build_batch([Record(0, 0, None, None)], codec=Codec.NONE))
    header = sound.header._replace(record_count=record_count, attributes=int(codec))

    compare_checks(type(sound)(header, memoryview(bytes(61) + payload)), LIMIT_BYTES)
