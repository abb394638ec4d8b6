"""The garbage collector of a process that Spark reuses, and of any other."""

import gc
from collections.abc import Iterator

import pytest

from siltstone.spark.source.worker import spare_collector


@pytest.fixture
def thawed() -> Iterator[None]:
    gc.unfreeze()
    spare_collector.cache_clear()
    yield
    gc.unfreeze()
    spare_collector.cache_clear()


@pytest.mark.usefixtures("thawed")
def test_what_a_worker_has_imported_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")

    spare_collector()

    frozen = gc.get_freeze_count()
    assert frozen > 1000
    made_since = [[] for _ in range(10)]  # type: ignore[var-annotated]
    spare_collector()
    assert gc.get_freeze_count() <= frozen
    assert any(made_since is seen for seen in gc.get_objects())


@pytest.mark.usefixtures("thawed")
def test_a_users_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)

    spare_collector()

    assert gc.get_freeze_count() == 0
