"""A pass in three stages: whatever the slices, the same bytes as in one go."""

import dataclasses
import random
from pathlib import Path

import pytest

from siltstone.cleaner.key_winners import KeyWinners
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.slices import plan_shares
from siltstone.cleaner.split_finder import SplitFinder
from siltstone.cleaner.stages import (
    index_slice,
    join_results,
    order_shares,
    rewrite_share,
    settle_modes,
)
from siltstone.cleaner.storage import DirectoryStorage
from siltstone.log.filesystem import FileSystem
from tests.spark.passes import fingerprint, plan_random_logs


def run_in_stages(plan: CleaningPlan, slice_bytes: int, range_count: int) -> PassResult:
    """Carry out a plan as many tasks do, one after the other."""
    storage = DirectoryStorage(plan.directory)
    shares = plan_shares(plan, slice_bytes, SplitFinder(FileSystem(), plan).find)
    slices = [part for share in shares for part in share.slices]
    indexed = [index_slice(plan, storage, part, range_count) for part in slices]
    reports = [report for report, _ in indexed]
    modes, were_right = settle_modes(plan, reports)
    if not were_right:
        indexed = [
            index_slice(plan, storage, part, range_count, modes[part.number]) for part in slices
        ]
        reports = [report for report, _ in indexed]
    survivors: list[tuple[int, bytes]] = []
    for number in range(range_count):
        winners = KeyWinners(range_count)
        for report, blocks in random.Random(number).sample(indexed, len(indexed)):
            winners.enter(report.number, blocks[number].tobytes())
        survivors += enumerate(s.tobytes() for s in winners.survivors(len(slices)))
    results = [
        rewrite_share(
            plan,
            storage,
            f"share-{order.number}",
            order,
            [(n, block) for n, block in survivors if n in order.slice_numbers],
        )
        for order in order_shares(shares, reports, modes)
    ]
    return join_results(plan, shares, reports, reversed(results), seconds=0.0)


@pytest.mark.parametrize("slice_bytes", [200, 2_000, 1 << 30])
@pytest.mark.parametrize("seed", range(4))
def test_stages_write_what_one_task_writes(tmp_path: Path, seed: int, slice_bytes: int) -> None:
    (plan,) = plan_random_logs(tmp_path, seed)
    expected = fingerprint(plan, LocalEngine().run(plan))

    result = run_in_stages(plan, slice_bytes, range_count=1 + seed % 5)

    assert fingerprint(plan, result) == expected


def test_slices_that_were_wrong_about_aborted_data_are_indexed_again(tmp_path: Path) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=1)
    # Said to end where they begin: no slice after that expects data of theirs.
    aborted = tuple(txn._replace(last_offset=txn.first_offset) for txn in plan.aborted)
    plan = dataclasses.replace(plan, aborted=aborted)
    expected = fingerprint(plan, LocalEngine().run(plan))
    storage = DirectoryStorage(plan.directory)
    shares = plan_shares(plan, 200, SplitFinder(FileSystem(), plan).find)

    reports = [index_slice(plan, storage, s, 1)[0] for share in shares for s in share.slices]
    _, were_right = settle_modes(plan, reports)
    result = run_in_stages(plan, 200, range_count=1)

    assert not were_right
    assert fingerprint(plan, result) == expected
