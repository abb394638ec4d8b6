"""`verify` on directories that a real Kafka wrote and cleaned: no false alarm, and no blind spot.

Nothing of ours has ever been in them, no manifest, no settings of the topic, but for the key
indexes that lookups leave: Kafka's cleaner must not mind them, and they not what it does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from siltstone.cleaner.verify import Report, VerifyRequest, verify_partition
from siltstone.clock import SystemClock
from siltstone.errors import NotExactError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import parse_offsets
from siltstone.log.config import LogConfig
from siltstone.log.log_reader import LogReader
from siltstone.log.reading import Isolation
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from siltstone.table.lookup import PartitionLookup
from siltstone.table.reference import plain_view
from siltstone.table.request import View, ViewRequest
from siltstone.table.snapshot import LogSnapshot, open_snapshot
from siltstone.table.views import read_view
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import Harness, ProducerScript
from tests.kafka.states import NewRecord
from tests.support.edited_logs import EditedLog

PARTITION: Final = TopicPartition("changes", 0)
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CLEAN_TIMEOUT_SECONDS: Final = 180
DELETE_RETENTION_MS: Final = 200

# A cleaner that never finds a log dirty enough, and one that always does.
IDLE: Final = {"log.cleaner.min.cleanable.ratio": "1.0", "log.cleaner.backoff.ms": "50"}
BUSY: Final = {**IDLE, "log.cleaner.min.cleanable.ratio": "0.0"}


@dataclass(frozen=True)
class KafkaStory:
    """A log directory of Kafka's before it was cleaned, after one pass, and after another."""

    before: EditedLog
    once: EditedLog
    twice: EditedLog


@pytest.fixture(scope="module")
def story(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> KafkaStory:
    directory = tmp_path_factory.mktemp("cleaned")
    with KafkaBroker(harness, directory / "broker", properties=IDLE) as broker:

        def stop_and_copy(name: str) -> EditedLog:
            broker.stop()
            assert look_up_all(broker.log_dir) == consume_all(broker.log_dir)
            return EditedLog(broker.log_dir, PARTITION).copy_to(directory / name)

        broker.start()
        broker.create_topic(
            PARTITION.topic,
            config={
                "cleanup.policy": "compact",
                "segment.bytes": 1000,
                "index.interval.bytes": 200,
                "delete.retention.ms": DELETE_RETENTION_MS,
                "file.delete.delay.ms": 0,
            },
        )
        _write(broker, harness, rounds=3)
        before = stop_and_copy("before")
        _let_clean(broker)
        once = stop_and_copy("once")
        broker.properties.update(IDLE)
        broker.start()
        _write(broker, harness, rounds=2)
        broker.stop()
        time.sleep(DELETE_RETENTION_MS / 1000)
        _let_clean(broker)
        twice = stop_and_copy("twice")
        assert broker.complaints() == []
    return KafkaStory(before, once, twice)


@pytest.fixture
def log(story: KafkaStory, tmp_path: Path) -> EditedLog:
    """A copy to tamper with."""
    return story.once.copy_to(tmp_path / "log")


def test_nothing_is_wrong_with_what_kafka_wrote_and_cleaned(story: KafkaStory) -> None:
    assert len(story.before.base_offsets()) > 4
    for state in (story.before, story.once, story.twice):
        # Its own topics as well: offsets of groups, and transactions.
        reader = LogReader([state.log_dir])
        for metadata in reader.topics():
            for number in reader.partitions(metadata.topic):
                report = verify(state, TopicPartition(metadata.topic, number))
                assert report.violations == (), report
    assert verify(story.once).first_dirty_offset > 0


def test_the_table_of_what_kafka_cleaned_is_the_one_from_before(story: KafkaStory) -> None:
    before, once = (consume_all(state.log_dir) for state in (story.before, story.once))

    assert list(story.twice.log_dir.glob("changes-0/*.keyindex"))
    assert {key: r for key, r in before.items() if r.value is not None} == {
        key: r for key, r in once.items() if r.value is not None
    }
    for state in (story.before, story.once, story.twice):
        expected = consume_all(state.log_dir)
        snapshot = open_snapshot(LogReader([state.log_dir]), PARTITION)
        latest = read_view(snapshot, ViewRequest(include_tombstones=True)).to_reader().read_all()

        assert latest["offset"].to_pylist() == sorted(r.offset for r in expected.values())
        assert look_up_all(state.log_dir) == expected


def test_a_past_state_of_what_kafka_cleaned_is_exact_or_refused(story: KafkaStory) -> None:
    before, once = (
        open_snapshot(LogReader([state.log_dir]), PARTITION) for state in (story.before, story.once)
    )
    end_offset = before.last_stable_offset
    offsets = range(before.log_start_offset, end_offset + 1)

    states = {
        offset: state_of(plain_view(before, ViewRequest(end_offset=offset))) for offset in offsets
    }
    found = {offset: read_as_of(once, offset) for offset in offsets}

    exact = {offset: state for offset, state in found.items() if state is not None}
    assert exact == {offset: states[offset] for offset in exact}
    assert min(exact) == once.first_dirty_offset > before.log_start_offset
    assert max(exact) == end_offset


def test_changes_lead_from_each_state_to_the_last_whatever_kafka_cleaned(story: KafkaStory) -> None:
    before, once = (
        open_snapshot(LogReader([state.log_dir]), PARTITION) for state in (story.before, story.once)
    )
    end_offset = before.last_stable_offset
    last = state_of(plain_view(before, ViewRequest()))
    for offset in range(before.log_start_offset, end_offset + 1):
        state = state_of(plain_view(before, ViewRequest(end_offset=offset)))
        request = ViewRequest(view=View.CHANGES, start_offset=offset, end_offset=end_offset)

        # One pass has removed no tombstone yet: that takes another.
        for row in read_view(once, request).to_reader().read_all().to_pylist():
            state[row["key"]] = row["value"]

        assert {key: value for key, value in state.items() if value is not None} == last


@pytest.mark.parametrize(
    ("old", "new"), [("before", "once"), ("once", "twice"), ("before", "twice")]
)
def test_no_pass_of_kafkas_breaks_an_invariant(story: KafkaStory, old: str, new: str) -> None:
    before: EditedLog = getattr(story, old)
    after: EditedLog = getattr(story, new)
    report = verify(after, before=before)

    assert report.violations == (), report
    assert report.record_count < verify(story.before).record_count


def test_kafka_has_met_what_a_pass_can_meet(story: KafkaStory) -> None:
    """Or the tests above would prove little."""
    once = [
        (batch, record)
        for base_offset in story.once.base_offsets()
        for batch in map(story.once.batch, _first_offsets(story.once, base_offset))
        for record in [None, *batch.iter_records()]
    ]

    assert {batch.header.codec.name.lower() for batch, _ in once} == set(CODECS)
    assert any(batch.header.delete_horizon_ms is not None for batch, _ in once)
    assert any(batch.header.is_empty for batch, _ in once)
    assert any(record is not None and record.is_tombstone for _, record in once)
    assert any(batch.header.is_control for batch, _ in once)
    assert list(story.once.directory.glob("*.txnindex"))


def state_of(records: Sequence[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def read_as_of(snapshot: LogSnapshot, offset: int) -> dict[bytes | None, bytes | None] | None:
    """Return the state as of an offset; None if it is refused."""
    try:
        rows = read_view(snapshot, ViewRequest(end_offset=offset)).to_reader().read_all()
    except NotExactError:
        return None
    return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


# Tampering


def _drop_a_winner(log: EditedLog, before: EditedLog) -> None:
    log.drop_record(log.find("once-0"))


def _keep_a_loser(log: EditedLog, before: EditedLog) -> None:
    header = before.batch(0).header
    record = Record(0, header.max_timestamp_ms, b"once-0", b"older")
    log.insert(build_batch([record], leader_epoch=0))


def _change_a_value(log: EditedLog, before: EditedLog) -> None:
    log.change_record(log.find("once-0"), value=b"another")


def _flip_a_bit(log: EditedLog, before: EditedLog) -> None:
    log.flip(log.find("once-0"), 70)


def _point_an_index_behind_its_batch(log: EditedLog, before: EditedLog) -> None:
    base_offset = next(b for b in log.base_offsets() if log.path(b, ".index").stat().st_size >= 8)
    log.edit_entries(
        log.path(base_offset, ".index"), ">ii", lambda rows: [[0, rows[-1][1]], *rows[1:]]
    )


def _lose_a_marker(log: EditedLog, before: EditedLog) -> None:
    data = log.find("committed-0")
    producer_id = log.batch(data).header.producer_id
    markers = [
        batch.header.base_offset
        for base_offset in log.base_offsets()
        for batch in map(log.batch, _first_offsets(log, base_offset))
        if batch.header.is_control and batch.header.producer_id == producer_id
    ]
    for offset in markers:
        if offset > data:
            log.drop(offset)


def _put_the_checkpoint_above_the_log(log: EditedLog, before: EditedLog) -> None:
    log.write_offset(filenames.CLEANER_OFFSETS, 10**6)


def _cut_a_segment(log: EditedLog, before: EditedLog) -> None:
    path = log.path(log.segment_of(log.find("once-0")), ".log")
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("damage", "alone", "against"),
    [
        (_drop_a_winner, set(), {"I6", "I10"}),
        (_keep_a_loser, {"I9"}, {"I9"}),
        (_change_a_value, set(), {"I3"}),
        (_flip_a_bit, {"I1"}, {"I1"}),
        (_point_an_index_behind_its_batch, {"I4"}, {"I4"}),
        (_lose_a_marker, {"I19"}, {"I18", "I19"}),
        (_put_the_checkpoint_above_the_log, {"I22"}, {"I22"}),
        (_cut_a_segment, {"I1"}, {"I1"}),
    ],
)
def test_damage_to_kafkas_files_is_found(
    story: KafkaStory,
    log: EditedLog,
    damage: Callable[[EditedLog, EditedLog], None],
    alone: set[str],
    against: set[str],
) -> None:
    damage(log, story.before)

    report = verify(log)
    assert alone <= {finding.invariant for finding in report.violations}, report
    report = verify(log, before=story.before)
    assert against <= {finding.invariant for finding in report.violations}, report


def verify(
    log: EditedLog, partition: TopicPartition = PARTITION, before: EditedLog | None = None
) -> Report:
    return verify_partition(
        VerifyRequest(
            partition=partition,
            log_dir=log.log_dir,
            config=LogConfig(),
            now_ms=SystemClock().now_ms(),
            deep=True,
            before_dir=None if before is None else before.log_dir,
        )
    )


def consume_all(log_dir: Path) -> dict[bytes, Record]:
    """Return the last committed record of each key."""
    snapshot = open_snapshot(LogReader([log_dir]), PARTITION)
    committed = ViewRequest(view=View.LOG, isolation=Isolation.COMMITTED)
    return {r.key: r for r in plain_view(snapshot, committed) if r.key is not None}


def look_up_all(log_dir: Path) -> dict[bytes, Record]:
    """Look every key up; this leaves key indexes in the directory."""
    lookup = PartitionLookup(LogReader([log_dir]), PARTITION)
    found = {key: lookup.find(key) for key in consume_all(log_dir)}
    return {key: stored.record for key, stored in found.items() if stored is not None}


def _first_offsets(log: EditedLog, base_offset: int) -> list[int]:
    """Return the base offsets of the batches of a segment."""
    return [int.from_bytes(data[:8], "big") for data in log.batches(base_offset)]


def _write(broker: KafkaBroker, harness: Harness, *, rounds: int) -> None:
    """Write updates and tombstones in all codecs, idempotently, and transactions of both ends."""
    script = ProducerScript()
    for codec in CODECS:
        script.producer(codec, compression_type=codec)
    for kind in ("committed", "aborted"):
        script.producer(kind, transactional_id=kind)
    now_ms = SystemClock().now_ms()

    def send(producer: str, key: str, value: bytes | None) -> None:
        record = NewRecord(key=key.encode(), value=value, timestamp_ms=now_ms)
        script.send(PARTITION.topic, record, producer=producer)

    script.producer("early")
    send("early", "none-4", b"its only batch, which loses its only record")
    script.flush("early")
    for number in range(rounds):
        for codec in CODECS:
            for key in range(6):
                send(codec, f"{codec}-{key}", b"%d" % number * 20)
            send(codec, f"{codec}-{number + 6}", b"once")
            script.flush(codec)
            send(codec, f"{codec}-{number}", None)
            script.flush(codec)
        send("none", f"once-{number}", b"never again")
        script.flush("none")
        for kind in ("committed", "aborted"):
            script.begin(kind)
            send(kind, f"{kind}-{number}", b"%d" % number * 20)
            send(kind, "none-3", b"from a transaction")
            script.flush(kind)
            (script.commit if kind == "committed" else script.abort)(kind)
    harness.produce(broker.bootstrap, script)


def _let_clean(broker: KafkaBroker) -> None:
    """Start Kafka with a busy cleaner, and wait until it has reached the active segment."""
    log = EditedLog(broker.log_dir, PARTITION)
    goal = log.base_offsets()[-1]
    broker.properties.update(BUSY)
    broker.start()
    path = broker.log_dir / filenames.CLEANER_OFFSETS
    deadline = time.monotonic() + CLEAN_TIMEOUT_SECONDS
    while parse_offsets(path, path.read_bytes() if path.exists() else b"").get(PARTITION, 0) < goal:
        assert time.monotonic() < deadline, broker.log_tail()
        time.sleep(0.05)
