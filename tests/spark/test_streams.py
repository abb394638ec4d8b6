"""Streaming source and sink, killed and started again: nothing lost, nothing doubled.

The query runs in a process of its own, JVM and all, which is killed at a random moment.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from tests.spark.source_logs import fill_topic, plain_log

_RUN = Path(__file__).with_name("copy_stream.py")


def start(path: Path, checkpoint: Path) -> subprocess.Popen[bytes]:
    """Start the query in a process group of its own."""
    with (checkpoint.parent / "errors").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, str(_RUN), str(path), str(checkpoint)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_batches(checkpoint: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the query has noted so many batches in its checkpoint."""
    batches = checkpoint / "offsets"
    while process.poll() is None:
        if batches.is_dir() and sum(p.name.isdigit() for p in batches.iterdir()) >= count:
            return
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_query_goes_on_where_it_was(tmp_path: Path) -> None:
    rng = random.Random(20_260_000)
    path, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    fill_topic(path, "orders", seed=1, batch_count=300)
    with LogManager([path]) as manager:
        manager.create_topic("copy", 3)

    process = start(path, checkpoint)
    try:
        wait_for_batches(checkpoint, 3, process)
        # Anywhere in a batch: tasks, commit, checkpoint.
        time.sleep(rng.random() * 0.5)
    finally:
        kill(process)
    fill_topic(path, "orders", seed=2, batch_count=20)
    process = start(path, checkpoint)
    try:
        process.wait(timeout=300)
    finally:
        kill(process)

    assert process.returncode == 0, (tmp_path / "errors").read_text()[-2000:]
    source = plain_log(path, "orders")
    copied = Counter((key, value) for key, value, _, _ in plain_log(path, "copy"))
    assert copied == Counter((key, value) for key, value, _, _ in source)
    last = max(
        (p for p in (checkpoint / "offsets").iterdir() if p.name.isdigit()),
        key=lambda p: int(p.name),
    )
    ends = {
        str(number): LogReader([path]).get_log(TopicPartition("orders", number)).log_end_offset
        for number in range(2)
    }
    assert json.loads(last.read_text().splitlines()[-1]) == {"orders": ends}
