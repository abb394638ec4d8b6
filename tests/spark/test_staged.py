"""One plan, many tasks: the same bytes whatever the slices, the cores and the failures."""

from functools import partial
from pathlib import Path

import pytest

from siltstone.cleaner.local import LocalEngine
from siltstone.errors import CorruptBatchError, EngineError
from siltstone.spark.forms import Stages
from tests.spark.conftest import Engines
from tests.spark.flaky_storage import FlakyStorage
from tests.spark.passes import (
    damage,
    fingerprint,
    output_names,
    part_names,
    plan_random_logs,
)

EVERYTHING = 1 << 30


def sixteenth(directory: Path) -> int:
    """Return the slice size that makes about 16 slices of a partition's segments."""
    return sum(path.stat().st_size for path in directory.glob("*.log")) // 16


@pytest.mark.parametrize("seed", [20, 21])
@pytest.mark.parametrize("master", ["local[1]", "local[2]"])
def test_one_slice_and_sixteen_give_the_same_bytes(
    engines: Engines, tmp_path: Path, master: str, seed: int
) -> None:
    (plan,) = plan_random_logs(tmp_path, seed)
    expected = fingerprint(plan, LocalEngine().run(plan))

    for slice_bytes in (EVERYTHING, sixteenth(plan.directory)):
        engine = engines.get(master, stages=Stages.STAGED, slice_bytes=slice_bytes)
        result = engine.run(plan)

        assert fingerprint(plan, result) == expected
        assert part_names(plan) == output_names(result)


def test_stages_survive_attempts_that_fail(engines: Engines, tmp_path: Path) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=22)
    expected = fingerprint(plan, LocalEngine().run(plan))
    engine = engines.get(
        "local[2,4]",
        stages=Stages.STAGED,
        slice_bytes=sixteenth(plan.directory),
        open_storage=partial(FlakyStorage, failures=1),
    )

    result = engine.run(plan)

    assert fingerprint(plan, result) == expected
    assert part_names(plan) == output_names(result)


def test_damage_in_one_slice_is_our_error(engines: Engines, tmp_path: Path) -> None:
    plans = plan_random_logs(tmp_path, seed=23, partition_count=2)
    path = damage(plans[0])
    engine = engines.get(stages=Stages.STAGED, slice_bytes=2_000)

    outcomes = {o.plan.pass_id: o for o in engine.run_all(plans)}

    error = outcomes[plans[0].pass_id].error
    assert isinstance(error, CorruptBatchError)
    assert error.path == path
    assert part_names(plans[0]) == set()
    good = plans[1]
    assert part_names(good) == output_names(outcomes[good.pass_id].get())


def test_a_stage_that_always_fails_is_an_engine_error(engines: Engines, tmp_path: Path) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=24)
    engine = engines.get(
        "local[2,2]", stages=Stages.STAGED, open_storage=partial(FlakyStorage, failures=99)
    )

    with pytest.raises(EngineError, match="Spark gave up: RuntimeError: injected into attempt 1"):
        engine.run(plan)

    assert part_names(plan) == set()
