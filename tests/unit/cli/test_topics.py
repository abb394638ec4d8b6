from pathlib import Path

import pytest

from tests.support.silt_command import Silt
from tests.unit.cli.conftest import Terminal


def test_a_created_topic_is_listed_and_described(silt: Silt, log_dir: Path) -> None:
    created = silt(
        "topics", "create", "orders", "--partitions", "2", "--config", "cleanup.policy=compact"
    )
    silt("produce", "orders", "-K:", "-p", "1", stdin=b"k:v\n")

    assert (created.exit_code, created.text, created.err) == (0, "Created topic orders.\n", "")
    assert silt("topics", "list").lines == [
        "TOPIC   PARTITIONS  CLEANUP POLICY",
        "orders           2  compact",
    ]
    head, columns, first, second = silt("topics", "describe", "orders").lines
    assert head.startswith("Topic: orders  TopicId: ")
    assert head.endswith("PartitionCount: 2  ReplicationFactor: 1  Configs: cleanup.policy=compact")
    assert " ".join(columns.split()) == (
        "PARTITION LOG START LAST STABLE LOG END SEGMENTS SIZE NEWEST RECORD LOG DIR"
    )
    assert first.split() == ["0", "0", "0", "0", "1", "0", "B", "-", str(log_dir)]
    assert second.split()[:7] == ["1", "0", "1", "1", "1", "70", "B"]


def test_topics_as_json(silt: Silt, log_dir: Path) -> None:
    created = silt(
        "topics", "create", "orders", "--config", "retention.ms=1000", "--output", "json"
    ).json
    silt("produce", "orders", stdin=b"v\n")

    assert created == {
        "topic": "orders",
        "topic_id": created["topic_id"],
        "partition_count": 1,
        "replication_factor": 1,
        "config": {"retention.ms": "1000"},
    }
    assert silt("topics", "list", "--output", "json").json == {"topics": [created]}
    (described,) = silt("topics", "describe", "--output", "json").json["topics"]
    assert described.items() >= created.items()
    assert described["effective_config"]["retention.ms"] == "1000"
    assert described["effective_config"]["cleanup.policy"] == "delete"
    (partition,) = described["partitions"]
    assert partition.pop("max_timestamp_ms") > 0
    assert partition == {
        "partition": 0,
        "log_start_offset": 0,
        "last_stable_offset": 1,
        "high_watermark": 1,
        "log_end_offset": 1,
        "segment_count": 1,
        "size_bytes": 69,
        "log_dir": str(log_dir),
    }


def test_the_topic_may_also_be_named_as_to_tools_of_kafka(silt: Silt) -> None:
    assert silt("topics", "create", "--topic", "orders").exit_code == 0
    assert silt("topics", "describe", "--topic", "orders").exit_code == 0
    assert silt("topics", "delete", "--topic", "orders").exit_code == 0


def test_a_topic_is_named_exactly_once(silt: Silt) -> None:
    for arguments in (["create"], ["delete", "a", "--topic", "b"]):
        finished = silt("topics", *arguments)

        assert finished.exit_code == 2
        assert finished.err == "silt: error: name one topic: TOPIC or --topic TOPIC\n"


def test_a_topic_that_exists_is_an_error_unless_told_otherwise(silt: Silt) -> None:
    silt("topics", "create", "orders")

    again = silt("topics", "create", "orders")
    tolerated = silt("topics", "create", "orders", "--if-not-exists")

    assert (again.exit_code, again.err) == (1, "silt: error: topic orders already exists\n")
    assert (tolerated.exit_code, tolerated.err) == (0, "")


def test_settings_and_partitions_are_altered(silt: Silt) -> None:
    silt("topics", "create", "orders", "--config", "retention.ms=1000")

    altered = silt(
        *("topics", "alter", "orders", "--partitions", "3", "--config", "segment.ms=5"),
        *("--delete-config", "retention.ms"),
    )

    assert (altered.exit_code, altered.text) == (0, "Altered topic orders.\n")
    (topic,) = silt("topics", "list", "--output", "json").json["topics"]
    assert topic["partition_count"] == 3
    assert topic["config"] == {"segment.ms": "5"}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        ([], 2, "nothing to alter: give --partitions, --config or --delete-config"),
        (["--partitions", "1"], 2, "topic orders has 2 partitions already, 1 is not more"),
        (["--config", "retention.ms=x"], 2, "retention.ms must be a 64-bit integer"),
        (["--delete-config", "retention.m"], 2, "did you mean retention.ms?"),
    ],
)
def test_an_impossible_change_is_refused(
    silt: Silt, arguments: list[str], exit_code: int, message: str
) -> None:
    silt("topics", "create", "orders", "--partitions", "2")

    finished = silt("topics", "alter", "orders", *arguments)

    assert finished.exit_code == exit_code
    assert message in finished.err


def test_a_deleted_topic_is_gone(silt: Silt) -> None:
    silt("topics", "create", "orders")

    deleted = silt("topics", "delete", "orders", "--yes")

    assert (deleted.exit_code, deleted.text) == (0, "Deleted topic orders.\n")
    assert silt("topics", "list", "--output", "json").json == {"topics": []}
    assert silt("topics", "delete", "orders").err == "silt: error: topic orders does not exist\n"


@pytest.mark.parametrize(
    ("answer", "exit_code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 1), (b"", 130, 1)]
)
def test_on_a_terminal_a_deletion_is_asked_for(
    silt: Silt, answer: bytes, exit_code: int, left: int
) -> None:
    silt("topics", "create", "orders")

    finished = silt("topics", "delete", "orders", stdin=answer, stdin_type=Terminal)

    assert finished.exit_code == exit_code
    assert "Delete topic orders with all of its records?" in finished.err
    assert len(silt("topics", "list", "--output", "json").json["topics"]) == left


@pytest.mark.parametrize("command", ["describe", "alter", "delete"])
def test_a_topic_that_is_not_there_is_an_error_unless_told_otherwise(
    silt: Silt, command: str
) -> None:
    silt("topics", "create", "orders")
    change = ["--partitions", "2"] if command == "alter" else []

    refused = silt("topics", command, "nope", *change)
    tolerated = silt("topics", command, "nope", *change, "--if-exists")

    assert (refused.exit_code, refused.err) == (1, "silt: error: topic nope does not exist\n")
    assert (tolerated.exit_code, tolerated.out, tolerated.err) == (0, b"", "")


def test_topics_of_brokers_can_be_left_out(silt: Silt) -> None:
    silt("topics", "create", "orders")
    silt("topics", "create", "__consumer_offsets")

    assert len(silt("topics", "list").lines) == 3
    assert len(silt("topics", "list", "--exclude-internal").lines) == 2
    assert "Topic: __" not in silt("topics", "describe", "--exclude-internal").text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replication-factor", "3"], "--replication-factor 3: a log directory holds one copy"),
        (["--replica-assignment", "0:1,1:0"], "give one broker id per partition"),
        (["--replica-assignment", "0", "--partitions", "1"], "excludes --partitions"),
        (["--partitions", "0"], "a topic needs at least 1 partition, got 0"),
        (["--config", "cleanup.polcy=compact"], "did you mean cleanup.policy?"),
        (["--config", "min.cleanable.dirty.ratio=1.5"], "must be 0 to 1, got 1.5"),
        (["--config", "retention.ms"], "--config retention.ms: write --config name=value"),
    ],
)
def test_an_impossible_topic_is_refused(silt: Silt, arguments: list[str], message: str) -> None:
    finished = silt("topics", "create", "orders", *arguments)

    assert finished.exit_code == 2
    assert message in finished.err


def test_replicas_can_be_assigned_to_the_one_broker_there_is(silt: Silt) -> None:
    created = silt("topics", "create", "t", "--replica-assignment", "0,0,0", "--output", "json")

    assert created.json["partition_count"] == 3


@pytest.mark.parametrize("name", ["a b", "..", "ä", "t" * 250])
def test_an_illegal_name_is_refused(silt: Silt, name: str) -> None:
    finished = silt("topics", "create", name)

    assert finished.exit_code == 2
    assert finished.err.startswith(f"silt: error: illegal topic name '{name}'")


def test_partitions_are_spread_over_several_directories(silt: Silt, tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    options = [option for path in directories for option in ("--log-dir", str(path))]

    silt("topics", "create", "orders", "--partitions", "4", *options)

    (topic,) = silt("topics", "describe", *options, "--output", "json").json["topics"]
    places = [partition["log_dir"] for partition in topic["partitions"]]
    assert sorted(places) == sorted([str(path) for path in directories] * 2)


def test_settings_of_one_run_are_shown_as_the_ones_that_act(silt: Silt) -> None:
    silt("topics", "create", "orders")

    listed = silt("topics", "list", "--config", "cleanup.policy=compact")

    assert listed.lines[1].split() == ["orders", "1", "compact"]
