"""Transactions: how many a producer commits in a second, ours next to a real Kafka.

Question: with the same client on both sides, how fast do transactions of one record, of 100 records
in 4 partitions, and of one record with the offsets of a group go; and what does Kafka's own
ProducerPerformance reach with a transaction every 100 ms?

Workload: librdkafka (confluent-kafka), one producer, one transaction after the other, each waited
for; records of 1 kB. It speaks version 1 of the protocol, the Java client version 2. Both brokers
run all the time and are used in turns; Kafka has a heap of 1 GiB. Both have one partition of each
internal topic. Nobody calls fsync on either side.

Command: python benchmarks/bench_transactions.py [--quick]
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka

from benchmarks.bench_broker import note_costs
from benchmarks.broker_load import AnyBroker, cpu_seconds, create_topic, delete_topic
from benchmarks.harness import (
    Case,
    Report,
    Side,
    Work,
    WrongAnswerError,
    parse_options,
    work_directory,
)
from benchmarks.kafka_rival import find_kafka
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import ensure_harness
from tests.kafka.tools import PRODUCER_PERFORMANCE, KafkaTools
from tests.support.serving import ServedBroker

_PARTITIONS: Final = 4
_VALUE: Final = bytes(1000)
_TIMEOUT_SECONDS: Final = 60
_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Workload(NamedTuple):
    """Transactions of one kind."""

    name: str
    transaction_count: int
    records_each: int
    commits_offsets: bool = False

    @property
    def record_count(self) -> int:
        return self.transaction_count * self.records_each


class Bench:
    """One broker under transactions."""

    def __init__(self, broker: AnyBroker, tools: KafkaTools) -> None:
        self._broker = broker
        self._tools = tools
        self._number = 0

    def run(self, workload: Workload) -> Work:
        """Commit one transaction after the other, and count what is committed."""
        topic = self._create()
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "transactional.id": topic,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(_TIMEOUT_SECONDS)
        consumer = self._consumer(topic)
        # The first one finds out where everything is.
        for number in range(workload.transaction_count + 1):
            if number == 1:
                cpu, started = cpu_seconds(self._broker.pid), time.perf_counter()
            producer.begin_transaction()
            for record in range(workload.records_each):
                producer.produce(topic, _VALUE, partition=record % _PARTITIONS)
            if workload.commits_offsets:
                producer.send_offsets_to_transaction(
                    [confluent_kafka.TopicPartition(topic, 0, number)],
                    consumer.consumer_group_metadata(),
                    _TIMEOUT_SECONDS,
                )
            producer.commit_transaction(_TIMEOUT_SECONDS)
        seconds = time.perf_counter() - started
        cpu = cpu_seconds(self._broker.pid) - cpu
        count = self._count(consumer, topic, workload.record_count + workload.records_each)
        consumer.close()
        delete_topic(self._broker, topic)
        return Work(
            seconds,
            workload.record_count * len(_VALUE),
            count - workload.records_each,
            workload.transaction_count,
            details={"cpu_seconds": cpu},
        )

    def perform(self, record_count: int) -> Work:
        """Let Kafka's tool write, with a commit every 100 ms; the seconds are its own."""
        topic = self._create()
        cpu = cpu_seconds(self._broker.pid)
        output = self._tools.run(
            PRODUCER_PERFORMANCE,
            *("--topic", topic, "--num-records", str(record_count), "--record-size", "1000"),
            *("--throughput", "-1", "--transactional-id", topic),
            *("--transaction-duration-ms", "100"),
            "--command-property",
            f"bootstrap.servers={self._broker.bootstrap}",
            heap="1g",
            full_speed=True,
        )
        cpu = cpu_seconds(self._broker.pid) - cpu
        rate = float(output.splitlines()[-1].split(" records/sec")[0].rsplit(" ", 1)[1])
        consumer = self._consumer(topic)
        count = self._count(consumer, topic, record_count)
        consumer.close()
        delete_topic(self._broker, topic)
        return Work(
            record_count / rate,
            record_count * len(_VALUE),
            count,
            details={"cpu_seconds": cpu},
        )

    def _count(self, consumer: confluent_kafka.Consumer, topic: str, wanted: int) -> int:
        """Count the records that a reader of committed ones gets."""
        consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(_PARTITIONS)])
        count = 0
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while count < wanted:
            if time.monotonic() > deadline:
                raise WrongAnswerError(f"{count} of {wanted} records are committed")
            found = consumer.consume(10_000, 0.5)
            count += sum(message.error() is None for message in found)
        return count

    def _consumer(self, topic: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": topic,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

    def _create(self) -> str:
        self._number += 1
        return create_topic(self._broker, f"transactions-{self._number}", _PARTITIONS)


def main() -> None:
    options = parse_options(__doc__)
    rival = find_kafka()
    if rival is None:
        return
    harness = ensure_harness()
    tools = KafkaTools(harness)
    workloads = [
        Workload("transactions of 1 record", options.scaled(200), 1),
        Workload("transactions of 100 records, 4 partitions", options.scaled(100), 100),
        Workload("transactions of 1 record and offsets", options.scaled(50), 1, True),
    ]
    with (
        work_directory(options) as directory,
        ServedBroker(directory / "silt", _SETTINGS) as ours,
        KafkaBroker(harness, directory / "kafka", heap="1g", full_speed=True) as kafka,
    ):
        ours.start()
        kafka.start()
        report = Report(
            "transactions",
            __doc__ or "",
            options,
            directory,
            {"workloads": [workload.name for workload in workloads]},
            rival.versions,
        )
        sides = Bench(ours, tools), Bench(kafka, tools)
        for workload in workloads:
            measure(report, workload, sides)
        perform_count = options.scaled(50_000)
        warm_up_count = perform_count // 10
        name = "ProducerPerformance, 1 kB, a commit every 100 ms"
        result = report.maybe_measure(
            Case(
                name=name,
                ours=Side(
                    "silt",
                    partial(sides[0].perform, perform_count),
                    partial(sides[0].perform, warm_up_count),
                ),
                reference=Side(
                    "kafka",
                    partial(sides[1].perform, perform_count),
                    partial(sides[1].perform, warm_up_count),
                ),
                goal_ratio=1.0,
                size_bytes=perform_count * len(_VALUE),
                record_count=perform_count,
                touch_bytes=perform_count * len(_VALUE),
            ),
            3,
        )
        note_costs(report, result, {})
        report.write()


def measure(report: Report, workload: Workload, sides: tuple[Bench, Bench]) -> None:
    result = report.maybe_measure(
        Case(
            name=workload.name,
            ours=Side("silt", partial(sides[0].run, workload)),
            reference=Side("kafka", partial(sides[1].run, workload)),
            goal_ratio=1.0,
            size_bytes=workload.record_count * len(_VALUE),
            record_count=workload.record_count,
            operation_name="transaction",
        ),
        3,
    )
    note_costs(report, result, {})


if __name__ == "__main__":
    main()
