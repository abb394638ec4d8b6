"""Log directories for the tests of the Spark source, and what must be found in them."""

import random
from collections.abc import Mapping
from pathlib import Path

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import AbortedFilter, Isolation
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import ManualClock

FIRST_MS = 1_700_000_000_000

Row = tuple[bytes | None, bytes | None, int, int]  # key, value, partition, offset


def fill_topic(
    path: Path,
    topic: str,
    *,
    seed: int,
    partition_count: int = 2,
    batch_count: int = 40,
    with_transactions: bool = False,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic unless it is there, and append random batches to it."""
    rng = random.Random(seed)
    with LogManager([path]) as manager:
        if topic not in {metadata.topic for metadata in manager.topics()}:
            settings = {"segment.bytes": "4000", "index.interval.bytes": "300", **(config or {})}
            manager.create_topic(topic, partition_count, settings)
        for number in range(batch_count):
            partition = TopicPartition(topic, rng.randrange(partition_count))
            log = manager.get_log(partition)
            count = rng.randint(1, 8)
            records = [
                Record(
                    i,
                    FIRST_MS + 1_000 * number + rng.randrange(3_000),
                    b"key-%d" % rng.randrange(25),
                    None if rng.random() < 0.15 else rng.randbytes(rng.randrange(60)),
                    (("h", b"%d" % i),) if rng.random() < 0.3 else (),
                )
                for i in range(count)
            ]
            codec = rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4])
            if with_transactions and rng.random() < 0.4:
                _append_transaction(log, records, codec, producer_id=number, rng=rng)
            else:
                log.append(build_batch(records, codec=codec))


def _append_transaction(
    log: PartitionLog, records: list[Record], codec: Codec, producer_id: int, rng: random.Random
) -> None:
    data = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append(data)
    marker = build_marker(
        rng.choice([ControlType.COMMIT, ControlType.ABORT]),
        offset=0,
        timestamp_ms=FIRST_MS,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    log.append(marker, origin=AppendOrigin.COORDINATOR)


def clean_topic(path: Path, topic: str) -> dict[int, int]:
    """Compact all of a topic; return the first dirty offset of each partition."""
    dirty: dict[int, int] = {}
    clock = ManualClock()
    with LogManager([path]) as manager:
        for partition, log in manager.logs.items():
            if partition.topic != topic:
                continue
            log.roll()
            log.update_high_watermark(log.log_end_offset)
            checkpoints = CleanerCheckpoints(FileSystem(), path)
            now_ms = clock.now_ms()
            assessment, _ = assess_log(log, checkpoints.find(partition), now_ms)
            runner = PassRunner(FileSystem(), clock, LocalEngine(), checkpoints)
            runner.run(log, plan_pass(log, assessment, now_ms))
            dirty[partition.partition] = checkpoints.find(partition) or 0
    return dirty


def read_records(
    path: Path, topic: str, *, is_committed_only: bool = False
) -> dict[int, list[Record]]:
    """Read a topic the plain way, record by record."""
    reader = LogReader([path])
    found: dict[int, list[Record]] = {}
    for number in reader.partitions(topic):
        log = reader.get_log(TopicPartition(topic, number))
        records: list[Record] = []
        offset = log.log_start_offset
        while (result := log.read(offset, 1 << 20, Isolation.HIGH_WATERMARK)).slice is not None:
            aborted = log.collect_aborted(offset, log.log_end_offset)
            hidden = AbortedFilter(aborted if is_committed_only else ())
            for batch in result.batches():
                offset = batch.header.next_offset
                if not hidden.hides(batch):
                    records.extend(batch.iter_records())
        found[number] = records
    return found


def plain_log(path: Path, topic: str) -> list[Row]:
    """Return every record of a topic, in order."""
    return [
        (record.key, record.value, number, record.offset)
        for number, records in sorted(read_records(path, topic).items())
        for record in records
    ]


def plain_latest(
    path: Path,
    topic: str,
    *,
    ends: Mapping[int, int] | None = None,
    include_tombstones: bool = False,
) -> list[Row]:
    """Return the last live record of each key of each partition, in order."""
    rows: list[Row] = []
    for number, records in sorted(read_records(path, topic, is_committed_only=True).items()):
        records = [r for r in records if ends is None or r.offset < ends[number]]
        latest = {record.key: record for record in records}
        rows.extend(
            (r.key, r.value, number, r.offset)
            for r in sorted(latest.values(), key=lambda r: r.offset)
            if include_tombstones or r.value is not None
        )
    return rows
