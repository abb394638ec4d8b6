"""The oracle itself: if one of these fails, no other verdict of tests/kafka means anything."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import MakeBroker
from tests.kafka.harness import Harness, ProducerScript
from tests.kafka.log_ops import DrivenLog, KafkaRefusedError, LogOps
from tests.kafka.states import NewRecord
from tests.kafka.tools import KafkaTools

T0 = 1_600_000_000_000

# Byte vectors that were obtained once from Kafka's own classes.
PLAIN_BATCH = bytes.fromhex(
    "00000000000000000000005000000000025e63fcf400000000000200000174876e800000000174876e8005"
    "ffffffffffffffffffffffffffff0000000314000000046b310476310010000a02046b3201001400060404"
    "6b3104763200"
)
TRANSACTIONAL_BATCH = bytes.fromhex(
    "00000000000000030000003b000000000265a97a1000100000000000000174876e800700000174876e8007"
    "00000000000000070003000000000000000112000000046b33027800"
)
ABORT_MARKER = bytes.fromhex(
    "0000000000000004000000420000000002c1f0dcf000300000000000000174876e800900000174876e8009"
    "00000000000000070003ffffffff000000012000000008000000000c00000000000500"
)
TRANSACTION_INDEX = bytes.fromhex(
    "00000000000000000007000000000000000300000000000000040000000000000005"
)
SNAPSHOT = bytes.fromhex(
    "00012538216200000001000000000000000700030000000000000000000000030000000000000174876e8009"
    "00000005ffffffffffffffff"
)
TIME_INDEX = bytes.fromhex("00000174876e800900000004")


@pytest.fixture
def aborted_log(log_ops: LogOps, tmp_path: Path) -> Iterator[DrivenLog]:
    """A log with a plain batch, a transactional one and the marker that aborts it."""
    log = log_ops.open(tmp_path / "g-0", now_ms=T0, auto_high_watermark=True)
    log.append(
        log_ops.build_batch(
            [
                NewRecord(key=b"k1", value=b"v1", timestamp_ms=T0),
                NewRecord(key=b"k2", value=None, timestamp_ms=T0 + 5),
                NewRecord(key=b"k1", value=b"v2", timestamp_ms=T0 + 3),
            ]
        )
    )
    log.append(
        log_ops.build_batch(
            [NewRecord(key=b"k3", value=b"x", timestamp_ms=T0 + 7)],
            producer_id=7,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
    )
    log.append(
        log_ops.build_marker(
            "ABORT", producer_id=7, producer_epoch=3, coordinator_epoch=5, timestamp_ms=T0 + 9
        ),
        origin="COORDINATOR",
    )
    yield log
    log.forget()


def test_a_driven_log_writes_the_known_bytes(aborted_log: DrivenLog) -> None:
    aborted_log.roll()

    directory = aborted_log.directory
    first = "0" * 20
    assert (directory / f"{first}.log").read_bytes() == (
        PLAIN_BATCH + TRANSACTIONAL_BATCH + ABORT_MARKER
    )
    assert (directory / f"{first}.txnindex").read_bytes() == TRANSACTION_INDEX
    assert (directory / f"{first}.timeindex").read_bytes() == TIME_INDEX
    assert (directory / f"{first}.index").read_bytes() == b""
    assert (directory / "00000000000000000005.snapshot").read_bytes() == SNAPSHOT
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"


def test_a_driven_log_tells_its_state(aborted_log: DrivenLog) -> None:
    state = aborted_log.state

    assert (state.log_start_offset, state.log_end_offset) == (0, 5)
    assert (state.high_watermark, state.last_stable_offset) == (5, 5)
    assert state.first_unstable_offset is None
    (segment,) = state.segments
    assert segment.max_timestamp == (T0 + 9, 4)
    (producer,) = state.producers
    assert (producer.producer_id, producer.producer_epoch) == (7, 3)
    assert (producer.last_sequence, producer.last_data_offset) == (0, 3)
    assert (producer.current_txn_first_offset, producer.coordinator_epoch) == (-1, 5)
    (aborted,) = state.aborted_transactions
    assert (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (3, 4, 5)
    assert aborted_log.read(0, isolation="TXN_COMMITTED").aborted_transactions == ((7, 3),)
    found = aborted_log.lookup(T0 + 4)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (1, T0 + 5, 0)


def test_looking_at_a_fresh_segment_does_not_create_its_indexes(aborted_log: DrivenLog) -> None:
    aborted_log.roll()

    assert aborted_log.state.segments[-1].offset_index is None
    assert "00000000000000000005.index" not in aborted_log.state.files
    assert "00000000000000000005.snapshot" in aborted_log.state.files


def test_a_refused_append_names_kafkas_error_and_leaves_the_end_where_it_was(
    aborted_log: DrivenLog, log_ops: LogOps
) -> None:
    out_of_order = log_ops.build_batch(
        [NewRecord(value=b"x", timestamp_ms=T0)],
        producer_id=7,
        producer_epoch=3,
        base_sequence=5,
    )

    with pytest.raises(KafkaRefusedError) as refused:
        aborted_log.append(out_of_order)

    assert refused.value.exception == "OutOfOrderSequenceException"
    assert refused.value.code == 45
    assert aborted_log.state.log_end_offset == 5


def test_a_crashed_log_is_recovered_without_its_torn_tail(aborted_log: DrivenLog) -> None:
    aborted_log.crash()
    with (aborted_log.directory / f"{'0' * 20}.log").open("ab") as segment:
        segment.write(PLAIN_BATCH[:70])

    aborted_log.reopen(clean=False)

    assert aborted_log.state.log_end_offset == 5
    (segment_state,) = aborted_log.state.segments
    assert segment_state.size == len(PLAIN_BATCH + TRANSACTIONAL_BATCH + ABORT_MARKER)
    assert segment_state.time_index == ((T0 + 9, 4),)


def test_deleted_segments_leave_the_disk_when_the_clock_says_so(aborted_log: DrivenLog) -> None:
    aborted_log.roll()
    aborted_log.increment_log_start_offset(5)

    assert aborted_log.delete_old_segments() == 1
    assert f"{'0' * 20}.log.deleted" in aborted_log.state.files
    aborted_log.advance(60_000)

    assert not any(name.endswith(".deleted") for name in aborted_log.state.files)


def test_a_closed_directory_is_described_without_being_touched(
    aborted_log: DrivenLog, log_ops: LogOps
) -> None:
    aborted_log.close()
    before = _contents(aborted_log.directory)

    files = log_ops.partition_files(aborted_log.directory, records=True)

    assert _contents(aborted_log.directory) == before
    (segment,) = files.segments
    assert [batch.base_offset for batch in segment.batches] == [0, 3, 4]
    assert all(batch.is_valid for batch in segment.batches)
    assert segment.batches[0].records is not None
    assert [record.value for record in segment.batches[0].records] == [b"v1", None, b"v2"]
    assert segment.txn_index is not None
    assert len(segment.txn_index) == 1
    assert [snapshot.offset for snapshot in files.snapshots] == [5]
    assert files.epochs == ((0, 0),)


def test_kafkas_topic_settings_can_be_asked_for(log_ops: LogOps) -> None:
    settings = log_ops.topic_settings()

    assert settings["segment.bytes"].default == "1073741824"
    assert settings["segment.bytes"].valid == "[1048576,...]"
    assert settings["cleanup.policy"].server_default_name == "log.cleanup.policy"


def test_records_of_kafkas_producer_come_back_from_kafkas_consumer(
    kafka_broker: KafkaBroker, harness: Harness
) -> None:
    kafka_broker.create_topic("oracle-java")
    headers = (("h", b"x"), ("none", None), ("empty", b""))
    written = [
        NewRecord(key=b"k", value=b"v", timestamp_ms=T0, headers=headers),
        NewRecord(key=None, value=None, timestamp_ms=T0 + 1),
        NewRecord(key=b"", value=b"", timestamp_ms=T0 + 2),
    ]
    script = ProducerScript()
    script.producer(compression_type="zstd")
    for record in written:
        script.send("oracle-java", record)

    sent = harness.produce(kafka_broker.bootstrap, script)
    consumed = harness.consume(kafka_broker.bootstrap, "oracle-java")

    assert [outcome.offset for outcome in sent] == [0, 1, 2]
    assert consumed.end_offset == 3
    assert [
        NewRecord(key=r.key, value=r.value, timestamp_ms=r.timestamp_ms, headers=r.headers)
        for r in consumed.records
    ] == written


def test_librdkafka_reads_what_the_java_producer_wrote(
    kafka_broker: KafkaBroker, harness: Harness
) -> None:
    kafka_broker.create_topic("oracle-mixed")
    script = ProducerScript()
    script.producer()
    for number in range(10):
        script.send("oracle-mixed", NewRecord(value=b"%d" % number, timestamp_ms=T0 + number))
    harness.produce(kafka_broker.bootstrap, script)

    values = _consume_with_librdkafka(kafka_broker.bootstrap, "oracle-mixed", 10)

    assert values == [b"%d" % number for number in range(10)]


def test_an_open_transaction_hides_what_follows_it(
    kafka_broker: KafkaBroker, harness: Harness
) -> None:
    kafka_broker.create_topic("oracle-open")
    ended = ProducerScript()
    ended.producer("done", transactional_id="done")
    ended.begin("done")
    ended.send("oracle-open", NewRecord(value=b"aborted"), producer="done")
    ended.flush("done")
    ended.abort("done")
    ended.begin("done")
    ended.send("oracle-open", NewRecord(value=b"committed"), producer="done")
    ended.commit("done")
    begun = ProducerScript()
    begun.producer("open", transactional_id="open")
    begun.begin("open")
    begun.send("oracle-open", NewRecord(value=b"undecided"), producer="open")
    begun.halt()
    for script in (ended, begun):
        harness.produce(kafka_broker.bootstrap, script)

    committed = harness.consume(kafka_broker.bootstrap, "oracle-open", isolation="read_committed")
    everything = harness.consume(kafka_broker.bootstrap, "oracle-open")

    assert [record.value for record in committed.records] == [b"committed"]
    assert committed.end_offset == 4  # the last stable offset: two records, two markers
    assert [r.value for r in everything.records] == [b"aborted", b"committed", b"undecided"]
    assert everything.end_offset == 5


def test_a_broker_keeps_its_records_through_a_stop_and_a_kill(
    make_broker: MakeBroker, harness: Harness, kafka_tools: KafkaTools
) -> None:
    broker = make_broker()
    broker.start()
    broker.create_topic("kept", config={"segment.bytes": 1000, "index.interval.bytes": 0})
    _produce_with_librdkafka(broker.bootstrap, "kept", count=20)

    broker.restart(clean=True)
    assert broker.complaints() == []
    broker.restart(clean=False)
    consumed = harness.consume(broker.bootstrap, "kept")
    offsets = kafka_tools.get_offsets(broker.bootstrap, "kept")
    broker.stop()

    assert len(consumed.records) == 20
    assert offsets == {0: 20}
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    files = harness.partition_files(broker.partition_dir("kept"))
    assert len(files.segments) > 1
    assert files.topic_id == broker.topic_id("kept")


def test_a_broker_serves_a_partition_that_was_written_elsewhere(
    make_broker: MakeBroker, harness: Harness, aborted_log: DrivenLog
) -> None:
    aborted_log.close()
    broker = make_broker()
    broker.start()
    topic_id = broker.create_topic("adopted")
    broker.stop()

    broker.adopt_partition(aborted_log.directory, "adopted")
    broker.start()
    consumed = harness.consume(broker.bootstrap, "adopted", isolation="read_committed")

    assert broker.complaints() == []
    assert broker.topic_id("adopted") == topic_id
    assert [record.value for record in consumed.records] == [b"v1", None, b"v2"]
    assert consumed.end_offset == 5


def test_the_dump_tool_prints_records_and_finds_a_wrong_index(
    aborted_log: DrivenLog, kafka_tools: KafkaTools
) -> None:
    aborted_log.close()
    segment = aborted_log.directory / f"{'0' * 20}.log"
    index = aborted_log.directory / f"{'0' * 20}.index"

    dump = kafka_tools.dump_log(segment)
    assert "key: k1 payload: v1" in dump.output
    assert "endTxnMarker: ABORT" in dump.output
    assert dump.complaints == ()
    assert kafka_tools.verify_indexes(index) == ()

    index.write_bytes(bytes.fromhex("000000020000005c"))  # offset 2 is not at position 92
    assert kafka_tools.verify_indexes(index) != ()


def test_the_log_manager_loads_a_directory(
    log_ops: LogOps, harness: Harness, tmp_path: Path
) -> None:
    batch = log_ops.build_batch([NewRecord(value=b"x", timestamp_ms=T0)])
    for number in range(3):
        log = log_ops.open(tmp_path / f"load-{number}", now_ms=T0)
        log.append(batch)
        log.close()
        log.forget()

    loaded = harness.load_time(tmp_path)

    assert loaded.logs == 3
    assert loaded.milliseconds > 0


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _produce_with_librdkafka(bootstrap: str, topic: str, *, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, value=b"v" * 100, key=b"%d" % number, partition=0)
        assert producer.flush(120) == 0  # one batch each


def _consume_with_librdkafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=120)
        return [message.value() or b"" for message in messages]
    finally:
        consumer.close()
