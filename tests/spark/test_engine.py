"""Plans on Spark, a task each: the same bytes as anywhere else, and no failure that spreads."""

from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle

from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.reference import ReferenceEngine
from siltstone.errors import CleaningAbortedError, CorruptBatchError, EngineError
from siltstone.log import filenames
from siltstone.spark.engine import SparkEngine
from siltstone.spark.forms import Stages
from tests.spark import flaky_storage
from tests.spark.conftest import Engines
from tests.spark.flaky_storage import FlakyStorage, open_elsewhere, open_flaky_at
from tests.spark.passes import (
    damage,
    fingerprint,
    output_names,
    part_names,
    plan_random_logs,
)

cloudpickle.register_pickle_by_value(flaky_storage)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("seed", range(3))
def test_spark_writes_the_bytes_that_every_engine_writes(
    engine: SparkEngine, tmp_path: Path, seed: int
) -> None:
    (plan,) = plan_random_logs(tmp_path, seed)
    plain = fingerprint(plan, ReferenceEngine().run(plan))
    local = fingerprint(plan, LocalEngine().run(plan))

    result = engine.run(plan)

    assert fingerprint(plan, result) == local == plain


def test_many_partitions_are_cleaned_in_one_job(engine: SparkEngine, tmp_path: Path) -> None:
    plans = plan_random_logs(tmp_path, seed=7, partition_count=16)
    expected = {plan.pass_id: fingerprint(plan, LocalEngine().run(plan)) for plan in plans}

    outcomes = list(engine.run_all(plans))

    found = {o.plan.pass_id: fingerprint(o.plan, o.get()) for o in outcomes}
    assert found == expected


def test_no_plans_no_outcomes(engine: SparkEngine) -> None:
    assert list(engine.run_all([])) == []


def test_a_damaged_log_fails_alone_and_with_our_error(engine: SparkEngine, tmp_path: Path) -> None:
    plans = plan_random_logs(tmp_path, seed=8, partition_count=3)
    path = damage(plans[1])

    outcomes = {o.plan.pass_id: o for o in engine.run_all(plans)}

    error = outcomes[plans[1].pass_id].error
    assert isinstance(error, CorruptBatchError)
    assert error.path == path
    assert part_names(plans[1]) == set()
    for plan in (plans[0], plans[2]):
        assert part_names(plan) == output_names(outcomes[plan.pass_id].get())


def test_the_engine_raises_the_error_of_a_single_plan(engine: SparkEngine, tmp_path: Path) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=9)
    damage(plan)

    with pytest.raises(CorruptBatchError, match="header says CRC"):
        engine.run(plan)


@pytest.mark.parametrize("stages", [Stages.FUSED, Stages.STAGED])
def test_a_segment_that_is_gone_means_that_the_log_changed(
    engines: Engines, tmp_path: Path, stages: Stages
) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=13)
    filenames.log_path(plan.directory, plan.sources[-1].base_offset).unlink()

    with pytest.raises(CleaningAbortedError, match="orders-0: the log changed: plan again"):
        engines.get(stages=stages).run(plan)


def test_workers_that_do_not_see_a_directory_say_so(engines: Engines, tmp_path: Path) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=14)
    elsewhere = partial(open_elsewhere, tmp_path / "nowhere")

    with pytest.raises(EngineError, match="workers must see the log directory under the driver's"):
        engines.get(open_storage=elsewhere).run(plan)


def test_attempts_that_fail_leave_nothing_and_change_nothing(
    engines: Engines, tmp_path: Path
) -> None:
    plans = plan_random_logs(tmp_path, seed=10, partition_count=4)
    expected = [fingerprint(plan, LocalEngine().run(plan)) for plan in plans]
    flaky = partial(FlakyStorage, failures=2)
    engine = engines.get("local[2,4]", open_storage=flaky)

    outcomes = sorted(engine.run_all(plans), key=lambda o: plans.index(o.plan))

    assert [fingerprint(o.plan, o.get()) for o in outcomes] == expected
    for outcome in outcomes:
        assert part_names(outcome.plan) == output_names(outcome.get())


def test_a_task_that_always_fails_is_an_engine_error_of_its_plan(
    engines: Engines, tmp_path: Path
) -> None:
    plans = plan_random_logs(tmp_path, seed=11, partition_count=3)
    storage = partial(open_flaky_at, plans[1].directory)
    engine = engines.get("local[2,2]", open_storage=storage)

    outcomes = {o.plan.pass_id: o for o in engine.run_all(plans)}

    error = outcomes[plans[1].pass_id].error
    assert isinstance(error, EngineError)
    assert str(error) == "Spark gave up: RuntimeError: injected into attempt 1"
    assert part_names(plans[1]) == set()
    for plan in (plans[0], plans[2]):
        assert part_names(plan) == output_names(outcomes[plan.pass_id].get())


def test_a_caller_that_stops_listening_leaves_no_files(engines: Engines, tmp_path: Path) -> None:
    plans = plan_random_logs(tmp_path, seed=12, partition_count=8)

    engine = engines.get()
    outcomes = engine.run_all(plans)
    first = next(outcomes)
    outcomes.close()
    engine.close()

    for plan in plans:
        assert part_names(plan) == (output_names(first.get()) if plan == first.plan else set())


def test_a_master_that_is_none_is_an_engine_error() -> None:
    engine = SparkEngine("nonsense")

    with pytest.raises(EngineError, match="Spark does not start at nonsense"):
        engine.start()
