"""One broker under load, ours or a real Kafka: Kafka's own tools, a light client, passes beside."""

import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.harness import Work, WrongAnswerError
from siltstone.broker.wire import FETCH, LIST_OFFSETS, PRODUCE
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.kafka.tools import CONSUMER_PERFORMANCE, PRODUCER_PERFORMANCE, KafkaTools
from tests.support.serving import RawClient, frame_of

_IN_FLIGHT: Final = 5  # as the clients have by default
_FETCH_VERSION: Final = 11
_FETCH_BYTES: Final = 1 << 20
_FETCH_OFFSET: Final = struct.Struct(">q")
_PLACEHOLDER: Final = 0x5A5A5A5A5A5A
_BATCH_LENGTH: Final = struct.Struct(">i")
_KEYED_BATCHES: Final = 300  # that differ; a log has each of them many times
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_REPORT: Final = re.compile(
    r"^\d+(?P<steady> steady state)? records sent, (?P<rate>[\d.]+) records/sec.* "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th",
    re.MULTILINE,
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

    @property
    def size_bytes(self) -> int:
        return self.record_count * self.record_bytes


class BrokerLoad:
    """One broker under load, with an eye on its process."""

    def __init__(self, broker: AnyBroker, tools: KafkaTools) -> None:
        self._broker = broker
        self._tools = tools
        self._number = 0

    # Kafka's own tools

    def produce(self, workload: Produce, *, keep: bool = False) -> Work:
        """Fill a new topic as fast as Kafka's tool does; the seconds are its own."""
        return self._produce(workload, ("--throughput", "-1"), (), keep=keep)

    def produce_singly(self, workload: Produce, rate: int, warm_up_count: int) -> Work:
        """Send records one by one, so many a second; latencies are those after the first few."""
        arguments = ("--throughput", str(rate), "--warmup-records", str(warm_up_count))
        return self._produce(workload, arguments, ("linger.ms=0",))

    def _produce(
        self,
        workload: Produce,
        arguments: tuple[str, ...],
        properties: tuple[str, ...],
        *,
        keep: bool = False,
    ) -> Work:
        topic = self._create(workload.partitions)
        cpu = cpu_seconds(self._broker.pid)
        output = self._tools.run(
            PRODUCER_PERFORMANCE,
            *("--topic", topic, "--num-records", str(workload.record_count)),
            *("--record-size", str(workload.record_bytes), *arguments),
            "--command-property",
            f"bootstrap.servers={self._broker.bootstrap}",
            f"acks={workload.acks}",
            f"compression.type={workload.codec}",
            *properties,
            heap="1g",
            full_speed=True,
            timeout_seconds=120,
        )
        cpu = cpu_seconds(self._broker.pid) - cpu
        # The last that speaks of all records; behind it may come one about the steady state.
        reports = list(_REPORT.finditer(output))
        totals = [report for report in reports if not report["steady"]]
        if not totals:
            raise WrongAnswerError(output)
        count = sum(self._end_offset(topic, number) for number in range(workload.partitions))
        if not keep:
            self._delete(topic)
        return Work(
            workload.record_count / float(totals[-1]["rate"]),
            workload.size_bytes,
            count,
            details={
                **self._costs(cpu),
                "p50_ms": float(reports[-1]["p50"]),
                "p99_ms": float(reports[-1]["p99"]),
            },
        )

    def consume_by_tool(self, topic: str, workload: Produce) -> Work:
        """Read a topic with Kafka's tool, which subscribes; the seconds are its fetches'."""
        cpu = cpu_seconds(self._broker.pid)
        output = self._tools.run(
            CONSUMER_PERFORMANCE,
            *("--bootstrap-server", self._broker.bootstrap, "--topic", topic),
            *("--num-records", str(workload.record_count), "--timeout", "60000"),
            heap="1g",
            full_speed=True,
            timeout_seconds=120,
        )
        cpu = cpu_seconds(self._broker.pid) - cpu
        head, values = (line.split(", ") for line in output.splitlines()[-2:])
        row = {name.strip(): value.strip() for name, value in zip(head, values, strict=True)}
        # A poll gives whole batches, so that the last of them may go over the number.
        count = min(int(row["data.consumed.in.nMsg"]), workload.record_count)
        seconds = float(row["fetch.time.ms"]) / 1000
        return Work(seconds, workload.size_bytes, count, details=self._costs(cpu))

    def fill(self, workload: Produce) -> str:
        """Fill a topic that stays, and return its name."""
        self.produce(workload, keep=True)
        return self._topic

    # A client that costs next to nothing

    def consume(self, topic: str, workload: Produce) -> Work:
        """Read a topic from its start to its end, and look at nothing but batch headers."""
        part = {"partition": 0, "fetch_offset": _PLACEHOLDER, "partition_max_bytes": _FETCH_BYTES}
        values = {"replica_id": -1, "max_wait": 1000, "min_bytes": 1, "max_bytes": _FETCH_BYTES}
        topics = [{"topic": topic, "partitions": [part]}]
        frame = bytearray(
            frame_of(
                FETCH, _FETCH_VERSION, {**values, "topics": topics, "forgotten_topics_data": ()}
            )
        )
        place = frame.index(_FETCH_OFFSET.pack(_PLACEHOLDER))
        # Size, correlation id, throttle time, error, session, number of topics; the name; number of
        # partitions, partition, error, three offsets; then what may be aborted.
        head_bytes = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 3 * 8
        buffer = bytearray(2 * _FETCH_BYTES)
        count = offset = 0
        cpu = cpu_seconds(self._broker.pid)
        started = time.perf_counter()
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
            while count < workload.record_count:
                _FETCH_OFFSET.pack_into(frame, place, offset)
                client.sendall(frame)
                end = receive_into(client, buffer)
                (aborted,) = _BATCH_LENGTH.unpack_from(buffer, head_bytes)
                position = head_bytes + 4 + 16 * max(aborted, 0) + 4 + 4
                found, offset = count_records(buffer, position, end, offset)
                if not found:
                    raise WrongAnswerError(f"{topic}: nothing at offset {offset}")
                count += found
        seconds = time.perf_counter() - started
        cpu = cpu_seconds(self._broker.pid) - cpu
        return Work(seconds, workload.size_bytes, count, details=self._costs(cpu))

    def produce_frames(self, count: int, records: int, record_bytes: int) -> Work:
        """Send one frame again and again, a few ahead of the answers."""
        topic = self._create(1)
        batch = build_batch([Record(n, 1, None, bytes(record_bytes)) for n in range(records)])
        frame = produce_frame(topic, batch)
        buffer = bytearray(1 << 16)
        cpu = cpu_seconds(self._broker.pid)
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            started = time.perf_counter()
            for number in range(count + _IN_FLIGHT):
                if number < count:
                    client.sendall(frame)
                if number >= _IN_FLIGHT:
                    receive_into(client, buffer)
            seconds = time.perf_counter() - started
        cpu = cpu_seconds(self._broker.pid) - cpu
        found = self._end_offset(topic, 0)
        self._delete(topic)
        return Work(seconds, count * len(batch), found, count, self._costs(cpu))

    # Passes

    def fill_keyed(self, batch_count: int) -> str:
        """Fill a compacted topic with batches of 1,000 records, each key in many of them."""
        config = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
        # Or the broker's own cleaner would change the log under a trial.
        config["min.cleanable.dirty.ratio"] = "1"
        topic = self._create(1, config)
        frames = []
        for number in range(min(batch_count, _KEYED_BATCHES)):
            keys = (b"%08d" % (number * 1000 + n) for n in range(1000))
            batch = build_batch(Record(n, 1, key, bytes(90)) for n, key in enumerate(keys))
            frames.append(produce_frame(topic, batch))
        buffer = bytearray(1 << 16)
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
            for number in range(batch_count):
                client.sendall(frames[number % len(frames)])
                receive_into(client, buffer)
        return topic

    def produce_beside_passes(self, workload: Produce, topic: str) -> Work:
        """Fill a topic while another is cleaned again and again, as a trial."""
        with self._passes_over(topic) as passes:
            work = self.produce(workload)
            count = len(passes)
        details = {**work.details, "passes": float(count)}
        return Work(work.seconds, work.size_bytes, work.record_count, details=details)

    @contextmanager
    def _passes_over(self, topic: str) -> Iterator[list[float]]:
        """Have the broker clean a topic until the block ends; the list has an item per pass."""
        command = [sys.executable, "-m", "siltstone", "compact", "--dry-run", "--force"]
        command += [topic, "--bootstrap-server", self._broker.bootstrap]
        is_over = threading.Event()
        passes: list[float] = []
        failures: list[str] = []

        def run() -> None:
            while not is_over.is_set() and not failures:
                started = time.perf_counter()
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    failures.append(done.stderr)
                passes.append(time.perf_counter() - started)

        # Spark is started by the first of all.
        subprocess.run(command, capture_output=True, check=True)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield passes
        finally:
            is_over.set()
            thread.join()
        if failures:
            raise WrongAnswerError(failures[0])

    # What both sides need

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._broker.bootstrap.rsplit(":", 1)[1])

    @property
    def _topic(self) -> str:
        return f"bench-{self._number}"

    def _costs(self, cpu: float) -> dict[str, float]:
        return {"cpu_seconds": cpu, "resident_bytes": float(resident_bytes(self._broker.pid))}

    def _end_offset(self, topic: str, partition: int) -> int:
        part = {"partition_index": partition, "timestamp": -1}
        topics = [{"name": topic, "partitions": [part]}]
        with RawClient(self.port) as client:
            answer = client.ask(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    def _create(self, partitions: int, config: Mapping[str, str] | None = None) -> str:
        """Create the next topic, and return its name."""
        self._number += 1
        return create_topic(self._broker, self._topic, partitions, config)

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


def produce_frame(topic: str, batch: bytes) -> bytes:
    """Return a request that appends one batch to the first partition of a topic."""
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
    values = {"transactional_id": None, "acks": -1, "timeout": 9000, "topic_data": [data]}
    return frame_of(PRODUCE, 9, values)


def receive_into(client: socket.socket, buffer: bytearray) -> int:
    """Receive one frame, its size in front, and return where it ends."""
    received, end = 0, 4
    with memoryview(buffer) as view:
        while received < end:
            count = client.recv_into(view[received:end])  # The next frame may be there, too.
            if not count:
                raise WrongAnswerError("the broker has closed the connection")
            received += count
            if end == 4 and received >= 4:
                end += _BATCH_LENGTH.unpack_from(buffer)[0]
    return end


def count_records(data: bytearray, position: int, end: int, offset: int) -> tuple[int, int]:
    """Count the records of the whole batches, and return the offset after them.

    Kafka's answers may end in the middle of a batch.
    """
    count = 0
    while position + 61 <= end:
        base_offset, length = struct.unpack_from(">qi", data, position)
        if position + 12 + length > end:
            break
        (last_delta,) = _BATCH_LENGTH.unpack_from(data, position + 23)
        (records,) = _BATCH_LENGTH.unpack_from(data, position + 57)
        count += records
        offset = base_offset + last_delta + 1
        position += 12 + length
    return count, offset


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, without the page cache."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
