"""What all commands have in common, some of it in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.silt_command import Silt

SILT = [sys.executable, "-m", "siltstone"]
TIMEOUT_SECONDS = 300

# Owns the directory that it is given until its standard input ends.
OWNER = """
import sys
from pathlib import Path
from siltstone.log.log_manager import LogManager
with LogManager([Path(sys.argv[1])]):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["consme"], "unknown command consme: did you mean consume?"),
        (["xyz"], "unknown command xyz"),
        (["topics", "creat"], "unknown command creat: did you mean create?"),
        (["consume", "t", "--isolation-lvel", "x"], "unknown flag --isolation-lvel: did you mean"),
        (["consume", "t", "-q"], "unknown flag -q"),
        (["consume", "t", "--bootstrap-server", "localhost"], '"localhost" has no port'),
        (["consume"], "missing argument 'TOPIC'"),
        (["topics", "list", "--output", "xml"], "invalid value for '--output': 'xml' is not one"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    silt: Silt, arguments: list[str], message: str
) -> None:
    finished = silt(*arguments)

    assert (finished.exit_code, finished.out) == (2, b"")
    assert finished.err.startswith(f"silt: error: {message}")
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["--help"], ["topics"], ["consume", "--help"]])
def test_help_is_an_answer(silt: Silt, arguments: list[str]) -> None:
    finished = silt(*arguments)

    assert (finished.exit_code, finished.err) == (0, "")
    assert finished.text.startswith("Usage: silt")


def test_every_command_is_in_the_help(silt: Silt) -> None:
    helped = silt("--help").text

    for command in ("topics", "produce", "consume", "dump", "offsets"):
        assert f"\n  {command} " in helped
        assert silt(command, "--help").exit_code == 0


def test_the_version(silt: Silt) -> None:
    assert silt("--version").text == "silt 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["consume", "t", "-e"], "unknown_topic", "topic t does not exist"),
        (["topics", "create", "orders"], "topic_exists", "topic orders already exists"),
        (["offsets", "--time", "x"], "usage", "--time x: use "),
        (["consume", "--nope"], "usage", "unknown flag --nope"),
        (["offsets", "--config", "x=1"], "unknown_setting", "unknown setting x"),
        (["offsets", "--config", "retention.ms=-7"], "config", "retention.ms must be at least -1"),
        (["offsets", "--log-dir", "nowhere"], "storage", "nowhere does not exist"),
    ],
)
def test_for_programs_an_error_is_also_json(
    silt: Silt, arguments: list[str], code: str, message: str
) -> None:
    silt("topics", "create", "orders")

    finished = silt(*arguments, "--output", "json")

    text, document = finished.err.splitlines()
    assert finished.out == b""
    assert text.startswith(f"silt: error: {message}")
    error = json.loads(document)["error"]
    assert error == {"code": code, "message": text.removeprefix("silt: error: ")}


def test_a_stack_trace_is_shown_only_on_request(silt: Silt) -> None:
    silt("topics", "create", "orders")

    plain = silt("consume", "t")
    debugged = silt("consume", "t", "--debug")

    assert "Traceback" not in plain.err
    assert debugged.err.startswith("Traceback")
    assert debugged.err.endswith(plain.err)
    assert debugged.exit_code == plain.exit_code == 1


def test_a_bug_of_ours_is_one_line_too(silt: Silt, monkeypatch: pytest.MonkeyPatch) -> None:
    silt("topics", "create", "orders")
    monkeypatch.setattr("siltstone.cli.topics._to_json", lambda metadata: 1 / 0)

    finished = silt("topics", "list", "--output", "json")

    assert finished.exit_code == 1
    assert finished.err.splitlines()[0] == (
        "silt: error: ZeroDivisionError: division by zero: this is a bug, --debug shows where"
    )


def test_an_answer_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("wb") as full:
        finished = subprocess.run(
            [*SILT, "--version"], stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS
        )

    assert finished.returncode == 1
    assert finished.stderr == b"silt: error: standard output: No space left on device\n"


def test_the_log_directory_has_a_default(
    silt: Silt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SILT_LOG_DIR")
    monkeypatch.chdir(tmp_path)

    missing = silt("topics", "list")
    silt("topics", "create", "orders")

    assert (missing.exit_code, missing.err) == (1, "silt: error: silt-data does not exist\n")
    assert (tmp_path / "silt-data" / "orders-0").is_dir()


def test_the_environment_may_name_several_directories(
    silt: Silt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILT_LOG_DIR", f"{tmp_path / 'one'}{os.pathsep}{tmp_path / 'two'}")

    silt("topics", "create", "orders", "--partitions", "2")

    assert len(list(tmp_path.glob("*/orders-*"))) == 2


def test_a_file_is_no_log_directory(silt: Silt, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()

    assert silt("offsets", "--log-dir", path).err == f"silt: error: {path} is not a directory\n"


@pytest.fixture
def owner(silt: Silt, log_dir: Path) -> Iterator[subprocess.Popen[str]]:
    silt("topics", "create", "orders")
    silt("produce", "orders", stdin=b"one\ntwo\n")
    command = [sys.executable, "-c", OWNER, str(log_dir)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate(timeout=TIMEOUT_SECONDS)


def test_a_directory_in_use_can_be_read_but_not_written(
    silt: Silt, log_dir: Path, owner: subprocess.Popen[str]
) -> None:
    for command in (
        ["produce", "orders"],
        ["topics", "create", "more"],
        ["topics", "alter", "orders", "--partitions", "2"],
        ["topics", "delete", "orders"],
    ):
        refused = silt(*command, stdin=b"three\n")
        assert refused.exit_code == 1
        assert refused.err == f"silt: error: {log_dir} is in use by process {owner.pid}\n"

    assert silt("consume", "orders", "-e").lines == ["one", "two"]
    assert silt("offsets").lines == ["orders:0:2"]
    assert silt("topics", "describe").exit_code == 0
    assert silt("dump", "orders").exit_code == 0


def test_a_closed_pipe_is_no_error(silt: Silt) -> None:
    silt("topics", "create", "orders")
    silt("produce", "orders", stdin=b"0123456789\n" * 20_000)

    with subprocess.Popen(
        [*SILT, "consume", "orders", "-e"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0123456789\n"
        process.stdout.close()
        messages = process.stderr.read()

    assert (process.returncode, messages) == (0, b"")


def test_a_consumer_follows_the_log_until_it_is_interrupted(silt: Silt) -> None:
    silt("topics", "create", "orders")
    silt("produce", "orders", stdin=b"before\n")

    with subprocess.Popen(
        [*SILT, "consume", "orders"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        silt("produce", "orders", stdin=b"after\n")
        second = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, messages = process.communicate(timeout=TIMEOUT_SECONDS)

    assert (first, second, rest) == (b"before\n", b"after\n", b"")
    assert (process.returncode, messages) == (130, b"")


def test_what_was_typed_before_an_interrupt_is_kept(silt: Silt) -> None:
    silt("topics", "create", "orders")

    with subprocess.Popen(
        [*SILT, "produce", "orders"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while silt("offsets").lines != ["orders:0:1"] and time.monotonic() < deadline:
            pass  # appended where the input pauses
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=TIMEOUT_SECONDS)

    assert process.returncode == 130
    assert messages.startswith(b"1 record (")
    assert silt("consume", "orders", "-e").lines == ["typed"]


def test_text_is_utf8_whatever_the_locale(silt: Silt) -> None:
    silt("topics", "create", "orders")
    silt("produce", "orders", "-H", "Grüße=ä", stdin="ö\n".encode())

    finished = subprocess.run(
        [*SILT, "consume", "orders", "-e", "-f", r"%h %s\n"],
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        timeout=TIMEOUT_SECONDS,
    )

    assert finished.stdout.decode("utf-8") == "Grüße=ä ö\n"
