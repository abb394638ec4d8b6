"""Kernels from a file against their plain twins, and against those that numba has just compiled."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.records import kernels, scan, stored_kernels
from siltstone.records.batch import read_batch
from siltstone.records.object_code import ObjectCode, ObjectCodeError
from siltstone.records.scan import as_bytes
from siltstone.records.stored_kernels import StoredKernels, load_stored_kernels
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
USES_NOTHING_OF_NUMBA = """
import sys
from siltstone.cli import serve
from siltstone.broker.warm_up import warm_up
from siltstone.records.scan import use_stored_kernels
use_stored_kernels()
warm_up()
sys.exit("numba" in sys.modules or "llvmlite" in sys.modules)
"""


@pytest.fixture(scope="module", autouse=True)
def stored() -> Iterator[StoredKernels]:
    before = dict(vars(scan._kernels))
    scan.use_stored_kernels()
    found = load_stored_kernels()
    assert found is not None
    assert scan._kernels.get() is found
    yield found
    vars(scan._kernels).update(before)


@given(segments(), st.integers(0, 2**41))
def test_a_sound_segment_is_walked_and_scanned_as_by_the_twins(
    cases: list[BatchCase], next_offset: int
) -> None:
    check_sound_segment(cases, next_offset, LIMIT_BYTES)


@given(damaged(segments().map(join_batches)))
def test_damage_is_refused_in_the_words_of_the_twins(data: bytes) -> None:
    compare_walks(data)
    compare_scans(data, LIMIT_BYTES)


@given(damaged(batch_cases(base_offset=0).map(BatchCase.build)))
def test_records_are_checked_as_by_the_twin(data: bytes) -> None:
    batch = attempt(lambda: read_batch(data))
    if not isinstance(batch, Refusal):
        compare_checks(batch, LIMIT_BYTES)


@given(
    batch_cases(base_offset=0).map(BatchCase.build)
    | damaged(batch_cases(base_offset=0).map(BatchCase.build))
    | st.binary(max_size=100),
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.integers(-(2**62), 2**62),
)
def test_a_usual_batch_is_one_for_both(
    data: bytes, needs_keys: bool, oldest_ms: int, newest_ms: int
) -> None:
    expected = bool(kernels.is_usual_batch(as_bytes(data), needs_keys, oldest_ms, newest_ms))

    assert scan.is_usual_batch(memoryview(data), needs_keys, oldest_ms, newest_ms) == expected
    assert scan.is_usual_batch(bytearray(data), needs_keys, oldest_ms, newest_ms) == expected


def test_what_is_no_buffer_is_refused(stored: StoredKernels) -> None:
    not_bytes: bytes = None  # type: ignore[assignment]

    with pytest.raises(TypeError, match="bytes-like"):
        stored.is_usual_batch(not_bytes, False, 0, 0)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(200), b"\x7fELF\2\1\1" + bytes(200)])
def test_what_is_no_object_code_is_refused(data: bytes) -> None:
    with pytest.raises(ObjectCodeError):
        ObjectCode(data)


def test_a_file_that_is_not_whole_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    stored_kernels._keep("kernels", b"object code")
    path = tmp_path / "kernels"
    assert stored_kernels._read(path) == b"object code"

    path.write_bytes(path.read_bytes()[:-1])

    assert stored_kernels._read(path) is None


def test_a_broker_starts_without_the_kernels_compiler() -> None:
    assert (
        subprocess.run([sys.executable, "-c", USES_NOTHING_OF_NUMBA], check=False).returncode == 0
    )
