"""The source over Spark Connect, from a server whose Python does not have the package."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cluster import write_bare_python
from tests.spark.source_logs import fill_topic, plain_latest, plain_log

_RUN = Path(__file__).with_name("connect_client.py")


@pytest.mark.slow
def test_a_client_of_spark_connect_reads_and_writes_topics(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    fill_topic(path, "orders", seed=1)
    fill_topic(path, "copy", seed=1, batch_count=0)

    finished = subprocess.run(
        [sys.executable, str(_RUN), str(path)],
        env={
            # The server is started by the client, and would have its path.
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYSPARK_PYTHON": str(write_bare_python(tmp_path)),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr[-3000:]
    answers: dict[str, Any] = {}
    for line in finished.stdout.splitlines():
        answers |= json.loads(line)
    everything = plain_log(path, "orders")
    latest = [[partition, offset] for _, _, partition, offset in plain_latest(path, "orders")]
    assert answers["log"] == [[partition, offset] for _, _, partition, offset in everything]
    assert answers["latest in stages"] == answers["sql"] == latest
    assert [part["partition"] for part in answers["bounds"]] == [0, 1]
    copied = Counter(row[:2] for row in plain_log(path, "copy"))
    assert copied == Counter(row[:2] for row in everything)
