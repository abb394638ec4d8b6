"""Read-process-write, exactly once: workers and the broker are killed, and everything is compacted.

Fifty seeds run side by side on one broker, and share its death: each has an output partition of its
own, two input partitions with a transactional producer for each, and its own transactions, sizes
and aborts. Data and internal topics alike are compacted as often as can be, with the cleaner's
kernels in the broker; markers and tombstones go as soon as they may.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.history import History, Outcome, Read, Write
from tests.support.pipeline_worker import (
    ABORTED,
    CLIENT_CONFIG,
    COMMITTED,
    GROUP,
    INPUT,
    OUTPUT,
    SIDES,
    WANTED,
)
from tests.support.serving import ServedBroker

SEEDS = int(os.environ.get("SILTSTONE_PIPELINE_SEEDS", "50"))
RECORDS = int(os.environ.get("SILTSTONE_PIPELINE_RECORDS", "24"))  # of each input partition
WORKERS = 4
BROKER_KILLS = max(3, RECORDS // 20)
WORKER_KILLS = 2 * BROKER_KILLS
PATIENCE_SECONDS = 400 + 3 * RECORDS

AGGRESSIVE = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "16",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "50",
    "log.segment.bytes": "2000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "4000",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.segment.bytes": "4000",
}


class Pipelines:
    """The broker, the workers, and a consumer that watches the output all the time."""

    def __init__(self, path: Path, settings: dict[str, str], module: str) -> None:
        self.random = random.Random(0)
        self.journal_path = path / "journal"
        self.broker = ServedBroker(path / "logs", settings, module=module)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._incarnations = 0
        self.logs = ""  # of the brokers that were killed
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self.polls: dict[int, list[Read]] = {number: [] for number in range(SEEDS)}

    def start(self) -> None:
        self.broker.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, **CLIENT_CONFIG})
        config = {"cleanup.policy": "compact"}
        topics = [
            NewTopic(INPUT, SEEDS * SIDES, 1, config=config),
            NewTopic(OUTPUT, SEEDS, 1, config=config),
        ]
        for made in admin.create_topics(topics).values():
            made.result()
        self._feed()
        self._processes = [self._spawn(number) for number in range(WORKERS)]
        self._watcher.start()

    def _feed(self) -> None:
        """Write the input, in batches that fit into its small segments."""
        feeder = {"bootstrap.servers": self.broker.bootstrap, "batch.num.messages": 50}
        producer = Producer({**CLIENT_CONFIG, **feeder})
        failed: list[object] = []
        for number in range(SEEDS * SIDES):
            for i in range(RECORDS):
                producer.produce(
                    INPUT,
                    b"%d" % i,
                    b"%d" % i,
                    partition=number,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
            assert producer.flush(120) == 0
        assert failed == []

    def close(self) -> None:
        self._stopped.set()
        for process in self._processes:
            process.kill()
            process.wait()
        if self._watcher.is_alive():
            self._watcher.join()
        self.broker.kill()

    def kill_worker(self) -> None:
        number = self.random.randrange(WORKERS)
        process = self._processes[number]
        assert process.poll() is None, "a worker ended by itself"
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._processes[number] = self._spawn(number)

    def kill_broker(self) -> None:
        self.broker.kill()
        self.logs += self.broker.log()
        self.broker.start()

    def _spawn(self, number: int) -> "subprocess.Popen[bytes]":
        self._incarnations += 1
        partitions = list(range(number, SEEDS * SIDES, WORKERS))
        orders = [self.broker.bootstrap, str(self.journal_path), self._incarnations, partitions]
        command = [sys.executable, "-m", "tests.support.pipeline_worker", json.dumps(orders)]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def progress(self) -> int:
        """Return how many input records are worked off, by the committed offsets."""
        consumer = self._consumer(GROUP)
        try:
            asked = [TopicPartition(INPUT, number) for number in range(SEEDS * SIDES)]
            return sum(max(0, found.offset) for found in consumer.committed(asked, 60))
        finally:
            consumer.close()

    def contents(self) -> dict[int, list[Read]]:
        """Return all committed records of the output."""
        consumer = self._consumer("reader")
        consumer.assign([TopicPartition(OUTPUT, number, 0) for number in range(SEEDS)])
        found: dict[int, list[Read]] = {number: [] for number in range(SEEDS)}
        left = set(found)
        deadline = time.monotonic() + 120
        while left:
            assert time.monotonic() < deadline, f"no end of partitions {left}"
            for number, read in _consume(consumer):
                if read is None:
                    left.discard(number)
                else:
                    found[number].append(read)
        consumer.close()
        return found

    def _watch(self) -> None:
        consumer = self._consumer("watcher")
        consumer.assign([TopicPartition(OUTPUT, number, 0) for number in range(SEEDS)])
        while not self._stopped.is_set():
            for number, read in _consume(consumer):
                if read is not None:
                    self.polls[number].append(read)
        consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **CLIENT_CONFIG,
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )

    def history(self) -> History:
        """Return what the workers were told, and what was read."""
        outcomes: dict[bytes, Outcome] = {}
        words = {WANTED: Outcome.UNKNOWN, COMMITTED: Outcome.COMMITTED, ABORTED: Outcome.ABORTED}
        for line in self.journal_path.read_bytes().splitlines():
            word, *values = line.split()
            outcomes |= dict.fromkeys(values, words[word])
        writes = []
        for value, outcome in outcomes.items():
            kind, seed, _, offset, _ = value.split(b"/")
            key = value if kind == b"copy" else b"%d" % (int(offset) % 3)
            writes.append(Write(int(seed), key, value, outcome))
        polls: dict[int, list[Sequence[Read]]] = {n: [run] for n, run in self.polls.items()}
        return History(writes, polls, dict(self.contents()))


def _consume(consumer: Consumer) -> Iterator[tuple[int, Read | None]]:
    """Yield the partition and the record of what has come; None for the end of a partition."""
    for message in consumer.consume(1000, 0.2):
        number, error = message.partition(), message.error()
        if error is None:
            offset, key, value = message.offset(), message.key(), message.value()
            assert number is not None
            assert offset is not None
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            yield number, Read(offset, key, value)
        elif error.code() == KafkaError._PARTITION_EOF:
            assert number is not None
            yield number, None


@pytest.fixture
def pipelines(tmp_path: Path) -> Iterator[Pipelines]:
    made = Pipelines(tmp_path, AGGRESSIVE, "tests.support.local_broker")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.timeout(600 + 10 * RECORDS)
def test_the_output_is_the_reference_exactly_once_whoever_is_killed(pipelines: Pipelines) -> None:
    deaths = [pipelines.kill_broker] * BROKER_KILLS + [pipelines.kill_worker] * WORKER_KILLS
    pipelines.random.shuffle(deaths)
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = SEEDS * SIDES * RECORDS
    for count, death in enumerate(deaths, 1):
        # Each in the middle of the work: after an equal share of it is done.
        while pipelines.progress() < wanted * count // (len(deaths) + 2):
            assert time.monotonic() < deadline, pipelines.broker.log()
        death()
    while pipelines.progress() < wanted:
        assert time.monotonic() < deadline, (pipelines.progress(), pipelines.broker.log())

    history = pipelines.history()

    assert history.check() == []
    for seed in range(SEEDS):
        copies = [r.value.split(b"/") for r in history.contents[seed] if r.key == r.value]
        for side in range(SIDES):
            mine = [int(offset) for _, _, s, offset, _ in copies if int(s) == side]
            assert mine == list(range(RECORDS)), f"seed {seed}, side {side}"
    logs = pipelines.logs + pipelines.broker.log()
    assert " ERROR " not in logs, logs
    cleaned = logs.count("% size reduction")
    assert cleaned > SEEDS, "compaction did not keep up, so this has tested little"
