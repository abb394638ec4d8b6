"""`silt ... --bootstrap-server`: the same answers as on the broker's directory."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import ServedBroker
from tests.support.silt_command import Finished, Silt, make_silt

RATIO = "min.cleanable.dirty.ratio=0.25"  # as the broker has it for all topics


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    directory = tmp_path_factory.mktemp("served") / "logs"
    settings = {"log.cleaner.enable": "false", "log.cleaner.min.cleanable.ratio": "0.25"}
    with ServedBroker(directory, settings) as made:
        yield made.start()


@pytest.fixture
def silt(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Silt:
    return make_silt(monkeypatch, capsysbinary)


@pytest.fixture
def remote(silt: Silt, broker: ServedBroker) -> Silt:
    def call(*arguments: str, stdin: bytes = b"") -> Finished:
        return silt(*arguments, "--bootstrap-server", broker.bootstrap, stdin=stdin)

    return call


def test_topics_are_made_changed_and_deleted_through_a_broker(remote: Silt) -> None:
    made = remote("topics", "create", "life", "--partitions", "2", "--output", "json")
    again = remote("topics", "create", "life")
    kept = remote("topics", "create", "life", "--if-not-exists")
    wrong = remote("topics", "create", "other", "--config", "retention.m=1")
    altered = remote(
        *("topics", "alter", "life", "--partitions", "3", "--config", "retention.ms=5"),
        *("--output", "json"),
    )
    fewer = remote("topics", "alter", "life", "--partitions", "1")
    reset = remote("topics", "alter", "life", "--delete-config", "retention.ms", "--output", "json")
    deleted = remote("topics", "delete", "life", "--yes")
    gone = remote("topics", "delete", "life", "--yes")
    forgiven = remote("topics", "delete", "life", "--yes", "--if-exists")

    assert made.json["partition_count"] == 2
    assert (again.exit_code, again.err) == (1, "silt: error: topic life already exists\n")
    assert (kept.exit_code, kept.text) == (0, "Topic life already exists.\n")
    assert wrong.exit_code == 2
    assert "unknown setting retention.m: did you mean retention.ms?" in wrong.err
    assert altered.json == made.json | {"partition_count": 3, "config": {"retention.ms": "5"}}
    assert fewer.exit_code == 2
    assert "has 3 partitions, 1 is not more" in fewer.err
    assert reset.json["config"] == {}
    assert deleted.text == "Deleted topic life.\n"
    assert (gone.exit_code, gone.err) == (1, "silt: error: topic life does not exist\n")
    assert forgiven.exit_code == 0


def test_records_go_in_and_come_out_through_a_broker(remote: Silt) -> None:
    remote("topics", "create", "flow", "--config", "cleanup.policy=compact")

    keyless = remote("produce", "flow", stdin=b"no key\n")
    sent = remote("produce", "flow", "-K:", "-Z", "--output", "json", stdin=b"a:1\nb:2\nb:\n")
    found = remote("consume", "flow", "-e", "-K:")
    tail = remote("consume", "flow", "-e", "-J", "-o", "-1")
    later = remote("consume", "flow", "-e", "-o", "9")
    missing = remote("consume", "nothing", "-e")
    nowhere = remote("produce", "flow", "-p", "7", stdin=b"x\n")

    assert keyless.exit_code == 1
    assert "record 1 has no key: topic flow is compacted" in keyless.err
    (part,) = sent.json["partitions"]
    assert (part["first_offset"], part["last_offset"], part["record_count"]) == (0, 2, 3)
    assert found.text == "a:1\nb:2\nb:null\n"
    assert json.loads(tail.out)["offset"] == 2
    assert (later.text, later.err) == ("", "flow-0 has no offset 9: starting at 3\n")
    assert (missing.exit_code, missing.err) == (1, "silt: error: topic nothing does not exist\n")
    assert (nowhere.exit_code, nowhere.err) == (1, "silt: error: topic flow has no partition 7\n")


@pytest.fixture
def filled(remote: Silt) -> str:
    made = remote(
        *("topics", "create", "table", "--config", "cleanup.policy=compact"),
        *("--config", "segment.bytes=150"),
    )
    for number in range(0 if made.exit_code else 4):
        remote("produce", "table", "-K:", stdin=b"a:%d\n-b:%d\nc:\n" % (number, number))
    return "table"


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "table", "--config", RATIO],
        ["plan", "table", "--ignore-ratio", "--now", "1", "--force", "--config", RATIO],
        ["verify", "table", "--deep"],
        ["verify", "nothing", "--output", "json"],
        ["history", "table"],
        ["get", "table", "a", "--output", "json"],
        ["get", "table", "0x2d62", "--key-format", "hex"],
        ["get", "table", "never", "--output", "json"],
        ["scan", "table", "--view", "changes", "--since", "3"],
        ["scan", "table", "--output", "json", "--include-tombstones"],
        ["scan", "table", "--view", "latest", "--since", "3"],
        ["count", "table"],
        ["topics", "list"],
        ["topics", "describe", "table", "--output", "json", "--config", RATIO],
    ],
    ids=" ".join,
)
def test_what_a_broker_answers_is_what_its_directory_holds(
    silt: Silt, remote: Silt, broker: ServedBroker, arguments: list[str]
) -> None:
    through_broker = remote(*arguments)

    on_directory = silt(*arguments, "--log-dir", str(broker.directory))

    assert through_broker == on_directory


@pytest.mark.usefixtures("filled")
def test_a_plan_goes_by_the_settings_of_the_broker(remote: Silt) -> None:
    plan = remote("plan", "table", "--output", "json")

    (verdict,) = plan.json
    assert "0.25" in verdict["explanation"]


def test_who_cannot_be_reached_and_what_makes_no_sense_is_said(
    silt: Silt, remote: Silt, tmp_path: Path
) -> None:
    nobody = silt("plan", "--bootstrap-server", "127.0.0.1:1", "--output", "json")
    no_port = silt("scan", "t", "--bootstrap-server", "localhost")
    both = remote("plan", "--log-dir", str(tmp_path))
    master = remote("compact", "--master", "local[1]")
    unknown = remote("compact", "nothing")
    compacted = remote("compact", "--plan", str(tmp_path / "none.json"), "--force")

    assert nobody.exit_code == 1
    first, second = nobody.err.splitlines()
    assert first == "silt: error: cannot reach 127.0.0.1:1: connection refused"
    assert json.loads(second)["error"]["code"] == "unreachable"
    assert (no_port.exit_code, no_port.err) == (
        2,
        'silt: error: "localhost" has no port: write HOST:PORT\n',
    )
    assert both.exit_code == 2
    assert "--log-dir and --bootstrap-server exclude each other" in both.err
    assert master.exit_code == 2
    assert "--master and --bootstrap-server exclude each other" in master.err
    assert (unknown.exit_code, unknown.err) == (1, "silt: error: topic nothing does not exist\n")
    assert "--plan and --force exclude each other" in compacted.err
