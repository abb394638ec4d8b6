"""The examples, run as the user runs them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from examples.failover import TEXT

REPO: Final = Path(__file__).resolve().parents[2]


def run_example(name: str, directory: Path) -> Any:
    command = [sys.executable, "-m", f"examples.{name}", str(directory)]
    finished = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_a_subscriber_keeps_cache_and_index_in_step_with_the_table(tmp_path: Path) -> None:
    found = run_example("change_subscription", tmp_path / "data")

    assert found["cache"] == {"1": {"name": "green lamp"}, "3": {"name": "green chair"}}
    assert found["green"] == ["1", "3"]


def test_a_state_is_the_replay_of_its_events(tmp_path: Path) -> None:
    now, then = run_example("event_sourcing", tmp_path / "data")

    assert now == {"anna": 50, "ben": 75}
    assert then == {"anna": 70, "ben": 50}


def test_a_fresh_process_takes_over_from_one_that_died(tmp_path: Path) -> None:
    found = run_example("failover", tmp_path / "data")

    assert found == Counter(TEXT.split())
