"""A real Kafka takes over log directories that we have written, after a clean stop and a crash.

Kafka creates the topics, because it finds them by id in its metadata log, and stops. We open its
directories, checkpoints and all, write, and stop. Kafka must then start without a warning, its
consumer must get every record, and its dump tool must have nothing to say about any file.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import Harness
from tests.kafka.reading import IsolationLevel, ReadRecord, read_with_kafka
from tests.kafka.tools import KafkaTools

ROOT: Final = Path(__file__).parents[2]
T0: Final = 1_600_000_000_000
LOG_DIRS: Final = 3
DENSE: Final = {"segment.bytes": "2000", "index.interval.bytes": "100"}

# Topic -> number of partitions and our settings; Kafka creates them with its own defaults.
TOPICS: Final[Mapping[str, tuple[int, Mapping[str, str]]]] = {
    "codecs": (len(Codec), DENSE),
    "transactions": (1, DENSE),
    "producers": (1, DENSE),
    "append-time": (1, {**DENSE, "message.timestamp.type": "LogAppendTime"}),
    "gzip": (1, {**DENSE, "compression.type": "gzip"}),
    "snappy": (1, {**DENSE, "compression.type": "snappy"}),
    "lz4": (1, {**DENSE, "compression.type": "lz4"}),
    "zstd": (1, {**DENSE, "compression.type": "zstd"}),
    "preallocated": (1, {**DENSE, "preallocate": "true"}),
    "trimmed": (1, {**DENSE, "retention.ms": "-1"}),
    "untouched": (1, {}),
    "killed": (LOG_DIRS, {**DENSE, "flush.messages": "1"}),
}


@dataclass
class Author:
    """Writes to a log of ours and remembers what its readers must get."""

    log: PartitionLog
    timestamp_type: str = "CreateTime"
    records: list[ReadRecord] = field(default_factory=list)
    undecided: dict[int, list[ReadRecord]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)  # offsets
    sequences: dict[int, int] = field(default_factory=dict)

    def append(
        self,
        records: Sequence[Record],
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        epoch: int = 0,
        *,
        transactional: bool = False,
    ) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(records)
        is_anonymous = producer_id < 0
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if is_anonymous else epoch,
            base_sequence=-1 if is_anonymous else sequence,
            is_transactional=transactional,
        )
        info = self.log.append(batch)
        append_time_ms = info.log_append_time_ms
        stored = [
            ReadRecord(
                info.first_offset + record.offset,
                record.timestamp_ms if append_time_ms < 0 else append_time_ms,
                self.timestamp_type,
                record.key,
                record.value,
                record.headers,
            )
            for record in records
        ]
        self.records += stored
        if transactional:
            self.undecided.setdefault(producer_id, []).extend(stored)

    def end(self, kind: ControlType, producer_id: int, epoch: int = 0) -> None:
        marker = build_marker(
            kind,
            offset=0,
            timestamp_ms=T0,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
        )
        self.log.append(marker, origin=AppendOrigin.COORDINATOR)
        ended = self.undecided.pop(producer_id)
        if kind is ControlType.ABORT:
            self.aborted |= {record.offset for record in ended}

    def readable(self, isolation: IsolationLevel) -> list[ReadRecord]:
        """Say what a consumer gets."""
        start = self.log.log_start_offset
        if isolation == "read_uncommitted":
            return [record for record in self.records if record.offset >= start]
        end = min((r[0].offset for r in self.undecided.values()), default=self.log.log_end_offset)
        return [
            record
            for record in self.records
            if start <= record.offset < end and record.offset not in self.aborted
        ]


def varied_records(rng: random.Random, count: int) -> list[Record]:
    """Make records of all shapes: nulls, empty ones, headers, times that do not rise."""
    return [
        Record(
            number,
            T0 + rng.randint(-10_000, 10_000),
            rng.choice([None, b"", b"key-%d" % rng.randint(0, 5)]),
            rng.choice([None, b"", b"value " * rng.randint(1, 40), rng.randbytes(50)]),
            rng.choice([(), (), (("h", b"x"), ("h", b"y"), ("null", None), ("ü", b""))]),
        )
        for number in range(count)
    ]


@dataclass
class Takeover:
    """Kafka on directories that we have written, and who wrote what."""

    broker: KafkaBroker
    authors: Mapping[TopicPartition, Author]
    copies: Path  # of the partition directories as we left them
    complaints: Sequence[str]  # of Kafka's first start on them


@pytest.fixture(scope="module")
def takeover(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Takeover]:
    directory = tmp_path_factory.mktemp("takeover")
    broker = KafkaBroker(harness, directory / "broker", log_dir_count=LOG_DIRS)
    with broker:
        broker.start()
        for topic, (partitions, _) in TOPICS.items():
            broker.create_topic(topic, partitions)
        broker.stop()
        authors = write_everything(broker.log_dirs)
        copies = directory / "copies"
        for partition in authors:
            source = broker.partition_dir(partition.topic, partition.partition)
            shutil.copytree(source, copies / str(partition))
        broker.start()
        yield Takeover(broker, authors, copies, broker.complaints())


def write_everything(log_dirs: Sequence[Path]) -> dict[TopicPartition, Author]:
    rng = random.Random(1)
    with LogManager(log_dirs) as manager:
        for topic, (_, settings) in TOPICS.items():
            manager.alter_topic(topic, settings)
        authors = {
            partition: Author(
                log, TOPICS[partition.topic][1].get("message.timestamp.type", "CreateTime")
            )
            for partition, log in manager.logs.items()
        }
        for codec in Codec:
            write_plain(authors[TopicPartition("codecs", codec)], rng, [codec])
        for topic in ("append-time", "gzip", "snappy", "lz4", "zstd", "preallocated", "trimmed"):
            write_plain(authors[TopicPartition(topic, 0)], rng, list(Codec))
        write_transactions(authors[TopicPartition("transactions", 0)], rng)
        write_as_producers(authors[TopicPartition("producers", 0)], rng)
        trimmed = manager.get_log(TopicPartition("trimmed", 0))
        for log in manager.logs.values():
            log.update_high_watermark(log.log_end_offset)
        trimmed.delete_records(trimmed.log_end_offset // 2)
        assert trimmed.delete_old_segments() > 0
    return authors


def write_plain(author: Author, rng: random.Random, codecs: Sequence[Codec]) -> None:
    for _ in range(30):
        author.append(varied_records(rng, rng.choice([1, 2, 7])), rng.choice(codecs))


def write_as_producers(author: Author, rng: random.Random) -> None:
    for number in range(40):
        producer_id = 100 + number % 3
        epoch = number // 20
        if number == 20:
            author.sequences.clear()  # a new epoch begins at 0
        author.append(varied_records(rng, rng.randint(1, 4)), Codec.LZ4, producer_id, epoch)


def write_transactions(author: Author, rng: random.Random) -> None:
    """Write transactions that interleave, and leave one open."""
    for number in range(12):
        for producer_id in (200, 201):
            author.append(
                varied_records(rng, rng.randint(1, 3)),
                rng.choice(list(Codec)),
                producer_id,
                transactional=True,
            )
        author.append(varied_records(rng, 1))
        first, second = rng.sample([200, 201], 2)
        author.end(rng.choice([ControlType.ABORT, ControlType.COMMIT]), first)
        author.end(rng.choice([ControlType.ABORT, ControlType.COMMIT]), second)
        author.append(varied_records(rng, 2), Codec.ZSTD, 300 + number)
    author.append(varied_records(rng, 2), Codec.GZIP, 202, transactional=True)
    author.append(varied_records(rng, 2))


def test_kafka_loads_our_directories_without_a_complaint(takeover: Takeover) -> None:
    assert takeover.complaints == []

    # What it does about a log that it does not trust it may say at any level.
    about_logs = [
        line
        for line in takeover.broker.server_log().splitlines()
        if "partition=" in line and "__cluster_metadata" not in line
    ]
    assert any("partition=transactions-0" in line for line in about_logs)
    for phrase in ("Recovering unflushed", "rebuilding index", "orphaned", "orrupt", "runcating"):
        assert [line for line in about_logs if phrase in line] == []


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "killed"])
def test_kafkas_consumer_reads_every_record_that_we_wrote(
    topic: str, takeover: Takeover, harness: Harness
) -> None:
    for number in range(TOPICS[topic][0]):
        author = takeover.authors[TopicPartition(topic, number)]
        check_readable(takeover.broker, harness, topic, number, author)


def test_our_directories_have_several_segments_and_all_kinds_of_files(takeover: Takeover) -> None:
    # Or the tests of this module say less than their names.
    endings = {path.suffix for path in takeover.copies.rglob("*") if path.stat().st_size}
    assert endings >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    for partition in takeover.authors:
        segments = list((takeover.copies / str(partition)).glob("*.log"))
        assert partition.topic in ("untouched", "killed") or len(segments) > 1, partition
    trimmed = takeover.authors[TopicPartition("trimmed", 0)].log
    assert 0 < trimmed.segments.first.base_offset < trimmed.log_start_offset


def test_kafkas_dump_tool_finds_our_files_in_order(
    takeover: Takeover, kafka_tools: KafkaTools
) -> None:
    for partition in takeover.authors:
        directory = takeover.copies / str(partition)
        for segment in sorted(directory.glob("*.log")):
            first = int(segment.stem)
            files = [
                path
                for path in sorted(directory.glob(f"{segment.stem}.*"))
                # The tool refuses an index without entries, which is one that needs no check.
                if path.stat().st_size or path.suffix == ".log"
            ]
            dump = kafka_tools.dump_log(*files)
            # The tool compares the first offset of any segment with none.
            false_alarm = (f"Non-consecutive offsets in {segment}", f"  -1 is followed by {first}")
            assert dump.complaints in ((), false_alarm), files
            assert "isvalid: false" not in dump.output
            indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
            assert not indexes or kafka_tools.verify_indexes(*indexes) == (), indexes


def test_kafka_finds_producers_transactions_and_epochs_as_we_do(
    takeover: Takeover, harness: Harness
) -> None:
    for partition, author in takeover.authors.items():
        files = harness.partition_files(takeover.copies / str(partition))

        newest = max(files.snapshots, key=lambda snapshot: snapshot.offset, default=None)
        known = author.log.producer_state.entries
        assert [snapshot.error for snapshot in files.snapshots if snapshot.error] == []
        assert {
            p.producer_id: (p.producer_epoch, p.last_sequence, p.current_txn_first_offset)
            for p in (newest.producers if newest else ())
        } == {
            producer_id: (
                entry.epoch,
                entry.last_sequence,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
            for producer_id, entry in known.items()
        }
        assert files.epochs == tuple(author.log.leader_epochs.entries)
        assert files.topic_id == takeover.broker.topic_id(partition.topic)


def test_kafka_finds_every_acknowledged_record_after_a_kill_of_ours(
    takeover: Takeover, harness: Harness, tmp_path: Path
) -> None:
    broker = takeover.broker
    broker.stop()
    acknowledged = {
        number: run_until_killed(broker.partition_dir("killed", number).parent, number)
        for number in range(LOG_DIRS)
    }
    assert not any((log_dir / ".kafka_cleanshutdown").exists() for log_dir in broker.log_dirs)

    broker.start()

    # A kill may fall into the middle of a write, and then there is half a batch to be cut off.
    harmless = ("Corruption found", "Found invalid messages")
    assert [c for c in broker.complaints() if not any(h in c for h in harmless)] == []
    with LogManager([tmp_path]) as manager:
        manager.create_topic("killed", LOG_DIRS)
        for number, step_count in acknowledged.items():
            # Take the same steps again, as many as Kafka has found.
            end_offset = harness.consume(broker.bootstrap, "killed", number).end_offset
            author = Author(manager.get_log(TopicPartition("killed", number)))
            steps = iter_steps(author, number)
            survived = next(n for n in steps if author.log.log_end_offset >= end_offset)
            assert author.log.log_end_offset == end_offset  # no half batch
            assert 0 < step_count <= survived
            check_readable(broker, harness, "killed", number, author)
    for partition, author in takeover.authors.items():  # and nothing else was lost
        if partition.topic != "killed":
            check_readable(broker, harness, partition.topic, partition.partition, author)


def check_readable(
    broker: KafkaBroker, harness: Harness, topic: str, partition: int, author: Author
) -> None:
    isolations: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
    for isolation in isolations:
        read = read_with_kafka(harness, broker.bootstrap, topic, partition, isolation=isolation)
        assert read == author.readable(isolation), (topic, partition, isolation)


def iter_steps(author: Author, seed: int, count: int = 400) -> Iterator[int]:
    """Append batches and markers, and yield after each how many there were."""
    rng = random.Random(seed)
    for number in range(1, count + 1):
        kind = rng.choice(["plain", "idempotent", "transactional", "transactional", "end"])
        if kind == "end" and author.undecided:
            producer_id = rng.choice(sorted(author.undecided))
            author.end(rng.choice([ControlType.ABORT, ControlType.COMMIT]), producer_id)
        else:
            is_transactional = kind == "transactional"
            author.append(
                varied_records(rng, rng.choice([1, 1, 2, 5])),
                rng.choice(list(Codec)),
                {"idempotent": 400, "transactional": rng.choice([401, 402])}.get(kind, -1),
                transactional=is_transactional,
            )
        yield number


def run_until_killed(log_dir: Path, partition: int) -> int:
    """Let a process of ours append, kill it at some point, and say what it had acknowledged."""
    command = [sys.executable, "-m", "tests.kafka.test_kafka_reads_ours"]
    command += [str(log_dir), str(partition)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    wanted = random.Random(partition).randint(50, 150)
    acknowledged = 0
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= wanted:
                process.kill()
        assert process.wait() == -signal.SIGKILL, "it was not killed, but ended"
    return acknowledged


def append_until_killed(log_dir: Path, partition: int) -> None:
    """Append with flush on, and print after each step how many are safe."""
    with LogManager([log_dir], overrides={"flush.messages": "1"}) as manager:
        author = Author(manager.get_log(TopicPartition("killed", partition)))
        for number in iter_steps(author, partition):
            print(number, flush=True)


if __name__ == "__main__":
    append_until_killed(Path(sys.argv[1]), int(sys.argv[2]))
