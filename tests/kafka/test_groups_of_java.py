"""Kafka's own consumers and group tools, unmodified, on our broker."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import QUICK_GROUPS
from tests.clients.test_members import watch_members
from tests.kafka import tools
from tests.kafka.harness import Harness
from tests.kafka.jvm import JavaProcess, java_command
from tests.kafka.log_ops import LogOps
from tests.kafka.test_tools_on_ours import SharedTools, at, create
from tests.kafka.tools import KafkaTools
from tests.support.serving import ServedBroker

GROUPS_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("served") / "logs", QUICK_GROUPS) as broker:
        yield broker.start()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker that soon gives up members of the consumer protocol, too."""
    settings = {
        **QUICK_GROUPS,
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "2000",
    }
    with ServedBroker(tmp_path / "logs", settings) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def admin_tools(log_ops: LogOps) -> SharedTools:
    return SharedTools(log_ops)


def groups(admin_tools: SharedTools, served: ServedBroker, *arguments: str) -> str:
    return admin_tools.run(GROUPS_COMMAND, *at(served), *arguments)


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_console_consumer_goes_on_where_its_group_was(
    kafka_tools: KafkaTools, admin_tools: SharedTools, served: ServedBroker, protocol: str
) -> None:
    topic = group = f"j-{protocol}"
    create(admin_tools, served, topic, "--partitions", "1")
    kafka_tools.run(tools.CONSOLE_PRODUCER, *at(served), "--topic", topic, stdin="a\nb\nc\nd\ne\n")

    def consume(count: int) -> list[str]:
        output = kafka_tools.run(
            tools.CONSOLE_CONSUMER,
            *at(served),
            *("--topic", topic, "--group", group, "--from-beginning"),
            *("--command-property", f"group.protocol={protocol}"),
            *("--command-property", "max.poll.records=1"),
            *("--max-messages", str(count), "--timeout-ms", "120000"),
        )
        return output.split()

    assert consume(2) == ["a", "b"]
    assert consume(3) == ["c", "d", "e"]

    described = groups(admin_tools, served, "--describe", "--group", group)
    (row,) = (r for r in rows(described) if r[:2] == [group, topic])
    assert row[2:6] == ["0", "5", "5", "0"]  # partition, offset, log end, lag
    listed = groups(admin_tools, served, "--list", "--state")
    assert [group, "Empty"] in [[row[0], row[-1]] for row in rows(listed)]


class JavaMember:
    """Kafka's console consumer in a process of its own."""

    def __init__(self, harness: Harness, served: ServedBroker, topic: str, protocol: str) -> None:
        properties = {"group.protocol": protocol}
        if protocol == "classic":  # In the other one the broker says how long a session is.
            properties |= {"session.timeout.ms": "2000", "heartbeat.interval.ms": "200"}
        arguments = [f"--command-property={name}={value}" for name, value in properties.items()]
        self._process = JavaProcess(
            java_command(
                harness.classpath,
                tools.CONSOLE_CONSUMER,
                *at(served),
                *("--topic", topic, "--group", topic),
                *arguments,
            )
        )

    def terminate(self) -> None:
        self._process.terminate(120)

    def kill(self) -> None:
        self._process.kill()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_members_come_go_and_die(
    harness: Harness, admin_tools: SharedTools, impatient: ServedBroker, protocol: str
) -> None:
    topic = f"j-members-{protocol}"
    create(admin_tools, impatient, topic, "--partitions", "2")

    watch_members(
        impatient.bootstrap, topic, lambda: JavaMember(harness, impatient, topic, protocol)
    )


def test_offsets_are_reset_and_groups_deleted(
    kafka_tools: KafkaTools, admin_tools: SharedTools, served: ServedBroker, tmp_path: Path
) -> None:
    topic, group = "j-reset", "j-reset-group"
    create(admin_tools, served, topic, "--partitions", "1")
    kafka_tools.produce_performance(served.bootstrap, topic, record_count=1000, record_bytes=10)
    report = kafka_tools.run(
        tools.CONSUMER_PERFORMANCE,
        *at(served),
        *("--topic", topic, "--num-records", "1000", "--group", group),
        *("--timeout", "120000"),
    )
    figures = report.splitlines()[-1].split(",")
    assert float(figures[4]) == 1000

    reset = groups(
        admin_tools,
        served,
        *("--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "7", "--execute"),
    )
    described = groups(admin_tools, served, "--describe", "--group", group)
    deleted_offsets = groups(
        admin_tools, served, "--group", group, "--topic", f"{topic}:0", "--delete-offsets"
    )
    left = groups(admin_tools, served, "--describe", "--group", group)
    deleted = groups(admin_tools, served, "--delete", "--group", group)
    listed = groups(admin_tools, served, "--list")

    assert re.search(rf"{topic}\s+0\s+7", reset), reset
    assert [r[3] for r in rows(described) if r[1:2] == [topic]] == ["7"]
    assert "Successful" in deleted_offsets
    assert [r[2] for r in rows(left) if r[1:2] == [topic]] == []
    assert "successful" in deleted
    assert group not in listed.split()
