"""Directories that a real Kafka wrote: in use, stopped in good order, and killed.

Kafka's Java producer and librdkafka write with every codec, in transactions that commit, abort and
stay open. Then Kafka is asked what it holds, and we are asked the same about its files: through
LogReader, which shall not change a byte of them, and through LogManager on a copy.
"""

import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from siltstone.cli.main import run as silt
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import Harness, ProducerScript
from tests.kafka.log_ops import LogOps
from tests.kafka.markers import wait_for_markers
from tests.kafka.reading import ReadRecord, read_with_ours, records_of
from tests.kafka.states import NewRecord

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PHASES: Final = ("running", "stopped", "killed")
FLUSH_TIMEOUT_SECONDS: Final = 120
# Or the coordinator would end the open transactions in the middle of the tests.
TRANSACTION_TIMEOUT_MS: Final = 800_000
DENSE: Final = {"segment.bytes": 3000, "index.interval.bytes": 100, "segment.index.bytes": 4096}

TOPICS: Final[Mapping[str, int]] = {
    "java": len(CODECS),
    "librdkafka": len(CODECS),
    "transactions": 1,
    "append-time": 1,
    "trimmed": 1,
    "empty": 1,
}
PARTITIONS: Final = [TopicPartition(t, p) for t, count in TOPICS.items() for p in range(count)]


@dataclass(frozen=True)
class Said:
    """What Kafka's clients get to know of a partition."""

    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int
    everything: Sequence[ReadRecord]
    committed: Sequence[ReadRecord]
    offsets_by_time: Mapping[int, int | None]


@dataclass(frozen=True)
class Facts(Said):
    """What there is to know of a partition."""

    aborted: Sequence[tuple[int, ...]]  # producer, first and last offset, last stable offset
    producers: Sequence[tuple[int, ...]]
    epochs: Sequence[tuple[int, ...]]


FACTS: Final = [fact.name for fact in fields(Facts)]


@dataclass(frozen=True)
class Phase:
    """Kafka's directory at one point in its life, what Kafka said, and what our reader found."""

    log_dir: Path  # a copy
    expected: Mapping[TopicPartition, Facts]
    found: Mapping[TopicPartition, Facts]
    digests: tuple[Mapping[str, str], Mapping[str, str]]  # before we have read it and after


@pytest.fixture(scope="module")
def phases(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Phase]:
    directory = tmp_path_factory.mktemp("kafka-writes")
    # By default a new log start is on disk after a minute only.
    properties = {"log.flush.start.offset.checkpoint.interval.ms": "100"}
    with KafkaBroker(harness, directory / "broker", properties=properties) as broker:
        broker.start()
        for topic, partitions in TOPICS.items():
            timestamp_type = "LogAppendTime" if topic == "append-time" else "CreateTime"
            broker.create_topic(
                topic, partitions, {**DENSE, "message.timestamp.type": timestamp_type}
            )
        write(harness, broker, "first")
        delete_records(broker, "trimmed", 33)
        times = times_to_look_up()
        said = ask_kafka(harness, broker, times)
        running = examine(harness.log_ops, directory / "running", broker, said, is_clean=False)

        broker.stop()
        stopped = examine(harness.log_ops, directory / "stopped", broker, said, is_clean=True)

        broker.start()
        write(harness, broker, "second")
        said = ask_kafka(harness, broker, times)
        broker.kill()
        killed = examine(harness.log_ops, directory / "killed", broker, said, is_clean=False)
    return {"running": running, "stopped": stopped, "killed": killed}


# Writing


def write(harness: Harness, broker: KafkaBroker, name: str) -> None:
    write_with_java(harness, broker, name)
    write_with_librdkafka(broker)
    write_transactions_with_java(harness, broker, name)
    write_transactions_with_librdkafka(broker, name)
    leave_a_transaction_open(harness, broker, name)


def new_records(number: int) -> list[NewRecord]:
    """Make records of all shapes; their times rise and fall."""
    now_ms = time.time_ns() // 1_000_000
    headers = (("h", b"x"), ("h", b"y"), ("null", None), ("ü", b""))
    return [
        NewRecord(key=b"key-%d" % number, value=b"value " * 20, timestamp_ms=now_ms - 500),
        NewRecord(key=None, value=b"", timestamp_ms=now_ms - 1000 + number, headers=headers),
        NewRecord(key=b"", value=None, timestamp_ms=now_ms - 2000),
    ]


def write_with_java(harness: Harness, broker: KafkaBroker, name: str) -> None:
    script = ProducerScript()
    for codec in CODECS:
        script.producer(codec, compression_type=codec)
    for number in range(15):
        for partition, codec in enumerate(CODECS):
            for record in new_records(number):
                script.send("java", record, partition=partition, producer=codec)
            script.flush(codec)
        for topic in ("append-time", "trimmed"):
            for record in new_records(number):
                script.send(topic, record, producer="lz4")
            script.flush("lz4")
    harness.produce(broker.bootstrap, script)


def write_with_librdkafka(broker: KafkaBroker) -> None:
    for partition, codec in enumerate(CODECS):
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": codec,
                "enable.idempotence": partition % 2 == 0,
            }
        )
        for number in range(15):
            send(producer, "librdkafka", number, partition)


def send(producer: confluent_kafka.Producer, topic: str, number: int, partition: int = 0) -> None:
    for record in new_records(number):
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            timestamp=record.timestamp_ms or 0,
            headers=list(record.headers),
        )
    assert producer.flush(FLUSH_TIMEOUT_SECONDS) == 0


def write_transactions_with_java(harness: Harness, broker: KafkaBroker, name: str) -> None:
    """Write transactions that interleave with each other."""
    script = ProducerScript()
    for producer in ("a", "b"):
        script.producer(producer, transactional_id=f"{name}-{producer}", compression_type="zstd")
    for number in range(8):
        for producer in ("a", "b"):
            script.begin(producer)
            for record in new_records(number):
                script.send("transactions", record, producer=producer)
            script.flush(producer)
        for bit, producer in enumerate(("a", "b")):
            if number >> bit & 1:
                script.commit(producer)
            else:
                script.abort(producer)
    harness.produce(broker.bootstrap, script)


def write_transactions_with_librdkafka(broker: KafkaBroker, name: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{name}-c"}
    )
    producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
    for number in range(4):
        producer.begin_transaction()
        send(producer, "transactions", number)
        if number % 2:
            producer.commit_transaction(FLUSH_TIMEOUT_SECONDS)
        else:
            producer.abort_transaction(FLUSH_TIMEOUT_SECONDS)
    wait_for_markers(broker.bootstrap, f"{name}-c")


def leave_a_transaction_open(harness: Harness, broker: KafkaBroker, name: str) -> None:
    script = ProducerScript()
    script.producer(
        "open",
        transactional_id=f"{name}-open",
        transaction_timeout_ms=str(TRANSACTION_TIMEOUT_MS),
    )
    script.begin("open")
    for record in new_records(0):
        script.send("transactions", record, producer="open")
    script.halt()
    harness.produce(broker.bootstrap, script)


def delete_records(broker: KafkaBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = confluent_kafka.TopicPartition(topic, 0, offset)
    for deleted in admin.delete_records([partition]).values():
        deleted.result(FLUSH_TIMEOUT_SECONDS)
    checkpoint = broker.log_dir / "log-start-offset-checkpoint"
    deadline = time.monotonic() + FLUSH_TIMEOUT_SECONDS
    while f"{topic} 0 {offset}" not in checkpoint.read_text():
        assert time.monotonic() < deadline, "Kafka does not write down where the log starts"
        time.sleep(0.05)


# Asking


def times_to_look_up() -> list[int]:
    now_ms = time.time_ns() // 1_000_000
    return [now_ms + offset_ms for offset_ms in (-1_000_000, -3000, -1500, -995, -500, 1_000_000)]


def ask_kafka(
    harness: Harness, broker: KafkaBroker, times: Sequence[int]
) -> dict[TopicPartition, Said]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_uncommitted",  # times of undecided records count too
        }
    )
    said = {}
    for partition in PARTITIONS:
        topic, number = partition.topic, partition.partition
        everything = harness.consume(broker.bootstrap, topic, number)
        committed = harness.consume(broker.bootstrap, topic, number, isolation="read_committed")
        by_time = {}
        for time_ms in times:
            wanted = confluent_kafka.TopicPartition(topic, number, time_ms)
            (answer,) = consumer.offsets_for_times([wanted], FLUSH_TIMEOUT_SECONDS)
            by_time[time_ms] = answer.offset if answer.offset >= 0 else None
        said[partition] = Said(
            everything.beginning_offset,
            committed.end_offset,
            everything.end_offset,
            records_of(everything),
            records_of(committed),
            by_time,
        )
    consumer.close()
    return said


def examine(
    ops: LogOps,
    copy: Path,
    broker: KafkaBroker,
    said: Mapping[TopicPartition, Said],
    *,
    is_clean: bool,
) -> Phase:
    """Look at a directory with our reader, and at a copy of it with Kafka's own classes."""
    log_dir, is_running = broker.log_dir, broker.is_running
    before = digest(log_dir, is_running=is_running)
    reader = LogReader([log_dir])
    times = list(next(iter(said.values())).offsets_by_time)
    found = {partition: our_facts(reader.get_log(partition), times) for partition in said}
    for command in (
        ["dump", "--deep-iteration", "--print-data-log", *TOPICS],
        ["dump", "--verify-index-only", *TOPICS],
        ["consume", "transactions", "-e", "-o", "beginning"],
        ["offsets", "transactions"],
    ):
        assert silt([*command, "--log-dir", str(log_dir)]) == 0, command
    after = digest(log_dir, is_running=is_running)
    shutil.copytree(log_dir, copy, ignore=shutil.ignore_patterns("*.tmp"))
    expected = {
        partition: kafka_facts(ops, copy, partition, facts, is_clean)
        for partition, facts in said.items()
    }
    return Phase(copy, expected, found, (before, after))


def kafka_facts(
    ops: LogOps, log_dir: Path, partition: TopicPartition, said: Said, is_clean: bool
) -> Facts:
    """Add to what Kafka's clients know what is known inside of the broker only."""
    opened = log_dir.with_name(log_dir.name + "-opened") / str(partition)
    shutil.copytree(log_dir / str(partition), opened)
    log = ops.open(
        opened,
        clean=is_clean,
        now_ms=time.time_ns() // 1_000_000,
        log_start_offset=said.log_start_offset,
    )
    state = log.state
    log.forget()
    return Facts(
        **{field.name: getattr(said, field.name) for field in fields(said)},
        aborted=[
            (t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
            for t in state.aborted_transactions
        ],
        producers=[
            (
                p.producer_id,
                p.producer_epoch,
                p.last_sequence,
                p.last_data_offset,
                p.last_timestamp_ms,
                p.coordinator_epoch,
                p.current_txn_first_offset,
            )
            for p in state.producers
        ],
        epochs=state.epochs,
    )


def our_facts(log: PartitionLog, times: Sequence[int]) -> Facts:
    by_time = {time_ms: log.find_offset_by_timestamp(time_ms) for time_ms in times}
    return Facts(
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
        log_end_offset=log.log_end_offset,
        everything=read_with_ours(log),
        committed=read_with_ours(log, Isolation.COMMITTED),
        offsets_by_time={
            time_ms: None if found is None else found.offset for time_ms, found in by_time.items()
        },
        aborted=[
            tuple(txn) for txn in log.collect_aborted(log.log_start_offset, log.log_end_offset)
        ],
        producers=[
            (
                producer_id,
                entry.epoch,
                entry.last_sequence,
                -1 if entry.last_data_offset is None else entry.last_data_offset,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
            for producer_id, entry in sorted(log.producer_state.entries.items())
        ],
        epochs=tuple(tuple(entry) for entry in log.leader_epochs.entries),
    )


def digest(log_dir: Path, *, is_running: bool) -> dict[str, str]:
    """Sum up every file, but those that Kafka itself changes while it runs."""
    directories = [log_dir / str(partition) for partition in PARTITIONS]
    return {
        str(path.relative_to(log_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for directory in (directories if is_running else [log_dir])
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


# Comparing


def test_kafka_has_written_what_these_tests_are_about(phases: Mapping[str, Phase]) -> None:
    transactions = phases["killed"].expected[TopicPartition("transactions", 0)]
    assert transactions.log_start_offset < transactions.last_stable_offset
    assert transactions.last_stable_offset < transactions.log_end_offset  # one is open
    assert len(transactions.aborted) > 5
    assert transactions.committed
    assert len(transactions.producers) > 3
    assert len(transactions.epochs) > 1  # Kafka was started twice
    trimmed = phases["killed"].expected[TopicPartition("trimmed", 0)]
    assert trimmed.log_start_offset == 33
    for partition in PARTITIONS:
        segments = list((phases["killed"].log_dir / str(partition)).glob("*.log"))
        assert len(segments) > 1 or partition.topic == "empty", partition
    assert (phases["stopped"].log_dir / ".kafka_cleanshutdown").exists()
    assert not (phases["killed"].log_dir / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("phase", PHASES)
def test_our_reader_finds_what_kafka_holds(
    phase: str, fact: str, phases: Mapping[str, Phase]
) -> None:
    for partition in PARTITIONS:
        expected, found = phases[phase].expected[partition], phases[phase].found[partition]
        assert getattr(found, fact) == getattr(expected, fact), partition


@pytest.mark.parametrize("phase", PHASES)
def test_our_readers_do_not_change_a_byte(phase: str, phases: Mapping[str, Phase]) -> None:
    before, after = phases[phase].digests

    assert before == after


@pytest.mark.parametrize("phase", PHASES)
def test_our_manager_takes_over_what_kafka_holds(
    phase: str, phases: Mapping[str, Phase], tmp_path: Path
) -> None:
    log_dir = tmp_path / "copy"
    shutil.copytree(phases[phase].log_dir, log_dir)

    with LogManager([log_dir]) as manager:
        for partition, expected in phases[phase].expected.items():
            log = manager.get_log(partition)
            found = our_facts(log, list(expected.offsets_by_time))
            for fact in FACTS:
                assert getattr(found, fact) == getattr(expected, fact), (partition, fact)

    # And so it is after a clean stop of ours.
    with LogManager([log_dir]) as manager:
        for partition, expected in phases[phase].expected.items():
            found = our_facts(manager.get_log(partition), list(expected.offsets_by_time))
            for fact in FACTS:
                assert getattr(found, fact) == getattr(expected, fact), (partition, fact)
