"""A transactional producer that speaks raw frames, in the versions that a test wants."""

import time
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.serving import RawClient

# What a client waits out: a coordinator or a leader that finishes something, or is not ready yet.
RETRIED = {
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_leader_or_follower,
}
_PATIENCE_SECONDS = 120


def patiently(ask: Callable[[], Any], code_of: Callable[[Any], ErrorCode]) -> Any:
    """Ask until the answer is one that a client would act upon."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        answer = ask()
        if code_of(answer) not in RETRIED:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


class RawProducer:
    """One producer; `version` 2 of the protocol raises its epoch with every end."""

    def __init__(self, raw: RawClient, transactional_id: str, *, version: int = 2) -> None:
        self.raw = raw
        self.transactional_id = transactional_id
        self.is_second = version == 2
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def ask_init(self, version: int = 4, timeout_ms: int = 60_000, **values: Any) -> Any:
        """Ask once for a producer id, and return the answer."""
        return self.raw.ask(
            wire.INIT_PRODUCER_ID,
            version,
            transactional_id=self.transactional_id,
            transaction_timeout=timeout_ms,
            **values,
        )

    def init(self, version: int = 4, timeout_ms: int = 60_000, **values: Any) -> "RawProducer":
        """Become the producer of the transactional id."""
        find_coordinator(self.raw, self.transactional_id)
        answer = patiently(
            lambda: self.ask_init(version, timeout_ms, **values), lambda a: a.error_code
        )
        assert answer.error_code == ErrorCode.none, answer
        self.take(answer)
        return self

    def take(self, answer: Any) -> None:
        """Go on as who the coordinator says."""
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        """Add partitions to the transaction, and return their codes."""

        def ask() -> Any:
            return self.raw.ask(
                wire.ADD_PARTITIONS_TO_TXN,
                version,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": topic, "partitions": partitions}],
            )

        answer = patiently(ask, lambda a: codes_of(a.results_by_topic_v3_and_below)[0])
        return codes_of(answer.results_by_topic_v3_and_below)

    def verify(self, topic: str, *partitions: int) -> dict[int, ErrorCode]:
        """Ask whether partitions are in the transaction."""
        asked = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "verify_only": True,
            "topics": [{"name": topic, "partitions": partitions}],
        }
        answer = self.raw.ask(wire.ADD_PARTITIONS_TO_TXN, 4, transactions=[asked])
        (found,) = answer.results_by_transaction[0].topic_results
        return {p.partition_index: p.partition_error_code for p in found.results_by_partition}

    def ask_produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        key: bytes | None = None,
        version: int,
    ) -> Any:
        """Send one batch, and return the answer for its partition; the values are their keys."""
        sequence = self.sequences.get((topic, partition), 0)
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [Record(i, now_ms, key or value, value) for i, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        answer = self.raw.ask(
            wire.PRODUCE,
            version,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=30_000,
            topic_data=[
                {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
            ],
        )
        part = answer.responses[0].partition_responses[0]
        if part.error_code == ErrorCode.none:
            self.sequences[topic, partition] = sequence + len(values)
        return part

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, key: bytes | None = None
    ) -> int:
        """Write records in the transaction, and return the offset of the first."""
        if not self.is_second:
            assert self.add(topic, partition) == [ErrorCode.none]
        version = 12 if self.is_second else 10
        answer = patiently(
            lambda: self.ask_produce(topic, *values, partition=partition, key=key, version=version),
            lambda a: a.error_code,
        )
        assert answer.error_code == ErrorCode.none, answer
        return int(answer.base_offset)

    def ask_end(self, *, commit: bool, version: int | None = None) -> Any:
        """Ask once to end the transaction, and return the answer."""
        return self.raw.ask(
            wire.END_TXN,
            (5 if self.is_second else 3) if version is None else version,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        answer = patiently(lambda: self.ask_end(commit=commit), lambda a: a.error_code)
        assert answer.error_code == ErrorCode.none, answer
        if self.is_second:
            self.take(answer)

    def describe(self) -> Any:
        """Return what the coordinator knows of the transactional id."""
        answer = self.raw.ask(
            wire.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.transactional_id]
        )
        return answer.transaction_states[0]


def fetch(raw: RawClient, topic: str, offset: int = 0, *, committed: bool = True) -> Any:
    """Return what there is in the first partition of a topic."""
    part = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
    }
    answer = raw.ask(
        wire.FETCH,
        11,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[{"topic": topic, "partitions": [part]}],
        forgotten_topics_data=(),
        rack_id="",
    )
    return answer.responses[0].partitions[0]


def create_topic(raw: RawClient, topic: str, **config: str) -> None:
    """Create a topic of one partition; underscores in setting names stand for dots."""
    asked = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": [{"name": k.replace("_", "."), "value": v} for k, v in config.items()],
    }
    answer = raw.ask(wire.CREATE_TOPICS, 7, topics=[asked], timeout=30_000, validate_only=False)
    assert answer.topics[0].error_code == ErrorCode.none


def find_coordinator(raw: RawClient, transactional_id: str) -> None:
    """Wait until there is a coordinator: a real Kafka makes its topic first, and then loads it."""
    patiently(
        lambda: raw.ask(wire.FIND_COORDINATOR, 3, key=transactional_id, key_type=1),
        lambda answer: answer.error_code,
    )
    nobody = RawProducer(raw, transactional_id, version=1)  # has nothing to end
    patiently(lambda: nobody.ask_end(commit=False), lambda answer: answer.error_code)


def codes_of(topics: Any) -> list[ErrorCode]:
    """Return the codes of an answer to AddPartitionsToTxn, in its order."""
    return [part.partition_error_code for topic in topics for part in topic.results_by_partition]
