"""A log directory with one of everything that compaction leaves, from before and after a pass.

    clean section   winners in all codecs, headers, tombstones that wait, emptied last batches of
                    producers, a committed transaction with its marker, aborted ones without data,
                    markers with and without delete horizon
    dirty section   updates, a tombstone, an aborted transaction, two closed segments
    active segment  an update

The first pass was a while before the second: what it marked had expired by then.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.edited_logs import EditedLog
from tests.support.make_log import HastyDisk

PARTITION: Final = TopicPartition("orders", 0)
DELETE_RETENTION_MS: Final = 1000
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "index.interval.bytes": "0",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "file.delete.delay.ms": "0",
    "min.cleanable.dirty.ratio": "0",
}


@dataclass(frozen=True)
class CleanedLog:
    """A log after its second pass, stopped in good order; and a copy from before that pass."""

    before: EditedLog
    after: EditedLog
    now_ms: int

    @property
    def config(self) -> LogConfig:
        return LogConfig.parse(SETTINGS)

    def copy_to(self, target: Path) -> "CleanedLog":
        """Copy both."""
        return CleanedLog(
            self.before.copy_to(target / "before"),
            self.after.copy_to(target / "after"),
            self.now_ms,
        )


class _Writer:
    def __init__(self, log: PartitionLog, clock: ManualClock) -> None:
        self._log = log
        self._clock = clock
        self._sequences: dict[int, int] = {}

    def put(self, text: str, codec: Codec = Codec.NONE, **fields: Any) -> int:
        """Append `a=1 b~` as one batch; return its base offset."""
        now_ms = self._clock.now_ms()
        records = []
        for number, token in enumerate(text.split()):
            key, _, value = token.partition("=")
            headers = (("source", b"test"), ("none", None)) if key == "h" else ()
            is_tombstone = key.endswith("~")
            records.append(
                Record(
                    number,
                    now_ms - number,
                    key.rstrip("~").encode(),
                    None if is_tombstone else value.encode().ljust(12, b"."),
                    headers,
                )
            )
        return self._append(build_batch(records, codec=codec, **fields), AppendOrigin.CLIENT)

    def produce(self, producer_id: int, text: str, codec: Codec = Codec.NONE, **fields: Any) -> int:
        """Append as an idempotent producer."""
        first = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = first + len(text.split())
        return self.put(
            text, codec, producer_id=producer_id, producer_epoch=0, base_sequence=first, **fields
        )

    def end(self, producer_id: int, kind: ControlType) -> int:
        """End a transaction."""
        marker = build_marker(
            kind,
            offset=0,
            timestamp_ms=self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        return self._append(marker, AppendOrigin.COORDINATOR)

    def _append(self, data: bytes, origin: AppendOrigin) -> int:
        info = self._log.append(data, leader_epoch=0, origin=origin)
        self._log.update_high_watermark(self._log.log_end_offset)
        self._clock.advance_ms(10)
        return info.first_offset


def make_cleaned_log(directory: Path) -> CleanedLog:
    """Make the log and its copy in an empty directory."""
    clock = ManualClock()
    fs = HastyDisk()
    after = EditedLog(directory / "after", PARTITION)
    with LogManager([after.log_dir], fs=fs, clock=clock) as manager:
        manager.create_topic(PARTITION.topic, 1, SETTINGS)
        log = manager.get_log(PARTITION)
        writer = _Writer(log, clock)
        checkpoints = CleanerCheckpoints(fs, after.log_dir)
        runner = PassRunner(fs, clock, LocalEngine(), checkpoints)

        def clean() -> None:
            now_ms = clock.now_ms()
            assessment, _ = assess_log(log, checkpoints.find(PARTITION), now_ms)
            runner.run(log, plan_pass(log, assessment, now_ms))
            log.delete_due_files()

        _write_first(log, writer)
        clean()
        clock.advance_ms(2 * DELETE_RETENTION_MS)
        _write_second(log, writer)
        manager.checkpoint()
        before = after.copy_to(directory / "before")
        clean()
        _write_third(log, writer)
    return CleanedLog(before, after, clock.now_ms())


def _write_first(log: PartitionLog, writer: _Writer) -> None:
    writer.put("a=1 b=1 c=1", Codec.LZ4)
    writer.put("d=1 e=1 h=1")
    writer.produce(1, "f=1")
    writer.produce(1, "f=2")
    writer.produce(7, "g=1 i=1", is_transactional=True)
    writer.end(7, ControlType.COMMIT)
    writer.produce(8, "a=666", is_transactional=True)
    writer.end(8, ControlType.ABORT)
    log.roll()
    writer.put("b~")
    writer.put("c=2 j=1", Codec.ZSTD)
    writer.put("k=1 l=1 m=1", Codec.GZIP)
    writer.produce(9, "n=1 o=1", Codec.SNAPPY, is_transactional=True)
    writer.end(9, ControlType.COMMIT)
    writer.end(5, ControlType.COMMIT)
    log.roll()


def _write_second(log: PartitionLog, writer: _Writer) -> None:
    writer.put("k~ e~")
    writer.put("a=2 p=1", Codec.LZ4)
    writer.produce(1, "f=3 q=1")
    writer.produce(8, "d=666 r=666", is_transactional=True)
    writer.end(8, ControlType.ABORT)
    writer.end(6, ControlType.COMMIT)
    log.roll()
    writer.put("s=1 t=1")
    writer.produce(1, "f=4")
    writer.put("u=1")
    log.roll()


def _write_third(log: PartitionLog, writer: _Writer) -> None:
    writer.put("a=3 v=1")
    writer.put("s~")
    writer.produce(9, "w=666", is_transactional=True)
    writer.end(9, ControlType.ABORT)
    log.roll()
    writer.put("x=1")
    writer.produce(7, "y=1", is_transactional=True)
    log.roll()
    writer.put("a=4")
