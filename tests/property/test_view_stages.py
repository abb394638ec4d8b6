"""Views in stages, by however many threads, against a dict and against the view in one go."""

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from siltstone.cleaner.local import LocalEngine
from siltstone.errors import NotExactError
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from siltstone.table.key_slices import KeySlice, index_slice, list_winners, resolve_range
from siltstone.table.reference import plain_view
from siltstone.table.request import View, ViewBounds, ViewRequest, resolve_bounds
from siltstone.table.snapshot import LogSnapshot, open_snapshot
from siltstone.table.stages import Winners, find_winners, read_share, share_out
from siltstone.table.views import read_view
from tests.support.random_lives import PARTITION, RandomLife

Rows = list[tuple[int, bytes, bytes | None]]


def random_request(rng: random.Random, snapshot: LogSnapshot) -> ViewRequest:
    low = min(snapshot.first_dirty_offset, snapshot.last_stable_offset)
    return ViewRequest(
        view=rng.choice([View.LATEST, View.CHANGES]),
        start_offset=rng.choice([None, rng.randint(low, snapshot.last_stable_offset)]),
        end_offset=rng.choice([None, rng.randint(low, snapshot.last_stable_offset)]),
        include_tombstones=rng.random() < 0.5,
        include_headers=rng.random() < 0.3,
        key_prefix=rng.choice([b"", b"", b"key-1"]),
    )


def rows_of(batches: list[pa.RecordBatch]) -> Rows:
    return [
        (row["offset"], row["key"], row["value"]) for batch in batches for row in batch.to_pylist()
    ]


def read_winners(reader: LogReader, request: ViewRequest, winners: Winners, count: int) -> Rows:
    rows: Rows = []
    for share in share_out(winners, count):
        snapshot = open_snapshot(reader, winners.bounds.partition, start_offset=share.start_offset)
        rows += rows_of(list(read_share(snapshot, request, share.offsets)))
    return rows


def read_slices(
    reader: LogReader, request: ViewRequest, bounds: ViewBounds, rng: random.Random
) -> Rows:
    """Do what the tasks of a job do, each with what it opens itself."""
    inside = [rng.randint(bounds.start_offset, bounds.end_offset) for _ in range(rng.randint(0, 3))]
    ends = sorted({bounds.start_offset, *inside, bounds.end_offset})
    hash_key, range_count = rng.randbytes(16), rng.randint(1, 3)
    slices = [
        KeySlice(PARTITION, start, end, is_last=end == ends[-1], hash_key=hash_key)
        for start, end in pairwise(ends)
    ]
    keys = [
        index_slice(
            open_snapshot(reader, PARTITION, start_offset=part.start_offset),
            request,
            part,
            range_count,
        )
        for part in slices
    ]
    survivors = [
        resolve_range(
            [(number, blocks[n].tobytes()) for number, blocks in enumerate(keys)],
            len(slices),
            range_count,
        )
        for n in range(range_count)
    ]
    rows: Rows = []
    for number, part in enumerate(slices):
        left = (found[number].tobytes() for found in survivors)
        offsets = list_winners(request, part, left)
        if len(offsets):
            snapshot = open_snapshot(reader, PARTITION, start_offset=part.start_offset)
            rows += rows_of(list(read_share(snapshot, request, offsets)))
    return rows


def check_slices_refuse(
    reader: LogReader, snapshot: LogSnapshot, request: ViewRequest, rng: random.Random
) -> None:
    try:
        whole = resolve_bounds(snapshot, request)
    except NotExactError:
        return  # Before there are slices.
    if whole.start_offset < whole.end_offset:
        with pytest.raises(NotExactError):
            read_slices(reader, request, whole, rng)


@pytest.mark.parametrize("seed", range(16))
def test_a_view_in_stages_has_the_records_that_a_dict_would_have(seed: int, tmp_path: Path) -> None:
    life = RandomLife(tmp_path, LocalEngine(), seed)
    rng = random.Random(seed)
    compared = 0
    for _ in range(4):
        life.live(25)
        life.clean()
        life.live(8)
        life.log.flush()
        reader = LogReader([tmp_path])
        for _ in range(6):
            snapshot = open_snapshot(reader, PARTITION)
            request = random_request(rng, snapshot)
            expected = [(r.offset, r.key, r.value) for r in plain_view(snapshot, request)]

            try:
                winners = find_winners(snapshot, request, rng.randint(1, 3))
            except NotExactError:
                with pytest.raises(NotExactError):
                    read_view(snapshot, request)
                check_slices_refuse(reader, snapshot, request, rng)
                continue

            assert read_winners(reader, request, winners, rng.randint(1, 4)) == expected
            in_one_go = read_view(snapshot, request)
            assert rows_of(list(in_one_go.batches)) == expected
            assert winners.bounds == in_one_go.bounds
            assert read_slices(reader, request, winners.bounds, rng) == expected
            compared += 1
    assert compared


def test_shares_take_all_records_once_and_are_packed_small() -> None:
    offsets = np.cumsum(np.random.default_rng(1).integers(1, 60_000, 9_000)).astype(np.int64)

    shares = share_out(Winners(None, offsets), 7)  # type: ignore[arg-type]

    assert len(shares) == 7
    assert np.array_equal(np.concatenate([share.offsets for share in shares]), offsets)
    assert all(a.end_offset <= b.start_offset for a, b in pairwise(shares))
    assert sum(len(share.packed) for share in shares) == 2 * len(offsets)


def test_a_share_of_which_a_record_has_gone_is_refused(tmp_path: Path) -> None:
    partition = TopicPartition("orders", 0)
    with LogManager([tmp_path]) as manager:
        manager.create_topic("orders", 1)
        log = manager.get_log(partition)
        for number in range(6):
            log.append(build_batch([Record(0, 0, b"%d" % number, b"v")]))
    request = ViewRequest(view=View.LATEST)
    snapshot = open_snapshot(LogReader([tmp_path]), partition)
    winners = find_winners(snapshot, request, 1)
    assert winners.offsets.tolist() == list(range(6))

    with LogManager([tmp_path]) as manager:
        log = manager.get_log(partition)
        log.append(build_batch([Record(0, 0, b"6", b"v")]))
        log.update_high_watermark(log.log_end_offset)
        log.delete_records(3)

    with pytest.raises(NotExactError, match="ask for offset 7 or later"):
        read_winners(LogReader([tmp_path]), request, winners, 1)
