"""What tasks tell about their files, and how they are slowed down."""

import time
from pathlib import Path

import pytest

from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.progress import PassProgress
from siltstone.cleaner.storage import DirectoryStorage
from siltstone.log.filesystem import FileSystem
from siltstone.spark import engine as engine_module
from siltstone.spark import task_io
from siltstone.spark.engine import SparkEngine
from siltstone.spark.task_io import TaskIo, TaskName, read_progress
from tests.spark.conftest import Engines
from tests.spark.passes import (
    fingerprint,
    output_names,
    part_names,
    plan_large_log,
    plan_random_logs,
)


def test_a_task_name_can_be_read_back() -> None:
    assert TaskName.parse(str(TaskName(3, 14, 159))) == TaskName(3, 14, 159)


def test_nobody_has_begun(tmp_path: Path) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=40)

    progress = read_progress(FileSystem(), plan)

    assert progress == PassProgress(plan.pass_id, plan.partition, 0, 2 * plan.source_bytes())


def test_progress_is_that_of_the_attempts_that_are_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_io, "_REPORT_SECONDS", 0)
    (plan,) = plan_random_logs(tmp_path, seed=41)
    io = TaskIo(DirectoryStorage, reports_progress=True)
    first, second = plan.sources[:2]
    for task, source in [
        (TaskName(0, 0, 0), first),
        (TaskName(0, 0, 1), first),
        (TaskName(0, 1, 2), second),
    ]:
        io.open(plan, task).open_source(source.base_offset).read(0, source.size_bytes)

    progress = read_progress(FileSystem(), plan)

    assert progress.bytes_done == first.size_bytes + second.size_bytes


def test_the_caller_is_told_how_far_a_large_plan_is(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_WATCHED_BYTES", 0)
    plan = plan_large_log(tmp_path, record_count=20_000, key_count=500)
    expected = fingerprint(plan, LocalEngine().run(plan))
    engine = engines.get(io_bytes_per_second=plan.source_bytes())  # About two seconds.
    seen: list[PassProgress] = []

    started = time.monotonic()
    (outcome,) = engine.run_all([plan], seen.append)
    seconds = time.monotonic() - started

    assert fingerprint(plan, outcome.get()) == expected
    assert part_names(plan) == output_names(outcome.get())
    assert seconds > 1.5
    done = [progress.bytes_done for progress in seen]
    assert done == sorted(done)
    assert 0 < done[-1] <= seen[-1].bytes_total == 2 * plan.source_bytes()


def test_spark_can_be_started_beforehand(engine: SparkEngine, tmp_path: Path) -> None:
    (plan,) = plan_random_logs(tmp_path, seed=42)
    expected = fingerprint(plan, LocalEngine().run(plan))

    engine.start_soon()

    assert fingerprint(plan, engine.run(plan)) == expected
