"""`silt compact` with a real Spark, and what `silt plan` and `silt history` say around it."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from siltstone.cleaner.manifest import read_manifests
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.spark.conftest import Engines
from tests.support.make_log import HastyDisk
from tests.support.processes import is_alive, iter_children
from tests.support.silt_command import Finished, Silt, make_silt
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
PATIENCE_SECONDS = 120
RESULT_FIELDS = {
    "topic",
    "partition",
    "records_read",
    "records_kept",
    "superseded",
    "tombstones_kept",
    "tombstones_removed",
    "aborted_removed",
    "markers_removed",
    "bytes_before",
    "bytes_after",
    "seconds",
    "manifest",
}


def progress_of(finished: Finished) -> list[dict[str, Any]]:
    """Return the progress that a command has told, line by line."""
    lines = [json.loads(line) for line in finished.err.splitlines() if line.startswith("{")]
    return [line["progress"] for line in lines if "progress" in line]


@pytest.fixture
def silt(
    engines: Engines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Silt:
    engines.close()  # The command starts a Spark of its own.
    monkeypatch.setenv("SILT_LOG_DIR", str(tmp_path / "logs"))
    return make_silt(monkeypatch, capsysbinary)


def make_topic(log_dir: Path, topic: str, batch_count: int = 3, **settings: str) -> None:
    """Make a topic with one segment per batch, an hour apart; each key in every one of them."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    with LogManager([log_dir], fs=HastyDisk()) as manager:
        manager.create_topic(topic, 1, config)
        log = manager.get_log(TopicPartition(topic, 0))
        for number in range(batch_count):
            timestamp_ms = NOW_MS + number * HOUR_MS
            log.append(
                build_batch([Record(n, timestamp_ms, b"key-%d" % n, b"v") for n in range(10)])
            )
            if number < batch_count - 1:
                log.roll()


def logs_of(log_dir: Path, topic: str) -> dict[str, bytes]:
    """Return the batches and indexes of the topic's only partition."""
    return {
        path.name: path.read_bytes()
        for path in sorted((log_dir / f"{topic}-0").iterdir())
        if path.suffix in {".log", ".index", ".timeindex"}
    }


def parts_of(log_dir: Path, topic: str) -> list[Path]:
    return list((log_dir / f"{topic}-0").glob("*.part"))


def test_a_pass_answers_with_its_figures_and_tells_on_stderr_how_far_it_is(
    silt: Silt, tmp_path: Path
) -> None:
    make_topic(tmp_path / "logs", "orders", cleanup_policy="compact")

    finished = silt("compact", "orders", "--force", "--output", "json")

    (result,) = finished.json
    assert finished.exit_code == 0
    assert result.keys() >= RESULT_FIELDS
    assert (result["records_read"], result["records_kept"], result["superseded"]) == (30, 10, 20)
    (manifest,) = read_manifests(HastyDisk(), tmp_path / "logs" / "orders-0")
    assert result["manifest"] == manifest.name
    assert list((tmp_path / "logs" / "orders-0").glob("*.keyindex"))
    assert [p["stage"] for p in progress_of(finished)] == ["start", "index", "commit", "done"]
    assert progress_of(finished)[-1]["bytes_done"] == 2 * result["bytes_before"]
    assert progress_of(finished)[-1]["bytes_total"] == 2 * result["bytes_before"]
    assert silt("verify", "--deep").exit_code == 0
    (verdict,) = silt("plan", "--output", "json").json
    assert verdict["reason"] == "nothing cleanable"


def test_a_dry_run_has_the_figures_of_the_real_one_and_changes_nothing(
    silt: Silt, tmp_path: Path
) -> None:
    make_topic(tmp_path / "logs", "orders", cleanup_policy="compact")
    before = logs_of(tmp_path / "logs", "orders")

    tried = silt("compact", "--force", "--dry-run", "--output", "json").json
    after = logs_of(tmp_path / "logs", "orders")
    done = silt("compact", "--force", "--output", "json").json

    assert after == before
    assert parts_of(tmp_path / "logs", "orders") == []
    for (one,) in (tried, done):
        del one["manifest"], one["seconds"]
    assert tried == done


def test_a_saved_plan_is_run_and_refused_once_the_log_has_changed(
    silt: Silt, tmp_path: Path
) -> None:
    settings = {"cleanup_policy": "compact,delete", "retention_ms": "1"}
    make_topic(tmp_path / "logs", "orders", batch_count=4, **settings)
    plan_file = tmp_path / "plan.json"
    now = str(NOW_MS + HOUR_MS)  # Only the first segment is over age.
    plan_file.write_text(silt("plan", "--now", now, "--output", "json").text)

    first = silt("compact", "--plan", plan_file, "--stages", "staged", "--output", "json")
    second = silt("compact", "--plan", plan_file, "--output", "json")

    assert [(r["kind"], r["segments_removed"]) for r in first.json] == [
        ("retention", 1),
        ("compaction", 0),
    ]
    assert first.json[1]["records_read"] == 20
    assert (second.exit_code, second.json) == (1, [])
    assert "silt: error: orders-0: the log changed: plan again" in second.err
    assert '{"error":{"code":"cleaning_aborted"' in second.err


def test_a_rate_holds_over_all_tasks(silt: Silt, tmp_path: Path) -> None:
    for topic in ("a", "b"):
        make_topic(tmp_path / "logs", topic, batch_count=6, cleanup_policy="compact")
    sizes = {t: sum(map(len, logs_of(tmp_path / "logs", t).values())) for t in "ab"}
    rate = sum(sizes.values())  # Two readings take two seconds.

    finished = silt(
        "compact",
        *("--force", "--output", "json", "--master", "local[2]"),
        *("--config", f"log.cleaner.io.max.bytes.per.second={rate}"),
    )

    assert {result["topic"] for result in finished.json} == {"a", "b"}
    assert min(result["seconds"] for result in finished.json) > 1


def test_old_segments_of_known_topics_go_by_retention(silt: Silt, tmp_path: Path) -> None:
    make_topic(tmp_path / "logs", "events", retention_ms=str(2 * HOUR_MS))
    now = ("--now", str(NOW_MS + 3 * HOUR_MS))

    (verdict,) = silt("plan", *now, "--output", "json").json
    text = silt("plan", *now).text
    (result,) = silt("compact", *now, "--output", "json").json
    history = silt("history", "events").text

    assert (verdict["eligible"], verdict["reason"]) == (False, "not compacted")
    assert verdict["segments_expired"] == 1
    assert "its newest record is 10800000 ms old, retention.ms is 7200000" in text
    assert (result["kind"], result["segments_removed"], result["log_start_offset"]) == (
        "retention",
        1,
        10,
    )
    assert result.keys() >= RESULT_FIELDS
    assert [name for name in logs_of(tmp_path / "logs", "events") if name.endswith(".log")] == [
        f"{base:020d}.log" for base in (10, 20)
    ]
    assert "retention: retention.ms" in history
    assert silt("verify", "--deep").exit_code == 0


def test_topics_whose_settings_nobody_knows_lose_nothing(silt: Silt, tmp_path: Path) -> None:
    make_topic(tmp_path / "logs", "events")
    (tmp_path / "logs" / "silt-topics.json").unlink()  # As in a directory of stock Kafka.

    assert silt("compact", "--output", "json").json == []
    assert [v["segments_expired"] for v in silt("plan", "--output", "json").json] == [0]

    named = silt("compact", "--config", "retention.ms=1", "--output", "json").json

    assert [result["segments_removed"] for result in named] == [3]


@pytest.mark.parametrize(
    ("arguments", "message", "exit_code"),
    [
        (("events",), "topic events has cleanup.policy=delete", 1),
        (("nope",), "topic nope does not exist", 1),
        (("--plan", "FILE", "--force"), "--plan and --force exclude each other", 2),
        (("--plan", "FILE", "events"), "--plan and TOPIC exclude each other", 2),
        (("--plan", "FILE"), "line 1 column 2: Expecting property name", 2),
        (
            ("--config", "log.cleaner.io.max.bytes.per.second=0"),
            "log.cleaner.io.max.bytes.per.second must be over 0",
            2,
        ),
        (("--config", "min.dirty.ratio=0"), "unknown setting min.dirty.ratio", 2),
        (("--stages", "two"), "'two' is not one of 'auto', 'fused', 'staged'", 2),
    ],
)
def test_what_cannot_be_done_is_refused(
    silt: Silt, tmp_path: Path, arguments: tuple[str, ...], message: str, exit_code: int
) -> None:
    make_topic(tmp_path / "logs", "events")
    plan_file = tmp_path / "plan.json"
    plan_file.write_text("{nothing")
    named = [str(plan_file) if argument == "FILE" else argument for argument in arguments]

    finished = silt("compact", *named)

    assert finished.exit_code == exit_code
    assert message in finished.err


@pytest.mark.parametrize("suffix", [".cleaned", ".swap", ".deleted", ".log"])
def test_ctrl_c_in_a_commit_lets_it_come_to_its_end_and_begins_no_other(
    silt: Silt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    log_dir = tmp_path / "logs"
    for topic in ("a", "b"):
        make_topic(log_dir, topic, cleanup_policy="compact")
    before = {topic: logs_of(log_dir, topic) for topic in ("a", "b")}
    pressed: list[str] = []
    rename = FileSystem.rename

    def press_and_rename(fs: FileSystem, source: Path, target: Path) -> None:
        if target.suffix == suffix and not pressed:
            pressed.append(source.parent.name)
            os.kill(os.getpid(), signal.SIGINT)
        rename(fs, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(FileSystem, "rename", press_and_rename)
        finished = silt("compact", "--ignore-ratio", "--output", "json")

    (cleaned,) = [name.removesuffix("-0") for name in pressed]
    (other,) = {"a", "b"} - {cleaned}
    assert finished.exit_code == 130
    assert logs_of(log_dir, other) == before[other]
    assert logs_of(log_dir, cleaned) != before[cleaned]
    verdicts = silt("plan", "--ignore-ratio", "--output", "json").json
    assert {v["topic"]: v["eligible"] for v in verdicts} == {cleaned: False, other: True}
    assert [entry["topic"] for entry in silt("history", cleaned, "--output", "json").json] == [
        cleaned
    ]
    assert parts_of(log_dir, "a") + parts_of(log_dir, "b") == []
    assert silt("verify", "--deep").exit_code == 0


@pytest.mark.parametrize("stages", ["fused", "staged"])
def test_each_form_can_be_forced_and_tells_what_it_does_and_how_long_it_takes(
    silt: Silt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: str
) -> None:
    log_dir = tmp_path / "logs"
    make_topic(log_dir, "orders", batch_count=12, cleanup_policy="compact")
    logs = logs_of(log_dir, "orders")
    size_bytes = sum(len(data) for name, data in logs.items() if name.endswith(".log"))
    forms: list[str] = []
    _note_calls(monkeypatch, "siltstone.spark.engine.run_fused", forms, "fused")
    _note_calls(monkeypatch, "siltstone.spark.engine.StagedRun.run", forms, "staged")

    finished = silt(
        *("compact", "--ignore-ratio", "--stages", stages, "--output", "json"),
        # Two readings and little writing take four seconds.
        *("--config", f"log.cleaner.io.max.bytes.per.second={size_bytes // 2}"),
    )

    (result,) = finished.json
    assert forms == [stages]
    assert (result["records_read"], result["records_kept"]) == (110, 10)
    told = progress_of(finished)
    order = ["start", "index", "rewrite", "commit", "done"]
    assert list(dict.fromkeys(line["stage"] for line in told)) == order
    done = [line["bytes_done"] for line in told]
    assert done == sorted(done)
    on_the_way = [line for line in told if 0 < line["bytes_done"] < line["bytes_total"]]
    assert on_the_way
    for line in on_the_way:
        left_bytes = line["bytes_total"] - line["bytes_done"]
        expected_seconds = left_bytes / line["bytes_per_second"]
        assert line["eta_seconds"] == pytest.approx(expected_seconds, rel=0.1, abs=0.1)
    assert told[-1]["eta_seconds"] == 0


def _note_calls(monkeypatch: pytest.MonkeyPatch, place: str, calls: list[str], name: str) -> None:
    """Let a function note that it was called, and do what it does."""
    real = resolve_name(place)

    def noted(*given: Any) -> Any:
        calls.append(name)
        return real(*given)

    monkeypatch.setattr(place, noted)


class OnTerminal:
    """The real command in a process of its own, with its messages on a terminal."""

    def __init__(self, *arguments: str | Path) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "siltstone", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "150"},
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.seen = ""

    def read(self) -> str:
        """Return all that was shown so far."""
        with suppress(OSError):  # nothing new, or nobody there any more
            self.seen += os.read(self._master, 1 << 16).decode(errors="replace")
        return self.seen


@pytest.mark.parametrize(
    ("end", "stage", "reading_seconds"),
    [
        (signal.SIGINT, "finding keys", 20),
        (signal.SIGKILL, "finding keys", 20),
        (signal.SIGINT, "rewriting", 8),
    ],
)
def test_a_command_that_is_stopped_on_the_way_leaves_the_log_as_it_was(
    silt: Silt, tmp_path: Path, end: signal.Signals, stage: str, reading_seconds: int
) -> None:
    log_dir = tmp_path / "logs"
    make_topic(log_dir, "orders", batch_count=40, cleanup_policy="compact")
    before = logs_of(log_dir, "orders")
    rate = sum(map(len, before.values())) // reading_seconds  # All is read twice.
    command = OnTerminal(
        *("compact", "--log-dir", log_dir),
        *("--config", f"log.cleaner.io.max.bytes.per.second={rate}"),
    )
    wait_until(lambda: "starting Spark" in command.read() or command.process.poll() is not None)
    # It is read all the while: a terminal that nobody looks at is soon full.
    wait_until(lambda: "/s" in command.read() or command.process.poll() is not None)  # the rate
    assert command.process.poll() is None, command.read()
    assert parts_of(log_dir, "orders") != []
    wait_until(lambda: f"orders-0 {stage}" in command.read() or command.process.poll() is not None)
    assert command.process.poll() is None, command.read()
    children = list(iter_children(command.process.pid))

    os.kill(command.process.pid, end)
    exit_code = command.process.wait(PATIENCE_SECONDS)
    wait_until(lambda: not any(map(is_alive, children)))

    assert "orders-0 committing" not in command.seen
    assert exit_code == (130 if end is signal.SIGINT else -signal.SIGKILL)
    if end is signal.SIGINT:
        assert parts_of(log_dir, "orders") == []
    assert logs_of(log_dir, "orders") == before
    LogManager([log_dir], fs=HastyDisk()).close()
    assert parts_of(log_dir, "orders") == []
    if end is signal.SIGKILL:
        (result,) = silt("compact", "--output", "json").json
        assert (result["records_read"], result["records_kept"]) == (390, 10)
