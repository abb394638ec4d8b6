"""The shortcuts of the cleaner's kernels against the long way round."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siltstone.cleaner import key_kernels
from siltstone.records.batch import read_batch
from siltstone.records.kernels import read_record
from siltstone.records.scan import as_bytes
from tests.support.strategies import BatchCase, batch_cases, damaged, join_batches, segments


def _compare(data: bytes, start: int) -> int:
    """Hold both ways to read a record against each other; return the position after it."""
    array = as_bytes(data)
    end, offset_delta, key_position, key_length, value_length = key_kernels.read_short_record(
        array, start, len(data)
    )
    full = read_record(array, start, len(data))
    if end >= 0:
        assert (end, offset_delta, key_position, key_length, value_length) == (
            full[0],
            full[2],
            full[3],
            full[4],
            full[5],
        )
    return int(full[0])


@given(batch_cases())
def test_a_short_record_is_read_as_any_other(case: BatchCase) -> None:
    payload = bytes(read_batch(join_batches([case])).payload())

    position = 0
    while 0 <= position < len(payload):
        position = _compare(payload, position)


@given(damaged(segments().map(join_batches)) | st.binary(max_size=60), st.data())
def test_what_is_read_as_a_short_record_of_any_bytes_is_one(
    content: bytes, data: st.DataObject
) -> None:
    _compare(content, data.draw(st.integers(0, len(content))))


def test_nearly_all_records_of_usual_size_are_read_the_short_way() -> None:
    # length 28, attributes, deltas 0 and 1, key of 4 bytes, value of 18, no headers
    record = bytes([56, 0, 0, 2, 8]) + b"abcd" + bytes([36]) + bytes(18) + b"\0"

    found = key_kernels.read_short_record(np.frombuffer(record, np.uint8), 0, len(record))

    assert found == (29, 1, 5, 4, 18)
