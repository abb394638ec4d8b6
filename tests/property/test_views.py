"""Views of random lives, with transactions and passes, against a dict."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.local import LocalEngine
from siltstone.errors import NotExactError
from siltstone.log.filesystem import FileSystem
from siltstone.log.reading import Isolation
from siltstone.records.record import Record
from siltstone.table.reference import plain_view
from siltstone.table.request import View, ViewRequest
from siltstone.table.snapshot import LogSnapshot, take_snapshot
from siltstone.table.views import ViewResult, count_keys, read_view
from tests.support.random_lives import PARTITION, RandomLife

SEEDS = range(12)


def snapshot_of(life: RandomLife, start_offset: int | None = None) -> LogSnapshot:
    dirty = CleanerCheckpoints(FileSystem(), life.log_dir).find(PARTITION)
    return take_snapshot(life.log, dirty, start_offset=start_offset)


def records_in(table: pa.Table) -> list[Record]:
    return [
        Record(
            row["offset"],
            table["timestamp"][number].value,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for number, row in enumerate(table.drop_columns(["timestamp"]).to_pylist())
    ]


def random_request(rng: random.Random, snapshot: LogSnapshot) -> ViewRequest:
    view = rng.choice(list(View))
    isolation = rng.choice([None, Isolation.COMMITTED, Isolation.HIGH_WATERMARK])
    limit = snapshot.end_offset(ViewRequest(view=view, isolation=isolation).effective_isolation)
    # As early as the snapshot can say: an earlier one is for the test of refusals.
    low = snapshot.log_start_offset if view is View.LOG else min(snapshot.first_dirty_offset, limit)
    return ViewRequest(
        view=view,
        start_offset=rng.choice([None, rng.randint(snapshot.log_start_offset, limit)]),
        end_offset=rng.choice([None, rng.randint(low, limit)]),
        isolation=isolation,
        include_tombstones=rng.random() < 0.5,
        include_headers=True,
        key_prefix=rng.choice([b"", b"", b"key-1"]),
    )


def read_or_refuse(snapshot: LogSnapshot, request: ViewRequest) -> ViewResult | NotExactError:
    try:
        return read_view(snapshot, request)
    except NotExactError as refusal:
        return refusal


@pytest.mark.parametrize("seed", SEEDS)
def test_a_view_has_the_records_that_a_dict_would_have(seed: int, tmp_path: Path) -> None:
    life = RandomLife(tmp_path, LocalEngine(), seed)
    rng = random.Random(seed)
    for _ in range(4):
        life.live(25)
        life.clean()
        life.live(8)
        for _ in range(6):
            snapshot = snapshot_of(life)
            request = random_request(rng, snapshot)
            expected = plain_view(snapshot, request)

            result = read_or_refuse(snapshot, request)

            if isinstance(result, NotExactError):
                # A gap above the checkpoint: only the whole log is certain.
                assert request.end_offset is not None
                assert result.first_exact_offset > request.end_offset
            else:
                assert records_in(result.to_reader().read_all()) == expected, life.trace


@pytest.mark.parametrize("seed", SEEDS)
def test_a_past_state_is_exact_or_refused(seed: int, tmp_path: Path) -> None:
    life = RandomLife(tmp_path, LocalEngine(), seed)
    states: dict[int, tuple[int, dict[bytes, bytes]]] = {}
    for number in range(60):
        life.live(2)
        if number % 20 == 15:
            life.clean()
        snapshot = snapshot_of(life)
        state = {r.key: r.value for r in plain_view(snapshot, ViewRequest()) if r.key and r.value}
        states[snapshot.last_stable_offset] = (snapshot.log_start_offset, state)

    snapshot = snapshot_of(life)
    exact = 0
    for offset, (log_start_offset, state) in states.items():
        if log_start_offset != snapshot.log_start_offset:
            continue
        result = read_or_refuse(snapshot, ViewRequest(end_offset=offset))
        if isinstance(result, NotExactError):
            assert offset < result.first_exact_offset <= snapshot.last_stable_offset
            continue
        table = result.to_reader().read_all()
        keys, values = table["key"].to_pylist(), table["value"].to_pylist()
        assert {k: v for k, v in zip(keys, values, strict=True) if v} == state, life.trace
        exact += 1
    assert exact >= 1


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_count_is_that_of_the_records_themselves(seed: int, tmp_path: Path) -> None:
    life = RandomLife(tmp_path, LocalEngine(), seed)
    life.live(60)
    life.clean()
    life.live(10)
    snapshot = snapshot_of(life)

    counts, _ = count_keys(snapshot, ViewRequest())

    everything = plain_view(snapshot, ViewRequest(view=View.LOG, isolation=Isolation.COMMITTED))
    last = {record.key: record for record in everything}
    assert counts.records == len(everything)
    assert counts.tombstones == sum(record.is_tombstone for record in last.values())
    assert counts.live_keys == len(last) - counts.tombstones
    assert counts.keyless == 0
    assert counts.first_offset == (everything[0].offset if everything else None)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_snapshot_from_an_offset_on_gives_the_same_changes(seed: int, tmp_path: Path) -> None:
    life = RandomLife(tmp_path, LocalEngine(), seed)
    life.live(80)
    life.clean()
    whole = snapshot_of(life)
    since = random.Random(seed).randint(whole.log_start_offset, whole.last_stable_offset)
    request = ViewRequest(view=View.CHANGES, start_offset=since, include_headers=True)

    result = read_view(snapshot_of(life, since), request)

    assert records_in(result.to_reader().read_all()) == plain_view(whole, request)
