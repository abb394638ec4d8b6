"""Kafka and we take turns on one log directory, and neither notices that the other was there.

Nobody copies or converts anything: one stops, or is killed, and the other opens the directory.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest

from siltstone.errors import LogDirLockedError
from siltstone.ids import TopicPartition
from siltstone.log.append_info import AppendInfo
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.producer_entry import ProducerEntry
from siltstone.log.reading import Isolation
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.kafka.broker import BrokerError, KafkaBroker
from tests.kafka.conftest import MakeBroker
from tests.kafka.harness import Harness, ProducerScript
from tests.kafka.reading import ReadRecord, read_with_kafka, read_with_ours
from tests.kafka.states import NewRecord, Sent

TOPIC: Final = "shared"
PARTITION: Final = TopicPartition(TOPIC, 0)
FLUSH_TIMEOUT_SECONDS: Final = 120  # a client may have to find Kafka again first
OUR_PRODUCER: Final = 9_000_000  # far above the ids that Kafka gives out


@dataclass
class Story:
    """The one log, and what everybody has written to it."""

    broker: KafkaBroker
    harness: Harness
    records: list[ReadRecord] = field(default_factory=list)
    open: list[ReadRecord] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)  # offsets
    markers: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    # Kafka's turns

    @contextmanager
    def turn_of_kafka(self, *, killed: bool = False) -> Iterator[None]:
        self.broker.start()
        assert self.broker.complaints() == []
        self.check_with_kafka()
        yield
        self.check_with_kafka()
        if killed:
            self.broker.kill()
        else:
            self.broker.stop()

    def produce_with_java(self, codec: str) -> None:
        """Let an idempotent producer write, and two transactions end, one way and the other."""
        script = ProducerScript()
        script.producer("plain", compression_type=codec)
        sent = [new_record(self.rng) for _ in range(6)]
        for record in sent:
            script.send(TOPIC, record, producer="plain")
            script.flush("plain")
        self._note(sent, self.harness.produce(self.broker.bootstrap, script))
        for kind in ("commit", "abort"):
            self._transact_with_java(kind)

    def _transact_with_java(self, kind: str) -> None:
        script = ProducerScript()
        script.producer("t", transactional_id=f"java-{kind}", compression_type="lz4")
        script.begin("t")
        sent = [new_record(self.rng) for _ in range(3)]
        for record in sent:
            script.send(TOPIC, record, producer="t")
        script.flush("t")
        if kind == "commit":
            script.commit("t")
        else:
            script.abort("t")
        noted = self._note(sent, self.harness.produce(self.broker.bootstrap, script))
        self.markers += 1
        if kind == "abort":
            self.aborted |= {record.offset for record in noted}

    def begin_a_transaction(self) -> None:
        """Let a transaction begin whose producer then dies."""
        script = ProducerScript()
        script.producer("t", transactional_id="dying", transaction_timeout_ms="800000")
        script.begin("t")
        sent = [new_record(self.rng) for _ in range(2)]
        for record in sent:
            script.send(TOPIC, record, producer="t")
        script.halt()
        self.open += self._note(sent, self.harness.produce(self.broker.bootstrap, script))

    def abort_the_transaction(self) -> None:
        """Let the successor of the dead producer appear, whereupon Kafka ends the transaction."""
        successor = confluent_kafka.Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "dying"}
        )
        successor.init_transactions(FLUSH_TIMEOUT_SECONDS)
        self.markers += 1
        self.aborted |= {record.offset for record in self.open}
        self.open.clear()

    def produce_with(self, producer: confluent_kafka.Producer) -> None:
        """Send one batch with a producer of librdkafka."""
        sent = [new_record(self.rng) for _ in range(3)]
        offsets: list[int] = []

        def note(error: object, message: confluent_kafka.Message) -> None:
            assert error is None, error
            offsets.append(message.offset() or 0)

        for record in sent:
            producer.produce(
                TOPIC,
                record.value,
                record.key,
                0,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
                on_delivery=note,
            )
        assert producer.flush(FLUSH_TIMEOUT_SECONDS) == 0
        self.records += (
            as_read(offset, record) for offset, record in zip(offsets, sent, strict=True)
        )

    def check_with_kafka(self) -> None:
        bootstrap = self.broker.bootstrap
        assert read_with_kafka(self.harness, bootstrap, TOPIC) == self.records
        committed = read_with_kafka(self.harness, bootstrap, TOPIC, isolation="read_committed")
        assert committed == self.committed()

    # Our turns

    @contextmanager
    def our_turn(self) -> Iterator[PartitionLog]:
        with LogManager([self.broker.log_dir]) as manager:
            log = manager.get_log(PARTITION)
            self.check_with_ours(log)
            yield log
            log.update_high_watermark(log.log_end_offset)
            self.check_with_ours(log)
            # Nothing is between the records but markers: no offset was left out or used twice.
            assert log.log_end_offset == len(self.records) + self.markers

    def append(self, log: PartitionLog, entry: ProducerEntry | None = None) -> AppendInfo:
        """Append a batch, as the next one of a producer if one is given."""
        is_transactional = entry is not None and entry.current_txn_first_offset is not None
        records = [
            Record(n, r.timestamp_ms or 0, r.key, r.value, r.headers)
            for n, r in enumerate(new_record(self.rng) for _ in range(3))
        ]
        if entry is None:
            batch = build_batch(records, codec=self.rng.choice(list(Codec)))
        else:
            batch = build_batch(
                records,
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                base_sequence=entry.last_sequence + 1,
                is_transactional=is_transactional,
            )
        info = log.append(batch)
        noted = [
            ReadRecord(
                info.first_offset + r.offset,
                r.timestamp_ms,
                "CreateTime",
                r.key,
                r.value,
                r.headers,
            )
            for r in records
        ]
        self.records += noted
        if is_transactional:
            self.open += noted
        return info

    def transact(self, log: PartitionLog, producer_id: int, kind: ControlType) -> None:
        """Append a transaction of our own."""
        record = new_record(self.rng)
        timestamp_ms = record.timestamp_ms or 0
        batch = build_batch(
            [Record(0, timestamp_ms, record.key, record.value, record.headers)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        offset = log.append(batch).first_offset
        self.records.append(as_read(offset, record))
        marker = build_marker(
            kind,
            offset=0,
            timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        log.append(marker, origin=AppendOrigin.COORDINATOR)
        self.markers += 1
        if kind is ControlType.ABORT:
            self.aborted.add(offset)

    def check_with_ours(self, log: PartitionLog) -> None:
        assert read_with_ours(log) == self.records
        assert read_with_ours(log, Isolation.COMMITTED) == self.committed()

    # Both

    def committed(self) -> list[ReadRecord]:
        undecided = self.open[0].offset if self.open else len(self.records) + self.markers
        return [r for r in self.records if r.offset < undecided and r.offset not in self.aborted]

    def _note(self, sent: Sequence[NewRecord], outcomes: Sequence[Sent]) -> list[ReadRecord]:
        noted = [as_read(o.offset, record) for o, record in zip(outcomes, sent, strict=True)]
        self.records += noted
        return noted


def new_record(rng: random.Random) -> NewRecord:
    return NewRecord(
        key=rng.choice([None, b"", b"key-%d" % rng.randint(0, 9)]),
        value=rng.choice([None, b"", rng.randbytes(rng.randint(1, 200))]),
        # Of today: a producer expires a day after its last record.
        timestamp_ms=time.time_ns() // 1_000_000 - rng.randint(0, 1_000_000),
        headers=rng.choice([(), (("h", b"x"), ("null", None))]),
    )


def as_read(offset: int, record: NewRecord) -> ReadRecord:
    timestamp_ms = record.timestamp_ms or 0
    return ReadRecord(offset, timestamp_ms, "CreateTime", record.key, record.value, record.headers)


def test_offsets_and_contents_go_on_whoever_writes(
    make_broker: MakeBroker, harness: Harness
) -> None:
    broker = make_broker()
    broker.start()
    broker.create_topic(TOPIC, config={"segment.bytes": 2000, "index.interval.bytes": 100})
    broker.stop()
    story = Story(broker, harness)

    with story.turn_of_kafka():
        story.produce_with_java("zstd")
        # It lives through all that follows, and numbers its batches on and on.
        survivor = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
        )
        story.produce_with(survivor)
        story.begin_a_transaction()

    with story.our_turn() as log:
        known = dict(log.producer_state.entries)
        dying = next(e for e in known.values() if e.current_txn_first_offset is not None)
        plain = [e for e in known.values() if e.coordinator_epoch < 0 and e is not dying]
        retired, alive = sorted(plain, key=lambda entry: entry.producer_id)
        story.append(log)
        story.append(log, retired)  # its next batch, had it not retired
        story.append(log, dying)
        repeated = alive.batches[-1]
        info = log.append(repeat_of(story, alive))
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (
            repeated.first_offset,
            repeated.last_offset,
        )
        story.transact(log, OUR_PRODUCER, ControlType.COMMIT)
        story.transact(log, OUR_PRODUCER + 1, ControlType.ABORT)

    with story.turn_of_kafka():
        story.produce_with(survivor)
        story.abort_the_transaction()
        story.produce_with_java("gzip")

    with story.our_turn() as log:
        log.roll()
        for _ in range(10):
            story.append(log)
        assert log.producer_state.entries[retired.producer_id].last_sequence == (
            retired.last_sequence + 3
        )
        story.append(log, log.producer_state.entries[retired.producer_id])

    with story.turn_of_kafka(killed=True):
        story.produce_with(survivor)
        story.produce_with_java("snappy")

    with story.our_turn() as log:  # recovers what Kafka left
        story.append(log)
        story.transact(log, OUR_PRODUCER + 2, ControlType.ABORT)

    with story.turn_of_kafka():
        story.produce_with(survivor)
        story.produce_with_java("none")

    with story.our_turn() as log:
        epochs = [entry.epoch for entry in log.leader_epochs.entries]
        assert len(epochs) >= 4  # one for each start of Kafka
        assert len(log.segments) > 3


def repeat_of(story: Story, entry: ProducerEntry) -> bytes:
    """Build the last batch of a producer again, as it does when the answer was lost."""
    last = entry.batches[-1]
    records = [r for r in story.records if last.first_offset <= r.offset <= last.last_offset]
    return build_batch(
        [Record(n, r.timestamp_ms, r.key, r.value, r.headers) for n, r in enumerate(records)],
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        base_sequence=last.first_sequence,
    )


def test_the_lock_keeps_us_out_while_kafka_runs_and_kafka_while_we_do(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.start()

    with pytest.raises(LogDirLockedError) as locked:
        LogManager([broker.log_dir])
    assert locked.value.pid is not None
    assert f"is in use by process {locked.value.pid}" in str(locked.value)
    owner = Path("/proc") / str(locked.value.pid) / "cmdline"
    assert str(broker.directory).encode() in owner.read_bytes()
    broker.stop()

    with LogManager([broker.log_dir]):
        with pytest.raises(BrokerError, match="ended while starting"):
            broker.start()
        assert f"Failed to acquire lock on file .lock in {broker.log_dir}" in broker.server_log()

    broker.start()
    assert broker.complaints() == []
