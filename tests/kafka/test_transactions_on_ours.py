"""Kafka's Java producer and its transactions tool on our broker; our state as Kafka's own bytes."""

import re
from collections.abc import Iterator

import pytest

from siltstone.coordinator.state_topic import TRANSACTION_STATE
from siltstone.coordinator.transaction.records import decode_key, decode_value, encode_value
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.records.record import Record
from tests.kafka import tools
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import Harness, ProducerScript
from tests.kafka.log_ops import LogOps
from tests.kafka.states import NewRecord
from tests.kafka.test_tools_on_ours import SharedTools, at, create
from tests.kafka.tools import KafkaTools
from tests.support.log_checks import fetch_all
from tests.support.serving import RawClient, ServedBroker
from tests.support.transactions import RawProducer

TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    # Without verification a producer can leave behind what its coordinator does not know of.
    settings = {
        "transaction.state.log.num.partitions": "1",
        "transaction.partition.verification.enable": "false",
    }
    with ServedBroker(tmp_path_factory.mktemp("served") / "logs", settings) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def admin_tools(log_ops: LogOps) -> SharedTools:
    return SharedTools(log_ops)


def transactions(topic: str, name: str) -> ProducerScript:
    """Commit, abort, commit."""
    script = ProducerScript()
    script.producer(transactional_id=name)
    for value, end in (("a", script.commit), ("b", script.abort), ("c", script.commit)):
        script.begin()
        script.send(topic, NewRecord(key=value.encode(), value=value.encode()))
        script.flush()
        end()
    script.close()
    return script


def states(log_dirs: LogReader) -> list[Record]:
    log = log_dirs.get_log(TopicPartition(TRANSACTION_STATE, 0))
    return [r for batch in fetch_all(log, 1 << 20) for r in batch.iter_records()]


def test_the_java_producer_speaks_the_second_version(
    harness: Harness, admin_tools: SharedTools, served: ServedBroker
) -> None:
    create(admin_tools, served, "j-second")

    sent = harness.produce(served.bootstrap, transactions("j-second", "second"))

    assert [one.offset for one in sent] == [0, 2, 4]
    committed = harness.consume(served.bootstrap, "j-second", isolation="read_committed")
    assert [(r.offset, r.value) for r in committed.records] == [(0, b"a"), (4, b"c")]
    everything = harness.consume(served.bootstrap, "j-second")
    assert [r.value for r in everything.records] == [b"a", b"b", b"c"]
    log = LogReader([served.directory]).get_log(TopicPartition("j-second", 0))
    headers = [batch.header for batch in fetch_all(log)]
    assert [(h.producer_epoch, h.is_control) for h in headers] == [
        (0, False),
        (1, True),
        (1, False),
        (2, True),
        (2, False),
        (3, True),
    ]


def test_kafka_reads_our_state(
    harness: Harness, kafka_tools: KafkaTools, admin_tools: SharedTools, served: ServedBroker
) -> None:
    create(admin_tools, served, "j-state")
    harness.produce(served.bootstrap, transactions("j-state", "state"))
    directory = served.directory / f"{TRANSACTION_STATE}-0"

    dumped = kafka_tools.run(
        tools.DUMP_LOG_SEGMENTS,
        "--transaction-log-decoder",
        "--files",
        str(directory / "00000000000000000000.log"),
    )

    mine = [line for line in dumped.splitlines() if '"transactionalId":"state"' in line]
    statuses = [int(found[1]) for line in mine if (found := re.search(r'Status":(\d)', line))]
    assert statuses == [0, 1, 2, 4, 1, 3, 5, 1, 2, 4]
    assert '"topic":"j-state","partitionIds":[0]' in mine[1]


def test_our_bytes_of_a_state_are_kafkas(harness: Harness, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("j-bytes")
    harness.produce(kafka_broker.bootstrap, transactions("j-bytes", "bytes"))

    mine = [
        (name, record.value)
        for record in states(LogReader([kafka_broker.log_dir]))
        if record.key is not None and (name := decode_key(record.key)) == "bytes"
    ]

    assert len(mine) == 10
    for name, value in mine:
        assert name is not None
        assert value is not None
        assert encode_value(decode_value(name, value)) == value


def test_the_transactions_tool_lists_describes_and_finds_what_hangs(
    admin_tools: SharedTools, served: ServedBroker
) -> None:
    create(admin_tools, served, "j-hanging", "--partitions", "2")

    def run(*arguments: str) -> str:
        return admin_tools.run(TRANSACTIONS_COMMAND, *at(served), *arguments)

    with RawClient(served.port) as raw:
        producer = RawProducer(raw, "tool", version=1).init()
        producer.produce("j-hanging", b"a")
        listed, described = run("list"), run("describe", "--transactional-id", "tool")
        empty = RawProducer(raw, "nothing").init()
        nothing = run("describe", "--transactional-id", "nothing")
        producers = run("describe-producers", "--topic", "j-hanging", "--partition", "0")
        unknown = RawProducer(raw, "unknown", version=1).init()
        assert unknown.ask_produce("j-hanging", b"b", partition=1, version=10).error_code == 0
        hanging = run(
            "find-hanging",
            "--broker-id",
            "0",
            "--topic",
            "j-hanging",
            "--max-transaction-timeout",
            "0",
        )
        run("abort", "--topic", "j-hanging", "--partition", "1", "--start-offset", "0")
        after = run("describe-producers", "--topic", "j-hanging", "--partition", "1")

    who = str(producer.producer_id)
    assert re.search(rf"tool\s+0\s+{who}\s+Ongoing", listed)
    assert re.search(rf"0\s+tool\s+{who}\s+0\s+Ongoing\s+60000", described)
    assert "j-hanging-0" in described
    assert re.search(rf"nothing\s+{empty.producer_id}\s+0\s+Empty", nothing)
    assert re.search(rf"{who}\s+0\s+-?\d+\s+0\s+\d+\s+0", producers)
    found = re.findall(r"j-hanging\s+(\d+)\s+(\d+)", hanging)
    assert found == [("1", str(unknown.producer_id))]  # The coordinator knows of the other.
    assert re.search(rf"{unknown.producer_id}\s+0\s+-?\d+\s+0\s+\d+\s+None", after)
