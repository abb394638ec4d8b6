"""A verification tells records apart by hashes: equal exactly where the records are."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.cleaner.verify.batches import Chunk
from siltstone.cleaner.verify.files import SegmentFiles
from siltstone.cleaner.verify.record_blocks import RecordHasher, iter_blocks
from siltstone.records.batch import read_header
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from siltstone.records.scan import walk
from tests.support import strategies


def _hashes(records: list[Record], hasher: RecordHasher, codec: Codec) -> Iterator[tuple[int, int]]:
    data = memoryview(build_batch(records, codec=codec))
    segment = SegmentFiles(0, Path("x.log"), len(data), None, None, None, None)
    chunk = Chunk(segment, 0, data, walk(data).batches)
    assert read_header(data).record_count == len(records)
    for block in iter_blocks(chunk, lambda *_: pytest.fail("not sound")):
        hashes = hasher.hash(block)
        assert hashes.keys.dtype == np.uint64
        yield from zip(hashes.keys.tolist(), hashes.contents.tolist(), strict=True)


@given(strategies.records(min_size=2), strategies.codecs)
def test_hashes_are_equal_where_records_are(records: tuple[Record, ...], codec: Codec) -> None:
    hasher = RecordHasher()

    hashed = list(zip(records, _hashes(list(records), hasher, codec), strict=True))

    for (one, (key, content)), (other, (other_key, other_content)) in itertools.pairwise(hashed):
        if one.key is not None and other.key is not None:
            assert (key == other_key) == (one.key == other.key)
        assert (content == other_content) == (one[1:] == other[1:])


@given(strategies.records(max_size=3), st.data())
def test_a_hash_does_not_depend_on_the_batch_around_it(
    records: tuple[Record, ...], data: st.DataObject
) -> None:
    hasher = RecordHasher()
    kept = data.draw(st.sampled_from(records))
    codec = data.draw(strategies.codecs)

    together = dict(zip(records, _hashes(list(records), hasher, Codec.NONE), strict=True))

    assert list(_hashes([kept], hasher, codec)) == [together[kept]]
