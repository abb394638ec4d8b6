"""Key indexes that are made after passes over random lives, against entries made one by one."""

import struct
from pathlib import Path

import pytest

from siltstone.cleaner.cleaning_pass import CommittedPass
from siltstone.cleaner.key_indexing.after_pass import index_after_pass
from siltstone.cleaner.local import LocalEngine
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.key_index import ENTRY_BYTES, KeyIndex
from siltstone.log.log_reader import LogReader
from siltstone.log.segment import Segment
from siltstone.records.siphash import siphash128_low
from siltstone.table.lookup import PartitionLookup
from tests.property.test_lookup import expect_all, look_up_all
from tests.support.random_lives import PARTITION, RandomLife

Entry = tuple[int, int, int]


def plain_entries(segment: Segment, hash_key: bytes) -> list[Entry]:
    """Make the entries of a cleaned segment. Twin of the kernels of `cleaner.key_indexing`."""
    return sorted(
        (siphash128_low(record.key, hash_key), record.offset - segment.base_offset, position)
        for position, batch in segment.iter_batches()
        if not batch.header.is_control
        for record in batch.iter_records()
        if record.key is not None
    )


def entries_in(path: Path) -> list[Entry]:
    index = KeyIndex(path, path.read_bytes())
    rows = path.read_bytes()[-index.entry_count * ENTRY_BYTES :] if index.entry_count else b""
    return list(struct.iter_unpack("<QII", rows))


def indexes_in(life: RandomLife) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(life.log.directory.glob("*.keyindex"))}


def settled_bases(done: CommittedPass) -> set[int]:
    written = {output.base_offset for group in done.result.groups for output in group.outputs}
    return written | done.result.unchanged_bases()


@pytest.mark.parametrize("seed", range(12))
def test_every_segment_that_a_pass_has_left_is_indexed(seed: int, tmp_path: Path) -> None:
    life = RandomLife(tmp_path, LocalEngine(), seed)
    compared = 0
    for _ in range(5):
        life.live(20)
        done = life.clean()
        if done is None:
            continue

        index_after_pass(FileSystem(), life.log, done.plan, done.result)

        for base_offset in settled_bases(done):
            segment = life.log.segments.find(base_offset)
            assert segment is not None
            if segment.size_bytes:
                path = filenames.key_index_path(life.log.directory, base_offset)
                index = KeyIndex.open(path)
                assert index is not None
                assert index.is_about(segment.file)
                assert index.covered.covered_bytes == segment.size_bytes
                assert entries_in(path) == plain_entries(segment, index.hash_key), life.trace
                compared += 1
        before = indexes_in(life)
        lookup = PartitionLookup(LogReader([tmp_path]), PARTITION)
        assert look_up_all(lookup) == expect_all(life), life.trace
        after = indexes_in(life)
        assert {path: after[path] for path in before} == before  # a lookup has nothing to add
    assert compared >= 2
