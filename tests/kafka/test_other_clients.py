"""kcat and kafkajs, unmodified: on our broker, and on a real Kafka, which must do the same."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.programs import run_kafkajs, run_kcat
from tests.support.serving import ServedBroker

COUNT = 60


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("served") / "logs") as broker:
        yield broker.start()


@pytest.fixture(params=["ours", "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where the broker of this test is."""
    name = {"ours": "ours", "kafka": "kafka_broker"}[request.param]
    broker: ServedBroker | KafkaBroker = request.getfixturevalue(name)
    return broker.bootstrap


def kcat_json(bootstrap: str, *arguments: str) -> list[dict[str, Any]]:
    output = run_kcat(bootstrap, "-J", *arguments)
    return [json.loads(line) for line in output.splitlines()]


def create(bootstrap: str, topic: str) -> str:
    assert run_kafkajs(bootstrap, "create", topic=topic) is True
    return topic


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_kcat_writes_it_reads(bootstrap: str, codec: str) -> None:
    topic = create(bootstrap, f"kcat-{codec}")
    lines = "".join(f"k{number}:value {number}\n" for number in range(COUNT))

    options = ("-t", topic, "-p", "1")
    producing = ("-P", *options, "-K", ":", "-z", codec, "-H", "h=x", "-X", "acks=all")
    run_kcat(bootstrap, *producing, stdin=lines.encode())

    found = kcat_json(bootstrap, "-C", *options, "-o", "beginning", "-e")
    assert [record["offset"] for record in found] == list(range(COUNT))
    assert [(record["key"], record["payload"]) for record in found] == [
        (f"k{number}", f"value {number}") for number in range(COUNT)
    ]
    assert all(record["headers"] == ["h", "x"] for record in found)


def test_kcat_reads_from_where_it_is_told(bootstrap: str) -> None:
    topic = create(bootstrap, "kcat-from")
    run_kafkajs(bootstrap, "produce", topic=topic, count=COUNT, codec="None", acks=-1)
    reading = ("-C", "-t", topic, "-p", "0", "-e", "-f", "%o ")

    last = run_kcat(bootstrap, *reading, "-o", "-3")
    counted = run_kcat(bootstrap, *reading, "-o", "5", "-c", "2")
    by_time = run_kcat(bootstrap, *reading, "-o", "s@1050", "-o", "e@1056")
    ends = run_kcat(bootstrap, *reading, "-o", "end")

    assert last.split() == [b"27", b"28", b"29"]
    assert counted.split() == [b"5", b"6"]
    assert by_time.split() == [b"25", b"26", b"27"]
    assert ends == b""


def test_kcat_writes_each_record_once_and_tombstones(bootstrap: str) -> None:
    topic = create(bootstrap, "kcat-once")
    options = ("-t", topic, "-p", "0")

    producing = ("-P", *options, "-K", ":", "-Z", "-X", "enable.idempotence=true")
    run_kcat(bootstrap, *producing, stdin=b"a:1\nb:2\na:\n")

    found = kcat_json(bootstrap, "-C", *options, "-o", "beginning", "-e")
    assert [(r["key"], r["payload"]) for r in found] == [("a", "1"), ("b", "2"), ("a", None)]


def test_kcat_shows_metadata_and_finds_offsets_by_time(bootstrap: str) -> None:
    topic = create(bootstrap, "kcat-metadata")
    run_kafkajs(bootstrap, "produce", topic=topic, count=COUNT, codec="None", acks=-1)

    (metadata,) = kcat_json(bootstrap, "-L", "-t", topic)
    asked = ("-t", f"{topic}:0:1021", "-t", f"{topic}:1:-1")
    offsets = run_kcat(bootstrap, "-Q", *asked).decode()

    assert [broker["name"] for broker in metadata["brokers"]] == [bootstrap]
    (described,) = metadata["topics"]
    assert described["topic"] == topic
    assert sorted(part["partition"] for part in described["partitions"]) == [0, 1]
    assert sorted(offsets.split("\n")) == ["", f"{topic} [0] offset 11", f"{topic} [1] offset 30"]


def test_kcat_reads_as_a_member_of_a_group(bootstrap: str) -> None:
    topic = create(bootstrap, "kcat-group")
    run_kafkajs(bootstrap, "produce", topic=topic, count=COUNT, codec="None", acks=-1)

    reading = ("-G", "kcat-readers", topic, "-c", str(COUNT), "-f", "%k ")
    output = run_kcat(bootstrap, "-X", "auto.offset.reset=earliest", *reading)

    assert sorted(map(int, output.split())) == list(range(COUNT))


def test_kafkajs_reads_as_a_member_of_a_group(bootstrap: str) -> None:
    topic = create(bootstrap, "kafkajs-group")
    run_kafkajs(bootstrap, "produce", topic=topic, count=COUNT, codec="GZIP", acks=-1)

    result = run_kafkajs(bootstrap, "consume", topic=topic, group="kafkajs-readers", count=COUNT)

    assert sorted(int(key) for _, _, key in result["found"]) == list(range(COUNT))
    ((committed,),) = ([topic["partitions"]] for topic in result["committed"])
    assert {part["partition"]: part["offset"] for part in committed} == {0: "30", 1: "30"}


@pytest.mark.parametrize(
    ("codec", "acks", "idempotent"),
    [("None", -1, False), ("GZIP", 1, False), ("GZIP", -1, True)],
)
def test_what_kafkajs_writes_it_reads(
    bootstrap: str, codec: str, acks: int, idempotent: bool
) -> None:
    topic = create(bootstrap, f"kafkajs-{codec}-{acks}-{idempotent}")

    written = run_kafkajs(
        bootstrap,
        "produce",
        topic=topic,
        count=COUNT,
        codec=codec,
        acks=acks,
        idempotent=idempotent,
    )

    assert {(part["partition"], part["errorCode"]) for part in written} == {(0, 0), (1, 0)}
    assert {part["baseOffset"] for part in written} == {"0", str(COUNT // 4)}
    for partition in (0, 1):
        numbers = range(partition, COUNT, 2)
        found = run_kafkajs(bootstrap, "fetch", topic=topic, partition=partition, offset=0)
        assert found == [
            {
                "offset": offset,
                "timestamp": 1000 + number,
                "key": str(number),
                "value": None if number % 10 == 9 else f"value {number}",
                "headers": {"h": "x"},
            }
            for offset, number in enumerate(numbers)
        ]


def test_kafkajs_finds_offsets_and_deletes_records(bootstrap: str) -> None:
    topic = create(bootstrap, "kafkajs-offsets")
    run_kafkajs(bootstrap, "produce", topic=topic, count=COUNT, codec="None", acks=-1)

    found = run_kafkajs(bootstrap, "offsets", topic=topic, timestamp=1021, deleteTo=7)

    by_time = {part["partition"]: part["offset"] for part in found["byTime"]}
    ends = {part["partition"]: (part["low"], part["high"]) for part in found["ends"]}
    assert by_time == {0: "11", 1: "10"}
    assert ends == {0: ("7", "30"), 1: ("0", "30")}


def test_kafkajs_administers(bootstrap: str) -> None:
    result = run_kafkajs(bootstrap, "administer", topic="kafkajs-admin")

    assert result == {
        "created": True,
        "policy": "compact",
        "isListed": True,
        "partitions": [0, 1, 2],
        "ports": [int(bootstrap.rsplit(":", 1)[1])],
        "isListedAfterwards": False,
    }
