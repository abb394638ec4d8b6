"""Kafka's own Java clients and command line tools, unmodified, on our broker."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka import tools
from tests.kafka.log_ops import LogOps
from tests.kafka.tools import KafkaTools
from tests.support.serving import ServedBroker

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
LOG_DIRS_COMMAND = "org.apache.kafka.tools.LogDirsCommand"
API_VERSIONS_COMMAND = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("served") / "logs") as broker:
        yield broker.start()


class SharedTools:
    """Administration in one process: each tool in its own would take longer to start than to run.

    What produces and consumes runs as users run it.
    """

    def __init__(self, log_ops: LogOps) -> None:
        self._log_ops = log_ops

    def run(self, main_class: str, *arguments: str) -> str:
        result = self._log_ops.result("tool", **{"class": main_class, "args": list(arguments)})
        # Some leave from within their own `try`, and then take the harness's way to stop them for
        # a failure; a real one has words of its own before that.
        is_caught_leaving = result["stderr"].startswith("null\nsiltstone.harness.Tool$Exited")
        assert result["status"] == 0 or is_caught_leaving, result
        return str(result["stdout"])


@pytest.fixture(scope="module")
def admin_tools(log_ops: LogOps) -> SharedTools:
    return SharedTools(log_ops)


def at(served: ServedBroker) -> tuple[str, str]:
    return ("--bootstrap-server", served.bootstrap)


def create(admin_tools: SharedTools, served: ServedBroker, topic: str, *options: str) -> None:
    admin_tools.run(tools.TOPIC_COMMAND, *at(served), "--create", "--topic", topic, *options)


def test_topics_are_created_described_altered_and_deleted(
    admin_tools: SharedTools, served: ServedBroker
) -> None:
    create(admin_tools, served, "j-topics", "--partitions", "2", "--config", "retention.ms=9")
    described = admin_tools.run(tools.TOPIC_COMMAND, *at(served), "--describe")
    admin_tools.run(
        tools.TOPIC_COMMAND, *at(served), "--alter", "--topic", "j-topics", "--partitions", "3"
    )
    altered = admin_tools.run(tools.TOPIC_COMMAND, *at(served), "--describe")
    admin_tools.run(tools.TOPIC_COMMAND, *at(served), "--delete", "--topic", "j-topics")
    left = admin_tools.run(tools.TOPIC_COMMAND, *at(served), "--list")

    assert "PartitionCount: 2" in described
    assert "retention.ms=9" in described
    assert "Partition: 1\tLeader: 0\tReplicas: 0\tIsr: 0" in described
    assert "PartitionCount: 3" in altered
    assert "j-topics" not in left.split()


def test_settings_are_changed_and_shown(admin_tools: SharedTools, served: ServedBroker) -> None:
    create(admin_tools, served, "j-configs")
    of_topic = (*at(served), "--entity-type", "topics", "--entity-name", "j-configs")
    of_broker = (*at(served), "--entity-type", "brokers", "--entity-name", "0")
    admin_tools.run(CONFIG_COMMAND, *of_topic, "--alter", "--add-config", "cleanup.policy=compact")
    admin_tools.run(
        CONFIG_COMMAND, *of_broker, "--alter", "--add-config", "log.cleaner.backoff.ms=16000"
    )

    topic = admin_tools.run(CONFIG_COMMAND, *of_topic, "--describe")
    broker = admin_tools.run(CONFIG_COMMAND, *of_broker, "--describe")

    assert "cleanup.policy=compact" in topic
    assert "log.cleaner.backoff.ms=16000" in broker
    assert "DEFAULT_CONFIG:log.cleaner.backoff.ms=15000" in broker


def test_what_the_console_producer_writes_the_console_consumer_reads(
    kafka_tools: KafkaTools, admin_tools: SharedTools, served: ServedBroker
) -> None:
    create(admin_tools, served, "j-console")
    kafka_tools.run(
        tools.CONSOLE_PRODUCER,
        *at(served),
        *("--topic", "j-console", "--reader-property", "parse.key=true"),
        *("--reader-property", "key.separator=:", "--compression-codec", "zstd"),
        stdin="a:1\nb:2\nc:3\n",
    )

    output = kafka_tools.run(
        tools.CONSOLE_CONSUMER,
        *at(served),
        *("--topic", "j-console", "--partition", "0", "--offset", "earliest"),
        *(
            "--max-messages",
            "3",
            "--formatter-property",
            "print.key=true",
            "--timeout-ms",
            "120000",
        ),
    )

    assert output.splitlines() == ["a\t1", "b\t2", "c\t3"]


def test_records_are_counted_and_deleted(
    kafka_tools: KafkaTools, admin_tools: SharedTools, served: ServedBroker, tmp_path: Path
) -> None:
    create(admin_tools, served, "j-performance", "--partitions", "1")
    report = kafka_tools.produce_performance(
        served.bootstrap,
        "j-performance",
        record_count=5_000,
        record_bytes=200,
        properties=["acks=all", "compression.type=lz4"],
    )
    assert re.search(r"^5000 records sent", report, re.MULTILINE), report
    assert kafka_tools.get_offsets(served.bootstrap, "j-performance") == {0: 5_000}

    wanted = {"partitions": [{"topic": "j-performance", "partition": 0, "offset": 1_000}]}
    (tmp_path / "offsets.json").write_text(json.dumps({**wanted, "version": 1}))
    deleted = admin_tools.run(
        tools.DELETE_RECORDS, *at(served), "--offset-json-file", str(tmp_path / "offsets.json")
    )

    assert "low_watermark: 1000" in deleted
    earliest = kafka_tools.get_offsets(served.bootstrap, "j-performance", time="earliest")
    assert earliest == {0: 1_000}


def test_log_directories_are_described(admin_tools: SharedTools, served: ServedBroker) -> None:
    create(admin_tools, served, "j-dirs")

    output = admin_tools.run(LOG_DIRS_COMMAND, *at(served), "--describe", "--topic-list", "j-dirs")

    document = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    (directory,) = document["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert [p["partition"] for p in directory["partitions"]] == ["j-dirs-0"]


def test_the_verifiable_producer_has_every_record_acknowledged(
    kafka_tools: KafkaTools, admin_tools: SharedTools, served: ServedBroker
) -> None:
    create(admin_tools, served, "j-verifiable")

    output = kafka_tools.run(
        VERIFIABLE_PRODUCER,
        *at(served),
        *("--topic", "j-verifiable", "--max-messages", "500", "--acks", "-1"),
    )

    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    (figures,) = (event for event in events if event["name"] == "tool_data")
    assert figures["acked"] == 500


def test_the_broker_says_what_it_serves(admin_tools: SharedTools, served: ServedBroker) -> None:
    versions = admin_tools.run(API_VERSIONS_COMMAND, *at(served))
    cluster = admin_tools.run(CLUSTER_TOOL, "cluster-id", *at(served))

    assert "Produce(0): 3 to 13" in versions
    assert "Fetch(1): 4 to 18" in versions
    assert re.search(r"^Cluster ID: \S{22}$", cluster, re.MULTILINE), cluster
