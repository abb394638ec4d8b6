"""Which command lines go around the option parser, and that it makes no difference."""

import subprocess
import sys
from pathlib import Path

import pytest

from siltstone.cli.quick_get import QuickGet, parse_quick_get
from tests.support.silt_command import Silt


@pytest.mark.parametrize(
    "words",
    [
        "get",
        "get orders",
        "get orders a b",
        "get --help x",
        "get orders -a",
        "get orders a --output text",
        "get orders a --output json --all-partitions",
        "scan orders a",
        "get orders a --log-dir",
    ],
)
def test_whatever_is_not_plain_goes_to_the_parser(words: str) -> None:
    assert parse_quick_get(words.split()) is None


def test_the_plain_form_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SILT_LOG_DIR", raising=False)
    plain = QuickGet("orders", b"a", None)
    elsewhere = QuickGet("orders", b"a", [Path("d")])

    assert parse_quick_get(["get", "orders", "a"]) == plain
    assert parse_quick_get(["get", "orders", "a", "--log-dir", "d"]) == elsewhere
    assert parse_quick_get(["get", "--log-dir", "d", "orders", "a"]) == elsewhere
    as_json = ["get", "orders", "a", "--output", "json", "--log-dir", "d"]
    assert parse_quick_get(as_json) == elsewhere._replace(as_json=True)


def test_both_ways_give_the_same_answer(silt: Silt, log_dir: Path) -> None:
    silt("topics", "create", "orders", "--config", "cleanup.policy=compact")
    silt("produce", "orders", "-K", ":", stdin=b"a:1\n")
    for key in ("a", "x"):
        quick = silt("get", "orders", key)
        usual = silt("get", "orders", key, "--key-format", "text")
        assert (quick.exit_code, quick.out, quick.err) == (usual.exit_code, usual.out, usual.err)
        quick = silt("get", "orders", key, "--output", "json")
        usual = silt("get", "orders", key, "--output", "json", "--key-format", "text")
        assert (quick.exit_code, quick.out, quick.err) == (usual.exit_code, usual.out, usual.err)
    assert silt("get", "orders", "a", "--log-dir", log_dir).text == "1\n"


def test_a_lookup_loads_nothing_that_takes_long_to_load(silt: Silt, log_dir: Path) -> None:
    silt("topics", "create", "orders", "--config", "cleanup.policy=compact")
    silt("produce", "orders", "-K", ":", stdin=b"a:1\n")
    code = (
        "import sys; from siltstone.cli.main import run; code = run(sys.argv[1:]);"
        "slow = {'numba', 'numpy', 'pyarrow', 'pyspark', 'rich', 'typer'};"
        "sys.exit(code or bool(slow & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, "get", "orders", "a", "--log-dir", str(log_dir)]

    finished = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (finished.returncode, finished.stdout) == (0, "1\n"), finished.stderr
