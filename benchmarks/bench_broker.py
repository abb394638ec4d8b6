"""Broker: what Kafka's clients get from ours, and what it costs the machine.

Question: how fast do Kafka's own ProducerPerformance and a light client that only fetches go
against `silt serve`, next to the same against a real Kafka with the same arguments; how much CPU
time and memory does the broker's process take for it; and how long does a single record take?

Workload: 1 GB of 1 kB records and 500 MB of 100 B records into a new topic, 1 or 12 partitions,
none or lz4, acks all or 1; then the first topic read from its start to its end, 1 MiB at a time;
then single records at 2,000 a second. Both brokers run all the time, and are used in turns. Kafka
has a heap of 1 GiB. Seconds are the tool's own. Nobody calls fsync on either side.
ConsumerPerformance needs a consumer group, which our broker does not serve yet.

Command: python benchmarks/bench_broker.py [--quick]
"""

import os
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.harness import (
    Case,
    CaseResult,
    Report,
    Side,
    Work,
    WrongAnswerError,
    parse_options,
    work_directory,
)
from benchmarks.kafka_rival import find_kafka
from siltstone.broker.wire import FETCH
from siltstone.records.batch import iter_batches
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import ensure_harness
from tests.kafka.tools import PRODUCER_PERFORMANCE, KafkaTools
from tests.support.serving import RawClient, ServedBroker

_FETCH_VERSION: Final = 11
_FETCH_BYTES: Final = 1 << 20
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_REPORT: Final = re.compile(
    r"(?P<count>\d+) records sent, (?P<rate>[\d.]+) records/sec.* "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th"
)


class AnyBroker(Protocol):
    """One of the two."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Produce:
    """One way to fill a topic."""

    record_count: int
    record_bytes: int
    partitions: int = 1
    codec: str = "none"
    acks: str = "all"

    @property
    def name(self) -> str:
        return (
            f"produce {self.record_bytes} B, {self.partitions} partitions, {self.codec}, "
            f"acks={self.acks}"
        )


class Bench:
    """One broker under load, with an eye on its process."""

    def __init__(self, broker: AnyBroker, tools: KafkaTools) -> None:
        self._broker = broker
        self._tools = tools
        self._number = 0

    def produce(self, workload: Produce, *, throughput: int = -1, keep: bool = False) -> Work:
        """Fill a new topic with Kafka's tool; the seconds are its own."""
        topic = self._create(workload.partitions)
        cpu = cpu_seconds(self._broker.pid)
        output = self._tools.run(
            PRODUCER_PERFORMANCE,
            *("--topic", topic, "--num-records", str(workload.record_count)),
            *("--record-size", str(workload.record_bytes), "--throughput", str(throughput)),
            "--producer-props",
            f"bootstrap.servers={self._broker.bootstrap}",
            f"acks={workload.acks}",
            f"compression.type={workload.codec}",
            heap="1g",
            full_speed=True,
            timeout_seconds=600,
        )
        cpu = cpu_seconds(self._broker.pid) - cpu
        found = _REPORT.search(output.splitlines()[-1])
        if found is None:
            raise WrongAnswerError(output)
        count = sum(self._tools.get_offsets(self._broker.bootstrap, topic).values())
        if not keep:
            self._delete(topic)
        return Work(
            workload.record_count / float(found["rate"]),
            workload.record_count * workload.record_bytes,
            count,
            details={
                "cpu_seconds": cpu,
                "resident_bytes": resident_bytes(self._broker.pid),
                "p50_ms": float(found["p50"]),
                "p99_ms": float(found["p99"]),
            },
        )

    def fill(self, workload: Produce) -> str:
        """Fill a topic that stays, and return its name."""
        self.produce(workload, keep=True)
        return f"bench-{self._number}"

    def consume(self, topic: str, workload: Produce) -> Work:
        """Read a topic from its start to its end, and look at nothing but the headers."""
        port = int(self._broker.bootstrap.rsplit(":", 1)[1])
        cpu = cpu_seconds(self._broker.pid)
        count = offset = 0
        seconds = 0.0
        with RawClient(port) as client:
            while count < workload.record_count:
                started = time.perf_counter()
                part = {
                    "partition": 0,
                    "fetch_offset": offset,
                    "partition_max_bytes": _FETCH_BYTES,
                }
                answer = client.ask(
                    FETCH,
                    _FETCH_VERSION,
                    replica_id=-1,
                    max_wait=1000,
                    min_bytes=1,
                    max_bytes=_FETCH_BYTES,
                    topics=[{"topic": topic, "partitions": [part]}],
                    forgotten_topics_data=(),
                )
                seconds += time.perf_counter() - started
                records = answer.responses[0].partitions[0].records
                headers = whole_headers(records)
                count += sum(header.record_count for header in headers)
                offset = headers[-1].next_offset
        details = {
            "cpu_seconds": cpu_seconds(self._broker.pid) - cpu,
            "resident_bytes": resident_bytes(self._broker.pid),
        }
        return Work(seconds, workload.record_count * workload.record_bytes, count, details=details)

    def _create(self, partitions: int) -> str:
        self._number += 1
        return create_topic(self._broker, f"bench-{self._number}", partitions)

    def _delete(self, topic: str) -> None:
        delete_topic(self._broker, topic)


def create_topic(broker: AnyBroker, topic: str, partitions: int) -> str:
    """Create a topic, wait until it can be written to, and return its name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    time.sleep(0.5)  # Until a real Kafka leads all of its partitions.
    return topic


def delete_topic(broker: AnyBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def whole_headers(records: bytes) -> list[Any]:
    """Return the headers of the whole batches; Kafka's answers may end in the middle of one."""
    size = 0
    while size + 12 <= len(records):
        length = int.from_bytes(records[size + 8 : size + 12], "big") + 12
        if size + length > len(records):
            break
        size += length
    return [batch.header for _, batch in iter_batches(records[:size])]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, without the page cache."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def compare_costs(result: CaseResult) -> dict[str, Any]:
    """Hold the details of both sides against each other, ours over Kafka's."""
    found: dict[str, Any] = {}
    for name in ("cpu_seconds", "resident_bytes", "p50_ms", "p99_ms"):
        sides: dict[str, list[float]] = {}
        for run in result.runs:
            if run.round and name in run.details:
                sides.setdefault(run.side, []).append(run.details[name])
        medians = {side: statistics.median(values) for side, values in sides.items()}
        if len(medians) == 2:
            ours, theirs = medians["silt"], medians["kafka"]
            found[name] = {
                "silt": ours,
                "kafka": theirs,
                "ratio": ours / theirs if theirs else None,
            }
    return found


def measure_all(report: Report, ours: Bench, kafka: Bench, workloads: Sequence[Produce]) -> None:
    """Measure every workload on both sides, and note what each cost."""
    for workload in workloads:
        result = report.measure(
            Case(
                name=workload.name,
                ours=Side("silt", partial(ours.produce, workload)),
                reference=Side("kafka", partial(kafka.produce, workload)),
                goal_ratio=1.0,
                size_bytes=workload.record_count * workload.record_bytes,
                record_count=workload.record_count,
                touch_bytes=workload.record_count * workload.record_bytes,
            )
        )
        note(report, workload.name, result)
    first = workloads[0]
    topics = {id(ours): ours.fill(first), id(kafka): kafka.fill(first)}
    name = f"fetch {first.record_bytes} B, 1 partition"
    result = report.measure(
        Case(
            name=name,
            ours=Side("silt", partial(ours.consume, topics[id(ours)], first)),
            reference=Side("kafka", partial(kafka.consume, topics[id(kafka)], first)),
            goal_ratio=1.0,
            size_bytes=first.record_count * first.record_bytes,
            record_count=first.record_count,
        )
    )
    note(report, name, result)
    single = Produce(report.options.scaled(20_000), 100)
    result = report.measure(
        Case(
            name="single records, 2,000 a second",
            ours=Side("silt", partial(ours.produce, single, throughput=2000)),
            reference=Side("kafka", partial(kafka.produce, single, throughput=2000)),
            size_bytes=single.record_count * single.record_bytes,
            record_count=single.record_count,
        )
    )
    note(report, "single records", result)


def note(report: Report, name: str, result: CaseResult) -> None:
    costs = compare_costs(result)
    report.notes[name] = costs
    for cost, values in costs.items():
        print(f"  {cost}: silt {values['silt']:.4g}, kafka {values['kafka']:.4g}")


def main() -> None:
    options = parse_options(__doc__)
    rival = find_kafka()
    if rival is None:
        return
    harness = ensure_harness()
    tools = KafkaTools(harness)
    workloads = [
        Produce(options.scaled(1_000_000), 1000),
        Produce(options.scaled(5_000_000), 100),
        Produce(options.scaled(1_000_000), 1000, partitions=12),
        Produce(options.scaled(1_000_000), 1000, codec="lz4"),
        Produce(options.scaled(1_000_000), 1000, acks="1"),
    ]
    with (
        work_directory(options) as directory,
        ServedBroker(directory / "silt") as ours,
        KafkaBroker(harness, directory / "kafka", heap="1g", full_speed=True) as kafka,
    ):
        ours.start()
        kafka.start()
        report = Report(
            "broker",
            __doc__ or "",
            options,
            directory,
            {"workloads": [workload.name for workload in workloads]},
            rival.versions,
        )
        measure_all(report, Bench(ours, tools), Bench(kafka, tools), workloads)
        report.write()


if __name__ == "__main__":
    main()
