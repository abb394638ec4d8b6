"""A running Kafka takes over directories that we have cleaned: serves, appends, cleans them again.

What must be there is worked out from what was written, not from what we read back: below the end of
the last pass the last committed record of each key, above it everything.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.clock import SystemClock
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.log.recovery import LoadRequest
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import MakeBroker
from tests.kafka.engines import ENGINES, close_engine
from tests.kafka.harness import Harness, ProducerScript
from tests.kafka.states import Consumed, Headers, NewRecord

SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1500",
    "index.interval.bytes": "200",
    "delete.retention.ms": "86400000",
    "segment.ms": "604800000",
    "retention.ms": "-1",
}
NOW_MS: Final = SystemClock().now_ms()  # of this run: producers that were silent for a day expire
FIRST_PRODUCER_ID: Final = 5_000_000  # above those that a new Kafka gives away
EVERYTHING: Final = 2**31 - 1
TIMEOUT_SECONDS: Final = 180


@dataclass(frozen=True, slots=True)
class Written:
    """A record that somebody wrote, and whether its transaction, if any, was committed."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    headers: Headers
    is_committed: bool


@dataclass
class Topic:
    """A topic, everything that was ever written to it, and up to where it was cleaned."""

    name: str
    written: list[Written] = field(default_factory=list)
    cleaned_to: int = 0

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    def expected(self, *, committed_only: bool) -> list[Written]:
        """Say what a consumer must find."""
        clean = [w for w in self.written if w.offset < self.cleaned_to]
        latest = {w.key: w.offset for w in clean if w.is_committed}
        left = [w for w in clean if latest.get(w.key) == w.offset]
        above = [w for w in self.written if w.offset >= self.cleaned_to]
        return left + [w for w in above if w.is_committed or not committed_only]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kafka_serves_continues_and_cleans_what_we_have_cleaned(
    make_broker: MakeBroker, harness: Harness, tmp_path: Path
) -> None:
    broker = make_broker(properties={"log.cleaner.min.cleanable.ratio": "1.0"})
    broker.start()
    topics = [Topic(f"by-{name}") for name in ENGINES]
    for topic in topics:
        broker.create_topic(topic.name, config=SETTINGS)
    broker.stop()
    for topic in topics:
        write_and_clean(topic, tmp_path / topic.name)
        hand_over(broker, topic, tmp_path / topic.name)

    broker.start()
    assert broker.complaints() == []
    check_consumers(harness, broker, topics)
    for topic in topics:
        produce(harness, broker, topic)
    check_consumers(harness, broker, topics)

    # From now on its own cleaner is at work.
    broker.restart(
        properties={
            "log.cleaner.min.cleanable.ratio": "0.0",
            "log.cleaner.backoff.ms": "100",
        }
    )
    for topic in topics:
        topic.cleaned_to = wait_for_cleaner(broker, topic)
    check_consumers(harness, broker, topics)
    assert broker.complaints() == []
    broker.stop()

    for topic in topics:
        check_our_reader(topic, broker.partition_dir(topic.name))


# Before: our own log


def write_and_clean(topic: Topic, log_dir: Path) -> None:
    """Write a log with all kinds of batches, run two passes, and stop in good order."""
    checkpoints = CleanerCheckpoints(FileSystem(), log_dir)
    log = open_log(topic, log_dir / f"{topic.name}-0", was_clean=True)
    rng = random.Random(topic.name)
    with engine_of(topic) as engine:
        runner = PassRunner(FileSystem(), SystemClock(), engine, checkpoints)
        for _ in range(2):
            write(topic, log, rng)
            log.roll()
            write(topic, log, rng)
            log.update_high_watermark(log.log_end_offset)
            assessment, _ = assess_log(log, checkpoints.find(topic.partition), NOW_MS)
            assert assessment.is_eligible
            runner.run(log, plan_pass(log, assessment, NOW_MS))
            topic.cleaned_to = assessment.first_uncleanable_offset
    assert log.segments.active.size_bytes
    log.close()


@contextmanager
def engine_of(topic: Topic) -> Iterator[CleaningEngine]:
    """Make the engine after which a topic is named."""
    make, _ = ENGINES[topic.name.removeprefix("by-")]
    engine = make()
    yield engine
    close_engine(engine)


def write(topic: Topic, log: PartitionLog, rng: random.Random) -> None:
    """Append batches of plain, idempotent and transactional producers, all transactions ended."""
    for number in range(25):
        producer_id = FIRST_PRODUCER_ID + rng.randrange(4)
        kind = rng.choice(["plain", "idempotent", "committed", "aborted"])
        records = [
            Record(
                slot,
                NOW_MS + number,
                b"key-%d" % rng.randrange(20),
                rng.choice([None, b"", b"v" * rng.randrange(100), b"%d" % number]),
                (("h", b"x"), ("null", None)) if rng.random() < 0.2 else (),
            )
            for slot in range(rng.choice([1, 2, 5]))
        ]
        known = log.producer_state.entries.get(producer_id)
        is_plain = kind == "plain"
        is_transactional = kind in ("committed", "aborted")
        data = build_batch(
            records,
            codec=rng.choice(list(Codec)),
            producer_id=-1 if is_plain else producer_id,
            producer_epoch=-1 if is_plain else 0,
            base_sequence=-1 if is_plain else 0 if known is None else known.last_sequence + 1,
            is_transactional=is_transactional,
        )
        appended = log.append(data, leader_epoch=0)
        note(topic, appended.first_offset, records, is_committed=kind != "aborted")
        if is_transactional:
            log.append(
                build_marker(
                    ControlType.COMMIT if kind == "committed" else ControlType.ABORT,
                    offset=0,
                    timestamp_ms=NOW_MS + number,
                    producer_id=producer_id,
                    producer_epoch=0,
                    coordinator_epoch=0,
                ),
                leader_epoch=0,
                origin=AppendOrigin.COORDINATOR,
            )


def note(topic: Topic, first_offset: int, records: Iterable[Record], *, is_committed: bool) -> None:
    for record in records:
        assert record.key is not None
        topic.written.append(
            Written(
                first_offset + record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
                is_committed,
            )
        )


def open_log(topic: Topic, directory: Path, *, was_clean: bool) -> PartitionLog:
    request = LoadRequest(
        partition=topic.partition,
        directory=directory,
        config=LogConfig.parse(SETTINGS),
        now_ms=NOW_MS,
        was_clean=was_clean,
    )
    return PartitionLog(FileSystem(), SystemClock(), request)


def hand_over(broker: KafkaBroker, topic: Topic, log_dir: Path) -> None:
    """Give Kafka the directory, and the offset up to which it is clean."""
    broker.adopt_partition(log_dir / f"{topic.name}-0", topic.name)
    CleanerCheckpoints(FileSystem(), broker.log_dir).put(topic.partition, topic.cleaned_to)


# Meanwhile: Kafka


def check_consumers(harness: Harness, broker: KafkaBroker, topics: Sequence[Topic]) -> None:
    for topic in topics:
        everything = harness.consume(broker.bootstrap, topic.name)
        assert consumed(everything) == facts(topic.expected(committed_only=False))
        committed = harness.consume(broker.bootstrap, topic.name, isolation="read_committed")
        assert consumed(committed) == facts(topic.expected(committed_only=True))
        assert committed.end_offset == everything.end_offset


def produce(harness: Harness, broker: KafkaBroker, topic: Topic) -> None:
    """Let Kafka's own producers write on: updates, deletions, a commit and an abort."""
    rng = random.Random(f"more {topic.name}")
    script = ProducerScript()
    script.producer("plain", compression_type="lz4")
    script.producer("transactional", transactional_id=f"txn-{topic.name}")
    records: list[tuple[NewRecord, bool]] = []
    for number in range(40):
        record = NewRecord(
            key=b"key-%d" % rng.randrange(20),
            value=rng.choice([None, b"w" * rng.randrange(150)]),
            timestamp_ms=NOW_MS + 1000 + number,
            headers=(("by", b"kafka"),),
        )
        if number % 4 < 2:
            script.send(topic.name, record, producer="plain")
            script.flush("plain")
            records.append((record, True))
            continue
        is_committed = number % 4 == 2
        script.begin("transactional")
        script.send(topic.name, record, producer="transactional")
        script.flush("transactional")
        if is_committed:
            script.commit("transactional")
        else:
            script.abort("transactional")
        records.append((record, is_committed))
    script.close("plain")
    script.close("transactional")
    for sent, (record, is_committed) in zip(
        harness.produce(broker.bootstrap, script), records, strict=True
    ):
        assert record.key is not None
        topic.written.append(
            Written(
                sent.offset,
                sent.timestamp_ms,
                record.key,
                record.value,
                record.headers,
                is_committed,
            )
        )


def wait_for_cleaner(broker: KafkaBroker, topic: Topic) -> int:
    """Wait until Kafka's cleaner has got as far as it may, and say how far that is."""
    checkpoints = CleanerCheckpoints(FileSystem(), broker.log_dir)
    directory = broker.partition_dir(topic.name)
    active = max(int(path.name.removesuffix(filenames.LOG)) for path in directory.glob("*.log"))
    assert active > topic.cleaned_to
    wait_until(
        lambda: checkpoints.find(topic.partition) == active,
        f"the cleaner to reach {active} in {topic.name}",
        broker,
    )
    return active


def wait_until(condition: Callable[[], bool], what: str, broker: KafkaBroker) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}:\n{broker.log_tail()}"
        time.sleep(0.05)


# Afterwards: our log again


def check_our_reader(topic: Topic, partition_dir: Path) -> None:
    """Read what Kafka's cleaner has left, then clean it once more: nothing may change."""
    directory = partition_dir.parent.parent / "back" / partition_dir.name
    shutil.copytree(partition_dir, directory)
    log = open_log(topic, directory, was_clean=True)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert read(log) == facts(topic.expected(committed_only=False))
    assessment, _ = assess_log(log, topic.cleaned_to, NOW_MS)
    assert assessment.first_uncleanable_offset == topic.cleaned_to
    assert not assessment.is_eligible

    with engine_of(topic) as engine:
        checkpoints = CleanerCheckpoints(FileSystem(), directory.parent)
        runner = PassRunner(FileSystem(), SystemClock(), engine, checkpoints)
        runner.run(log, plan_pass(log, assessment, NOW_MS))

    assert read(log) == facts(topic.expected(committed_only=False))
    log.close()


def read(log: PartitionLog) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    offset = log.log_start_offset
    while True:
        result = log.read(offset, EVERYTHING, Isolation.HIGH_WATERMARK)
        if result.slice is None:
            return found
        for batch in result.batches():
            offset = batch.header.next_offset
            if not batch.header.is_control:
                found.extend(tuple(record) for record in batch.iter_records())


def facts(records: Iterable[Written]) -> list[tuple[object, ...]]:
    return [(w.offset, w.timestamp_ms, w.key, w.value, w.headers) for w in records]


def consumed(result: Consumed) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in result.records]
