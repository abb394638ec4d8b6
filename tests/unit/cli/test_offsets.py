from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import START_MS, ManualClock
from tests.support.silt_command import Silt


@pytest.fixture(autouse=True)
def _records(silt: Silt, log_dir: Path) -> None:
    """Partition 0 of `orders` holds 3 records, the second the newest; the others are empty."""
    with LogManager([log_dir], clock=ManualClock(START_MS + 60_000)) as manager:
        manager.create_topic("orders", 3)
        manager.create_topic("payments", 1)
        manager.create_topic("__consumer_offsets", 1)
        manager.get_log(TopicPartition("orders", 0)).append(
            build_batch(
                Record(i, START_MS + delay_ms, None, b"v")
                for i, delay_ms in enumerate((0, 2000, 1000))
            )
        )


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["orders"], ["orders:0:3", "orders:1:0", "orders:2:0"]),
        (["--topic", "orders"], ["orders:0:3", "orders:1:0", "orders:2:0"]),
        (["--topic", "pay.*"], ["payments:0:0"]),
        (["orders", "--partitions", "0,2"], ["orders:0:3", "orders:2:0"]),
        (["--topic-partitions", "orders:1"], ["orders:1:0"]),
        (["--topic-partitions", "orders:0-2"], ["orders:0:3", "orders:1:0"]),
        (["--topic-partitions", "orders:1-"], ["orders:1:0", "orders:2:0"]),
        (["--topic-partitions", "orders:-1"], ["orders:0:3"]),
        (["--topic-partitions", "orders:2,payments"], ["orders:2:0", "payments:0:0"]),
        (["--topic-partitions", ":2"], ["orders:2:0"]),
        (["orders", "--time", "latest", "--partitions", "0"], ["orders:0:3"]),
        (["orders", "--time", "-1", "--partitions", "0"], ["orders:0:3"]),
        (["orders", "--time", "earliest", "--partitions", "0"], ["orders:0:0"]),
        (["orders", "--time", "-2", "--partitions", "0"], ["orders:0:0"]),
        (["orders", "--time", "max-timestamp"], ["orders:0:1"]),
        (["orders", "--time", "-3"], ["orders:0:1"]),
        (["orders", "--time", str(START_MS + 1)], ["orders:0:1"]),
        (["orders", "--time", str(START_MS + 2001)], []),
        (
            ["--exclude-internal-topics"],
            ["orders:0:3", "orders:1:0", "orders:2:0", "payments:0:0"],
        ),
    ],
)
def test_offsets_are_printed_as_by_kafkas_tool(
    silt: Silt, options: list[str], lines: list[str]
) -> None:
    finished = silt("offsets", *options)

    assert (finished.exit_code, finished.err) == (0, "")
    assert finished.lines == lines


def test_all_topics_are_asked_if_none_is_named(silt: Silt) -> None:
    assert silt("offsets").lines == [
        "__consumer_offsets:0:0",
        "orders:0:3",
        "orders:1:0",
        "orders:2:0",
        "payments:0:0",
    ]


def test_offsets_as_json(silt: Silt) -> None:
    finished = silt("offsets", "orders", "--time", "max-timestamp", "--output", "json")

    assert finished.json == {
        "offsets": [
            {"topic": "orders", "partition": 0, "offset": 1, "timestamp_ms": START_MS + 2000}
        ]
    }


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (["nope"], 1, "topic nope does not exist"),
        (["orders", "--partitions", "9"], 1, "topic orders has no partition 9"),
        (["--topic-partitions", "orders:9"], 1, "topic orders has no partition 9"),
        (["--topic-partitions", "orders:x"], 2, "--topic-partitions orders:x: write TOPIC"),
        (["--topic-partitions", "orders:-"], 2, "--topic-partitions orders:-: write TOPIC"),
        (["--topic", "nope.*"], 2, "no partition matches nope.*"),
        (["--topic", "("], 2, "( is not a regular expression"),
        (["a", "--topic", "b"], 2, "TOPIC and --topic exclude each other"),
        (["a", "--topic-partitions", "b"], 2, "--topic-partitions excludes --topic and"),
        (["--partitions", "1,x"], 2, "--partitions 1,x: write numbers"),
        (["--time", "noon"], 2, "--time noon: use latest (-1), earliest (-2)"),
        (["--time", "-4"], 2, "--time -4: use latest (-1), earliest (-2)"),
    ],
)
def test_what_has_no_offset_is_refused(
    silt: Silt, options: list[str], exit_code: int, message: str
) -> None:
    finished = silt("offsets", *options)

    assert finished.exit_code == exit_code
    assert finished.err.startswith(f"silt: error: {message}")
