"""Threads that share the chunks of a pass change nothing but the time."""

from pathlib import Path

import pytest

from siltstone.cleaner import key_walk, rewriting
from siltstone.cleaner.local import LocalEngine
from siltstone.errors import CorruptBatchError
from tests.spark.passes import damage, fingerprint, plan_large_log, plan_random_logs


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Or all of a small log would be in one chunk, and nothing would be left for another thread.
    monkeypatch.setattr(key_walk, "PASS_CHUNK_BYTES", 1000)
    monkeypatch.setattr(rewriting, "PASS_CHUNK_BYTES", 1000)


@pytest.mark.parametrize("seed", range(4))
def test_a_pass_with_two_threads_writes_the_same_bytes(tmp_path: Path, seed: int) -> None:
    (plan,) = plan_random_logs(tmp_path, seed)
    expected = fingerprint(plan, LocalEngine("plain").run(plan))

    found = fingerprint(plan, LocalEngine("ahead", thread_count=2).run(plan))

    assert found == expected


@pytest.mark.parametrize("thread_count", [2, 6])
def test_a_batch_that_is_larger_than_a_chunk_is_read_ahead(
    tmp_path: Path, thread_count: int
) -> None:
    plan = plan_large_log(tmp_path, record_count=2000, key_count=100)  # batches of 10 kB
    expected = fingerprint(plan, LocalEngine("plain").run(plan))

    found = fingerprint(plan, LocalEngine("ahead", thread_count=thread_count).run(plan))

    assert found == expected


def test_damage_is_named_by_its_place_whoever_reads(tmp_path: Path) -> None:
    plan = plan_large_log(tmp_path, record_count=2000, key_count=100)
    path = damage(plan)

    messages = []
    for thread_count in (1, 2):
        with pytest.raises(CorruptBatchError) as caught:
            LocalEngine(thread_count=thread_count).run(plan)
        messages.append(str(caught.value))

    assert messages[0] == messages[1]
    assert f"{path.name} is corrupt at position" in messages[0]
