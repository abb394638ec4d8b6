"""Broker: what Kafka's clients get from ours, and what it costs the machine.

Question: how fast do Kafka's own ProducerPerformance and ConsumerPerformance go against `silt
serve`, next to the same against a real Kafka with the same arguments; how much CPU time and memory
does the broker's process take for it; how long does a single record take; where is the ceiling with
a client that costs next to nothing; and what does a pass beside it take from the producers?

Workload: 400 MB of 1 kB records and 300 MB of 100 B records into a new topic, 1 or 12 partitions,
none or lz4, acks all or 1; the first topic read from its start to its end; single records at
2,000 a second; frames made beforehand, over one connection. Both brokers run all the time, and are
used in turns. Kafka has the flags of its own start script (G1, a heap of 1 GiB from the start) and
its own numbers of threads. Seconds are the tool's own. Nobody calls fsync on either side. The
passes beside the producer are dry runs over 3 M keyed records, one after the other, as long as it
produces; Spark shares the cores with it.

Command: python benchmarks/bench_broker.py [--quick] [--only TEXT]
"""

import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from siltstone.broker.wire import API_VERSIONS, FETCH, LIST_OFFSETS, PRODUCE
from siltstone.records.batch import iter_batches
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import ensure_harness
from tests.kafka.tools import CONSUMER_PERFORMANCE, PRODUCER_PERFORMANCE, KafkaTools
from tests.support.serving import RawClient, ServedBroker, frame_of

_FETCH_VERSION: Final = 11
_FIND_COORDINATOR: Final = 10
_ROUNDS: Final = 3
_IN_FLIGHT: Final = 5  # as the clients have by default
# What the tests' Kafka has less of, to start quickly.
_KAFKA_DEFAULTS: Final = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.cleaner.dedupe.buffer.size": "134217728",
}
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
        count = sum(self._end_offset(topic, number) for number in range(workload.partitions))
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

    def fill_keyed(self, batch_count: int) -> str:
        """Fill a compacted topic with batches of 1,000 records, each key in many of them."""
        topic = self._create(1, {"cleanup.policy": "compact"})
        with RawClient(self.port) as client:
            for number in range(batch_count):
                keys = (b"%08d" % (number * 7919 * n % 300_000) for n in range(1000))
                batch = build_batch(Record(n, 1, key, bytes(90)) for n, key in enumerate(keys))
                data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
                client.ask(
                    PRODUCE, 9, transactional_id=None, acks=-1, timeout=9000, topic_data=[data]
                )
        return topic

    def consume(self, topic: str, workload: Produce) -> Work:
        """Read a topic from its start to its end, and look at nothing but the headers."""
        cpu = cpu_seconds(self._broker.pid)
        count = offset = 0
        seconds = 0.0
        with RawClient(self.port) as client:
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

    def consume_by_tool(self, topic: str, workload: Produce) -> Work:
        """Read a topic with Kafka's tool, which subscribes; the seconds are its fetches'."""
        cpu = cpu_seconds(self._broker.pid)
        output = self._tools.run(
            CONSUMER_PERFORMANCE,
            *("--bootstrap-server", self._broker.bootstrap, "--topic", topic),
            *("--messages", str(workload.record_count), "--timeout", "60000"),
            heap="1g",
            full_speed=True,
            timeout_seconds=600,
        )
        head, values = (line.split(", ") for line in output.splitlines()[-2:])
        row = {name.strip(): value.strip() for name, value in zip(head, values, strict=True)}
        details = {
            "cpu_seconds": cpu_seconds(self._broker.pid) - cpu,
            "resident_bytes": resident_bytes(self._broker.pid),
        }
        count = int(row["data.consumed.in.nMsg"])
        seconds = float(row["fetch.time.ms"]) / 1000
        return Work(seconds, workload.record_count * workload.record_bytes, count, details=details)

    @contextmanager
    def passes_over(self, topic: str) -> Iterator[None]:
        """Have the broker clean a topic again and again, as a trial, until the block ends."""
        command = [sys.executable, "-m", "siltstone", "compact", "--dry-run", "--force"]
        command += [topic, "--bootstrap-server", self._broker.bootstrap]
        is_over = threading.Event()

        def run() -> None:
            while not is_over.is_set():
                subprocess.run(command, capture_output=True, check=True)

        subprocess.run(command, capture_output=True, check=True)  # Spark is started by it.
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def serves_groups(self) -> bool:
        """Say whether a consumer may subscribe."""
        with RawClient(self.port) as client:
            keys = {api.api_key for api in client.ask(API_VERSIONS, 0).api_keys}
        return _FIND_COORDINATOR in keys

    def produce_frames(self, count: int, records: int, record_bytes: int) -> Work:
        """Send one frame again and again, a few ahead of the answers."""
        topic = self._create(1)
        batch = build_batch([Record(n, 1, None, bytes(record_bytes)) for n in range(records)])
        data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
        values = {"transactional_id": None, "acks": -1, "timeout": 9000, "topic_data": [data]}
        frame = frame_of(PRODUCE, 9, values)
        cpu = cpu_seconds(self._broker.pid)
        with RawClient(self.port) as client:
            started = time.perf_counter()
            for number in range(count + _IN_FLIGHT):
                if number < count:
                    client.socket.sendall(frame)
                if number >= _IN_FLIGHT:
                    client.receive_frame()
            seconds = time.perf_counter() - started
        cpu = cpu_seconds(self._broker.pid) - cpu
        found = self._end_offset(topic, 0)
        self._delete(topic)
        details = {"cpu_seconds": cpu, "resident_bytes": resident_bytes(self._broker.pid)}
        return Work(seconds, count * len(batch), found, count, details)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._broker.bootstrap.rsplit(":", 1)[1])

    def _end_offset(self, topic: str, partition: int) -> int:
        part = {"partition_index": partition, "timestamp": -1}
        with RawClient(self.port) as client:
            answer = client.ask(
                LIST_OFFSETS,
                7,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": topic, "partitions": [part]}],
            )
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    def _create(self, partitions: int, config: Mapping[str, str] | None = None) -> str:
        self._number += 1
        return create_topic(self._broker, f"bench-{self._number}", partitions, config)

    def _delete(self, topic: str) -> None:
        delete_topic(self._broker, topic)


def create_topic(
    broker: AnyBroker, topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> str:
    """Create a topic, wait until it can be written to, and return its name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(topic, partitions, 1, config=dict(config or {}))
    admin.create_topics([new])[topic].result(30)
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


def note(report: Report, name: str, result: CaseResult | None) -> None:
    """Write down what a row cost both sides, if it was measured."""
    if result is None:
        return
    costs = compare_costs(result)
    report.notes[name] = costs
    for cost, values in costs.items():
        print(f"  {cost}: silt {values['silt']:.4g}, kafka {values['kafka']:.4g}", flush=True)


class Rows:
    """Measures one row after the other, and writes each down as soon as it is there."""

    def __init__(self, report: Report, ours: Bench, kafka: Bench) -> None:
        self._report = report
        self._ours = ours
        self._kafka = kafka
        self._topics: tuple[str, str] | None = None

    def measure(self, case: Case) -> None:
        """Measure a row, if it is wanted."""
        if not self._report.options.wants_row(case.name):
            return
        result = self._report.measure(case, _ROUNDS)
        note(self._report, case.name, result)
        self._report.write()

    def produce(self, workload: Produce) -> None:
        """Measure Kafka's producer."""
        self.measure(
            Case(
                name=workload.name,
                ours=Side("silt", partial(self._ours.produce, workload)),
                reference=Side("kafka", partial(self._kafka.produce, workload)),
                goal_ratio=1.0,
                size_bytes=workload.record_count * workload.record_bytes,
                record_count=workload.record_count,
                touch_bytes=workload.record_count * workload.record_bytes,
            )
        )

    def consume(self, workload: Produce) -> None:
        """Measure readers of one topic: a light one, and Kafka's, if it can subscribe."""
        name = f"fetch {workload.record_bytes} B, 1 partition"
        rows = {f"{name}, light client": Bench.consume}
        if self._ours.serves_groups():
            rows[f"{name}, ConsumerPerformance"] = Bench.consume_by_tool
        if not any(self._report.options.wants_row(row) for row in rows):
            return
        topic, rival_topic = self._ours.fill(workload), self._kafka.fill(workload)
        for row, read in rows.items():
            self.measure(
                Case(
                    name=row,
                    ours=Side("silt", partial(read, self._ours, topic, workload)),
                    reference=Side("kafka", partial(read, self._kafka, rival_topic, workload)),
                    goal_ratio=1.0,
                    size_bytes=workload.record_count * workload.record_bytes,
                    record_count=workload.record_count,
                )
            )

    def single_records(self, record_count: int) -> None:
        """Measure how long a record takes when they come one by one."""
        single = Produce(record_count, 100)
        self.measure(
            Case(
                name="single records, 2,000 a second",
                ours=Side("silt", partial(self._ours.produce, single, throughput=2000)),
                reference=Side("kafka", partial(self._kafka.produce, single, throughput=2000)),
                size_bytes=single.record_count * single.record_bytes,
                record_count=single.record_count,
            )
        )

    def frames(self, name: str, count: int, records: int, record_bytes: int) -> None:
        """Measure with frames that were made beforehand."""
        batch = build_batch([Record(n, 1, None, bytes(record_bytes)) for n in range(records)])
        self.measure(
            Case(
                name=f"frames: {name}",
                ours=Side("silt", partial(self._ours.produce_frames, count, records, record_bytes)),
                reference=Side(
                    "kafka", partial(self._kafka.produce_frames, count, records, record_bytes)
                ),
                goal_ratio=1.0,
                size_bytes=count * len(batch),
                record_count=count * records,
                touch_bytes=count * len(batch),
                operation_name="request",
            )
        )

    def beside_passes(self, workload: Produce, batch_count: int) -> None:
        """Measure what is left for a producer while one pass after the other runs."""
        name = f"{workload.name}, beside passes"
        if not self._report.options.wants_row(name):
            return
        topic = self._ours.fill_keyed(batch_count)

        def produce_beside() -> Work:
            with self._ours.passes_over(topic):
                return self._ours.produce(workload)

        self.measure(
            Case(
                name=name,
                ours=Side("silt, beside passes", produce_beside),
                reference=Side("silt", partial(self._ours.produce, workload)),
                goal_ratio=0.8,
                size_bytes=workload.record_count * workload.record_bytes,
                record_count=workload.record_count,
                touch_bytes=workload.record_count * workload.record_bytes,
            )
        )


def main() -> None:
    options = parse_options(__doc__)
    rival = find_kafka()
    if rival is None:
        return
    harness = ensure_harness()
    tools = KafkaTools(harness)
    large = Produce(options.scaled(400_000), 1000)
    small = Produce(options.scaled(3_000_000), 100)
    workloads = [
        large,
        replace(large, partitions=12),
        replace(large, codec="lz4"),
        replace(large, acks="1"),
        small,
        replace(small, partitions=12),
        replace(small, codec="lz4"),
        replace(small, acks="1"),
    ]
    with (
        work_directory(options) as directory,
        ServedBroker(directory / "silt") as ours,
        KafkaBroker(
            harness, directory / "kafka", heap="1g", full_speed=True, properties=_KAFKA_DEFAULTS
        ) as kafka,
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
        rows = Rows(report, Bench(ours, tools), Bench(kafka, tools))
        for workload in workloads:
            rows.produce(workload)
        rows.consume(large)
        rows.consume(small)
        rows.single_records(options.scaled(10_000))
        rows.frames("128 KiB batches", options.scaled(3_000), 128, 1000)
        rows.frames("one record", options.scaled(20_000), 1, 100)
        rows.beside_passes(large, options.scaled(3_000))


if __name__ == "__main__":
    main()
