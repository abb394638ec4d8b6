import json
import shutil
from pathlib import Path

import pytest

from siltstone.errors import LogDirOfflineError
from siltstone.log.filesystem import FileSystem
from tests.support.cleaned_logs import CleanedLog, make_cleaned_log
from tests.support.silt_command import Silt


@pytest.fixture(scope="module")
def sound_log(tmp_path_factory: pytest.TempPathFactory) -> CleanedLog:
    return make_cleaned_log(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def log(sound_log: CleanedLog, log_dir: Path, tmp_path: Path) -> CleanedLog:
    """The log lies where `silt` looks for it, its copy beside it."""
    copy = sound_log.copy_to(tmp_path)
    shutil.move(copy.after.log_dir, log_dir)
    return CleanedLog(copy.before, type(copy.after)(log_dir, copy.after.partition), copy.now_ms)


def test_a_sound_log_is_summed_up_in_a_line(silt: Silt, log: CleanedLog) -> None:
    finished = silt("verify", "orders", "--now", str(log.now_ms))

    assert (finished.exit_code, finished.err) == (0, "")
    assert finished.lines == [
        "orders-0: ok; 7 segments, 25 batches, 32 records, 2.1 KiB; offsets 0 to 45, clean up to 37"
    ]


def test_all_topics_are_verified_if_none_is_named(silt: Silt, log: CleanedLog) -> None:
    silt("topics", "create", "empty")

    lines = silt("verify", "--deep", "--now", str(log.now_ms)).lines

    assert [line.partition(";")[0] for line in lines] == ["empty-0: ok", "orders-0: ok"]


def test_a_violation_is_listed_and_the_exit_code_is_1(silt: Silt, log: CleanedLog) -> None:
    log.after.flip(log.after.find("u"), 70)

    finished = silt("verify", "--now", str(log.now_ms))

    assert finished.exit_code == 1
    header, first, second, *_, empty, summary = finished.lines
    assert header.split() == [
        *("INVARIANT", "SEVERITY", "PARTITION", "FILE", "POSITION", "OFFSET", "WHAT"),
    ]
    assert first.split()[:6] == [
        *("I1", "violation", "orders-0", "00000000000000000033.log", "182", "36"),
    ]
    assert "header says CRC" in first
    assert second.split()[:3] == ["I7", "violation", "orders-0"]
    assert empty == ""
    assert summary.startswith("orders-0: 3 violations; 7 segments, 24 batches, ")


def test_a_warning_alone_is_no_failure(silt: Silt, log: CleanedLog) -> None:
    finished = silt("verify", "--deep", "--now", str(log.now_ms + 10_000))

    assert finished.exit_code == 0
    assert finished.lines[1].split()[:2] == ["I15", "warning"]
    assert finished.lines[-1].startswith("orders-0: ok, 1 warning; ")


def test_findings_as_json(silt: Silt, log: CleanedLog) -> None:
    log.after.forget_manifests()
    offset = log.after.find("u")
    log.after.flip(offset, 70)

    finished = silt(
        "verify", "orders", "--now", str(log.now_ms + 10_000), "--deep", "--output", "json"
    )

    assert (finished.exit_code, finished.err) == (1, "")
    document = finished.json
    assert document["ok"] is False
    (violation,) = document["violations"]
    assert violation["message"].startswith("header says CRC")
    del violation["message"]
    assert violation == {
        "invariant": "I1",
        "topic": "orders",
        "partition": 0,
        "file": "00000000000000000033.log",
        "position": 182,
        "offset": offset,
    }
    assert [warning["invariant"] for warning in document["warnings"]] == ["I15"]
    (partition,) = document["partitions"]
    assert partition == {
        "topic": "orders",
        "partition": 0,
        "ok": False,
        "segments": 7,
        "batches": 24,
        "records": 31,
        "bytes": 2151,
        "log_start_offset": 0,
        "first_dirty_offset": 37,
        "log_end_offset": 45,
    }


def test_only_deep_looks_into_records(silt: Silt, log: CleanedLog) -> None:
    log.after.forget_manifests()
    log.after.change_record(log.after.find("t"), key=b"u")

    assert silt("verify", "--now", str(log.now_ms)).exit_code == 0
    assert silt("verify", "--now", str(log.now_ms), "--deep").exit_code == 1


def test_against_a_copy_what_went_is_found(silt: Silt, log: CleanedLog) -> None:
    log.after.forget_manifests()
    arguments = ["verify", "--now", str(log.now_ms), "--against", str(log.before.log_dir)]
    assert silt(*arguments).exit_code == 0

    log.after.drop_record(log.after.find("d"))

    finished = silt(*arguments, "--output", "json")
    assert finished.exit_code == 1
    assert {v["invariant"] for v in finished.json["violations"]} == {"I6", "I10"}


def test_settings_that_no_topic_tells_are_given(silt: Silt, log: CleanedLog) -> None:
    """A directory of a stock Kafka does not say what its topics are set to."""
    (log.after.log_dir / "silt-topics.json").unlink()
    log.after.write_offset("log-start-offset-checkpoint", 5)
    arguments = ["verify", "--now", str(log.now_ms), "--against", str(log.before.log_dir)]

    assert silt(*arguments).exit_code == 0
    finished = silt(*arguments, "--config", "cleanup.policy=compact")
    assert finished.exit_code == 1
    assert finished.lines[1].split()[:2] == ["I5", "violation"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["nosuch"], 1, "topic nosuch does not exist"),
        (["--against", "nowhere"], 1, "nowhere does not exist"),
        (["--config", "retention=3"], 2, "unknown setting retention"),
        (["--config", "retention"], 2, "--config retention: write --config name=value"),
    ],
)
def test_what_cannot_be_verified_is_refused(
    silt: Silt, log: CleanedLog, arguments: list[str], exit_code: int, message: str
) -> None:
    finished = silt("verify", *arguments)

    assert (finished.exit_code, finished.out) == (exit_code, b"")
    assert finished.err.startswith(f"silt: error: {message}")


def test_a_partition_that_cannot_be_read_stops_no_other(
    silt: Silt, log: CleanedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    silt("topics", "create", "empty")
    read_file = FileSystem.read_file

    def refuse(fs: FileSystem, path: Path) -> bytes | None:
        if path.parent.name == "orders-0" and path.suffix == ".timeindex":
            raise LogDirOfflineError(path, "cannot read: Input/output error")
        return read_file(fs, path)

    monkeypatch.setattr(FileSystem, "read_file", refuse)

    finished = silt("verify", "--output", "json")

    assert finished.exit_code == 1
    assert finished.err.startswith("silt: error: orders-0: ")
    assert finished.err.count("\n") == 1
    assert finished.json["ok"] is False
    assert [p["topic"] for p in finished.json["partitions"]] == ["empty"]


def test_json_is_one_document(silt: Silt, log: CleanedLog) -> None:
    out = silt("verify", "--now", str(log.now_ms), "--output", "json").out

    assert json.loads(out)["ok"] is True
    assert out.count(b"\n") == 1
