"""A worker of the read-process-write pipelines: `python -m tests.support.pipeline_worker JSON`.

For each of its slots it reads one input partition and writes, in transactions of a few records and
together with the offsets, two records for each that it read: one under a key of its own, one under
a key that comes again and again. Some transactions it aborts on purpose and tries again. It may be
killed at any time; the next incarnation goes on where the committed offsets say.

What it is about to write, and what became of it, it notes in a journal: one line for each.
"""

import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

INPUT, OUTPUT = "pipeline-input", "pipeline-output"
GROUP = "pipeline"
SIDES = 2  # workers of one seed, which write to the same output partition
WANTED = b"wanted"  # written, and its transaction is about to be tried
COMMITTED, ABORTED = b"committed", b"aborted"
CLIENT_CONFIG: dict[str, str | int | float] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "log_level": 0,
    # Else librdkafka begins anew when its only broker is away, and remembers the old connection as
    # the group's coordinator: TxnOffsetCommit is never sent.
    "metadata.recovery.strategy": "none",
}
_TIMEOUT_SECONDS = 60
_ABORT_RATIO = 0.2
_MOST_RECORDS = 4
_TABLE_KEYS = 3


class Orders(NamedTuple):
    """What a worker is told."""

    bootstrap: str
    journal_path: str
    incarnation: int
    partitions: list[int]  # of the input


class Slot:
    """One input partition, and the transactional producer that works it off."""

    def __init__(self, worker: "Worker", partition: int) -> None:
        self.partition = partition
        self.seed, self.side = divmod(partition, SIDES)
        self.waiting: deque[tuple[int, bytes]] = deque()
        self._worker = worker
        self._random = random.Random(f"{partition}/{worker.orders.incarnation}")
        self._attempt = 0
        self._producer: Producer | None = None

    def open(self) -> int:
        """Fence whoever was here before, and return where they came to."""
        producer = self._producer = Producer(
            {
                **CLIENT_CONFIG,
                "bootstrap.servers": self._worker.orders.bootstrap,
                "transactional.id": f"pipeline-{self.seed}-{self.side}",
                "transaction.timeout.ms": 30_000,
                "linger.ms": 0,
            }
        )
        _until_done(lambda: producer.init_transactions(_TIMEOUT_SECONDS))
        self.waiting.clear()
        # Only now: what they left undecided is decided.
        (found,) = self._worker.consumer.committed(
            [TopicPartition(INPUT, self.partition)], _TIMEOUT_SECONDS
        )
        return max(0, int(found.offset))

    def step(self) -> None:
        """Work off a few of the records that wait, in one transaction."""
        producer = self._producer
        assert producer is not None
        batch = list(self.waiting)[: self._random.randint(1, _MOST_RECORDS)]
        self._attempt += 1
        attempt = f"{self._worker.orders.incarnation}.{self._attempt}"
        values = [
            b"%s/%d/%d/%d/%s" % (kind, self.seed, self.side, offset, attempt.encode())
            for offset, _ in batch
            for kind in (b"copy", b"table")
        ]
        self._worker.note(WANTED, values)
        producer.begin_transaction()
        for value in values:
            kind, _, _, offset, _ = value.split(b"/")
            key = value if kind == b"copy" else b"%d" % (int(offset) % _TABLE_KEYS)
            producer.produce(OUTPUT, value, key, partition=self.seed)
        if self._random.random() < _ABORT_RATIO:
            if self._random.random() < 0.5:
                producer.flush(_TIMEOUT_SECONDS)
            _until_done(lambda: producer.abort_transaction(_TIMEOUT_SECONDS))
            self._worker.note(ABORTED, values)
            return
        consumer = self._worker.consumer
        done = TopicPartition(INPUT, self.partition, batch[-1][0] + 1)
        _until_done(
            lambda: producer.send_offsets_to_transaction(
                [done], consumer.consumer_group_metadata(), _TIMEOUT_SECONDS
            )
        )
        _until_done(lambda: producer.commit_transaction(_TIMEOUT_SECONDS))
        self._worker.note(COMMITTED, values)
        for _ in batch:
            self.waiting.popleft()


class Worker:
    """One process with some slots."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.consumer = Consumer(
            {
                **CLIENT_CONFIG,
                "bootstrap.servers": orders.bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._journal = os.open(orders.journal_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._slots = {number: Slot(self, number) for number in orders.partitions}

    def note(self, what: bytes, values: list[bytes]) -> None:
        """Write a line into the journal, which survives this process."""
        os.write(self._journal, what + b" " + b" ".join(values) + b"\n")

    def run(self) -> None:
        """Work until killed."""
        with ThreadPoolExecutor(8) as pool:
            starts = list(pool.map(Slot.open, self._slots.values()))
        self.consumer.assign(
            [
                TopicPartition(INPUT, number, start)
                for number, start in zip(self._slots, starts, strict=True)
            ]
        )
        while True:
            waits = not any(slot.waiting for slot in self._slots.values())
            for message in self.consumer.consume(500, 0.2 if waits else 0):
                if message.error() is None:
                    offset, number = message.offset(), message.partition()
                    value = message.value()
                    assert offset is not None
                    assert number is not None
                    assert isinstance(value, bytes)
                    self._slots[number].waiting.append((offset, value))
            for slot in self._slots.values():
                if slot.waiting:
                    self._step(slot)

    def _step(self, slot: Slot) -> None:
        try:
            slot.step()
        except KafkaException:
            # Whatever it is, a producer that begins anew knows where it is.
            start = slot.open()
            self.consumer.seek(TopicPartition(INPUT, slot.partition, start))


def _until_done(call: Callable[[], object]) -> None:
    """Call again what may be called again, as when the broker is away for a while."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    Worker(Orders(*json.loads(sys.argv[1]))).run()
