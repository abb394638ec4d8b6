"""A real cluster, whose executors have no siltstone: it comes with the job."""

import subprocess
from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle

from siltstone.cleaner.local import LocalEngine
from siltstone.errors import CorruptBatchError
from siltstone.spark.forms import Stages
from tests.spark import flaky_storage
from tests.spark.cluster import Cluster
from tests.spark.conftest import Engines
from tests.spark.flaky_storage import FlakyStorage, open_hanging_at
from tests.spark.passes import (
    damage,
    fingerprint,
    output_names,
    part_names,
    plan_random_logs,
)

cloudpickle.register_pickle_by_value(flaky_storage)  # type: ignore[no-untyped-call]


def test_the_executors_have_no_siltstone_of_their_own(cluster: Cluster) -> None:
    found = subprocess.run(
        [cluster.python, "-c", "import numba, pyspark; import siltstone"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'siltstone'"


@pytest.mark.parametrize("stages", [Stages.FUSED, Stages.STAGED])
def test_a_cluster_writes_the_same_bytes(
    cluster: Cluster, engines: Engines, tmp_path: Path, stages: Stages
) -> None:
    plans = plan_random_logs(tmp_path, seed=30, partition_count=3)
    expected = {plan.pass_id: fingerprint(plan, LocalEngine().run(plan)) for plan in plans}
    engine = engines.get(cluster.master, cluster.conf, stages=stages, slice_bytes=3_000)

    outcomes = list(engine.run_all(plans))

    assert {o.plan.pass_id: fingerprint(o.plan, o.get()) for o in outcomes} == expected
    for outcome in outcomes:
        # A copy that came second may still be on its way out: see `Leftovers`.
        assert part_names(outcome.plan) >= output_names(outcome.get())


def test_attempts_on_other_executors_take_over(
    cluster: Cluster, engines: Engines, tmp_path: Path
) -> None:
    plans = plan_random_logs(tmp_path, seed=31, partition_count=2)
    expected = {plan.pass_id: fingerprint(plan, LocalEngine().run(plan)) for plan in plans}
    flaky = partial(FlakyStorage, failures=2)
    engine = engines.get(cluster.master, cluster.conf, open_storage=flaky)

    outcomes = list(engine.run_all(plans))

    assert {o.plan.pass_id: fingerprint(o.plan, o.get()) for o in outcomes} == expected
    for outcome in outcomes:
        # A copy that came second may still be on its way out: see `Leftovers`.
        assert part_names(outcome.plan) >= output_names(outcome.get())


def test_damage_found_on_a_cluster_is_our_error(
    cluster: Cluster, engines: Engines, tmp_path: Path
) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=32)
    damage(plan)

    with pytest.raises(CorruptBatchError, match="header says CRC"):
        engines.get(cluster.master, cluster.conf).run(plan)


def test_a_speculative_copy_takes_over_from_a_task_that_hangs(
    cluster: Cluster, engines: Engines, tmp_path: Path
) -> None:
    plans = plan_random_logs(tmp_path, seed=33, partition_count=3)
    expected = {plan.pass_id: fingerprint(plan, LocalEngine().run(plan)) for plan in plans}
    hanging = partial(open_hanging_at, plans[0].directory)
    engine = engines.get(cluster.master, cluster.conf, open_storage=hanging)

    outcomes = list(engine.run_all(plans))
    found = {o.plan.pass_id: fingerprint(o.plan, o.get()) for o in outcomes}
    engine.close()  # The copy that hung is dead now at the latest.

    assert found == expected
    for outcome in outcomes:
        assert part_names(outcome.plan) == output_names(outcome.get())
