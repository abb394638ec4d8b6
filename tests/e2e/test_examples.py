"""The examples, run as the user runs them."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from examples.failover import TEXT
from examples.postgres_changes import ChangeFeed
from siltstone.cli.main import run as silt
from tests.support.postgres import PostgresServer

REPO: Final = Path(__file__).resolve().parents[2]


def run_example(name: str, directory: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", f"examples.{name}", str(directory), *arguments]
    finished = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.fixture
def database() -> Iterator[str]:
    with PostgresServer() as server:
        yield server.url


def test_a_subscriber_keeps_cache_and_index_in_step_with_the_table(
    tmp_path: Path, database: str
) -> None:
    found = run_example("change_subscription", tmp_path / "data", database)

    assert found["cache"] == found["green"] == {"1": "green lamp", "4": "green chair"}
    assert silt(["count", "products", "--log-dir", str(tmp_path / "data")]) == 0


def test_changes_come_once_from_the_write_ahead_log(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a INT, b TEXT, c TEXT, PRIMARY KEY (a, b))")
        feed = ChangeFeed(connection, "t")
        connection.execute("INSERT INTO t VALUES (1, 'x', NULL)")
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO t VALUES (2, 'y', '')")
        connection.execute("UPDATE t SET c = 'new'")

        first = list(feed.read())
        again = list(feed.read())
        connection.execute("DELETE FROM t")
        last = list(ChangeFeed(connection, "t").read())

    key = b'{"a": "1", "b": "x"}'
    assert first == [
        (key, b'{"a": "1", "b": "x", "c": null}'),
        (key, b'{"a": "1", "b": "x", "c": "new"}'),
    ]
    assert again == []
    assert last == [(key, None)]


def test_a_state_is_the_replay_of_its_events(tmp_path: Path) -> None:
    now, then = run_example("event_sourcing", tmp_path / "data")

    assert now == {"anna": 50, "ben": 75}
    assert then == {"anna": 70, "ben": 50}


def test_a_fresh_process_takes_over_from_one_that_died(tmp_path: Path) -> None:
    found = run_example("failover", tmp_path / "data")

    assert found == Counter(TEXT.split())
