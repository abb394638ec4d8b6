"""Random lives of a compacted log: appends of all kinds, rolls, restarts, time, passes.

Equal seeds give equal lives. The directory of the log lies in a log directory of its own, with the
checkpoints that an owner keeps there, so that it can be copied and verified as it is.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import CommittedPass, PassRunner
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import format_offsets
from siltstone.log.config import LogConfig
from siltstone.log.identity import format_clean_shutdown
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.recovery import LoadRequest
from siltstone.records.batch import read_header
from siltstone.records.builder import build_batch, build_empty_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.make_log import HastyDisk
from tests.support.producers import open_transactions

PARTITION: Final = TopicPartition("life", 0)
_MAX_SEQUENCE: Final = 2**31 - 1


class RandomLife:
    """One log with its owner; `live` lets some time pass, `clean` runs a pass."""

    def __init__(self, log_dir: Path, engine: CleaningEngine, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.log_dir = log_dir
        self.clock = ManualClock()
        self.trace: list[str] = []
        self.settings = {
            "cleanup.policy": rng.choice(["compact", "compact", "compact,delete"]),
            "retention.ms": "-1",
            "segment.bytes": str(rng.choice([400, 800, 2000, 12_000])),
            "index.interval.bytes": str(rng.choice([0, 80, 300, 4096])),
            "segment.index.bytes": str(rng.choice([4096, 1200, 240])),
            "file.delete.delay.ms": "0",
            "delete.retention.ms": str(rng.choice([0, 1000, 20_000])),
            "message.timestamp.type": rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        }
        self._key_count = rng.choice([1, 4, 12, 40])
        self._tombstone_share = rng.choice([0.0, 0.2, 0.5])
        self._codecs = rng.choice([[Codec.NONE], list(Codec), [rng.choice(list(Codec))]])
        self._fs = HastyDisk()
        self._checkpoints = CleanerCheckpoints(self._fs, log_dir)
        self._runner = PassRunner(self._fs, self.clock, engine, self._checkpoints)
        self._log_start_offset = 0
        self._recovery_point = 0
        self._fs.mkdir(log_dir)
        self.log = self._open(was_clean=True)

    @property
    def config(self) -> LogConfig:
        return LogConfig.parse(self.settings)

    def live(self, steps: int) -> None:
        """Do some random things."""
        for _ in range(steps):
            actions, weights = zip(*self._actions(), strict=True)
            (act,) = self.rng.choices(actions, weights)
            act()
            self.trace.append(act.__name__)

    def clean(self) -> CommittedPass | None:
        """Clean all that can be, due or not, and mostly see to it first that there is something."""
        while self.rng.random() < 0.85 and open_transactions(self.log.producer_state):
            self._end_transaction()
        if self.rng.random() < 0.8:
            self.log.roll()
        checkpoint = self._checkpoints.find(PARTITION)
        now_ms = self.clock.now_ms()
        assessment, _ = assess_log(self.log, checkpoint, now_ms)
        if assessment.first_uncleanable_offset <= self.log.segments.first.base_offset:
            return None
        done = self._runner.run(self.log, plan_pass(self.log, assessment, now_ms))
        self.log.delete_due_files()
        self._write_checkpoints()
        self.trace.append(f"pass up to {done.plan.end_offset}")
        return done

    def stop(self) -> None:
        """Stop in good order, with all that an owner writes down then."""
        self.log.close()
        self._write_checkpoints()
        (self.log_dir / filenames.CLEAN_SHUTDOWN).write_bytes(format_clean_shutdown())

    def copy_to(self, target: Path) -> Path:
        """Copy the log directory as it is."""
        return Path(shutil.copytree(self.log_dir, target))

    def _actions(self) -> Iterator[tuple[Callable[[], None], float]]:
        yield self._append_plain, 6
        yield self._append_idempotent, 3
        yield self._append_transactional, 5
        yield self._end_transaction, 3
        yield self._end_nothing, 0.3
        yield self._append_as_follower, 1
        yield self._roll, 1.5
        yield self._tick, 1.5
        yield self._restart, 0.3
        yield self._crash, 0.2
        if self.log.config.deletes:
            yield self._delete_records, 0.4

    # Appends

    def _records(self, offset: int = 0) -> list[Record]:
        rng = self.rng
        now_ms = self.clock.now_ms()
        has_times = rng.random() < 0.9

        def timestamp_ms() -> int:
            return now_ms - rng.choice([0, 0, rng.randint(0, 4000)]) if has_times else -1

        def value() -> bytes | None:
            if rng.random() < self._tombstone_share:
                return None
            return rng.choice([b"", b"v" * rng.randint(1, 100), rng.randbytes(20)])

        def headers() -> tuple[tuple[str, bytes | None], ...]:
            return (("h", b"x"), ("", None)) if rng.random() < 0.1 else ()

        return [
            Record(
                offset + number,
                timestamp_ms(),
                b"key-%d" % rng.randrange(self._key_count),
                value(),
                headers(),
            )
            for number in range(rng.choice([1, 1, 1, 2, 3, 6]))
        ]

    def _append(self, data: bytes, **options: Any) -> None:
        if len(data) <= self.log.config.segment_bytes:
            self.log.append(data, leader_epoch=0, **options)
            self._replicate()

    def _replicate(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)

    def _append_plain(self) -> None:
        self._append(build_batch(self._records(), codec=self.rng.choice(self._codecs)))

    def _append_idempotent(self) -> None:
        self._append_as_producer(self.rng.choice([1, 2]), is_transactional=False)

    def _append_transactional(self) -> None:
        self._append_as_producer(self.rng.choice([11, 12, 13]), is_transactional=True)

    def _append_as_producer(self, producer_id: int, *, is_transactional: bool) -> None:
        rng = self.rng
        known = self.log.producer_state.entries.get(producer_id)
        epoch, sequence = 0, rng.choice([0, _MAX_SEQUENCE - 1])
        if known is not None:
            epoch, sequence = known.epoch, (known.last_sequence + 1) & _MAX_SEQUENCE
            if epoch < 0:
                return
            if known.current_txn_first_offset is None and rng.random() < 0.1:
                epoch, sequence = epoch + 1, 0
        self._append(
            build_batch(
                self._records(),
                codec=rng.choice(self._codecs),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        )

    def _end_transaction(self) -> None:
        producers = open_transactions(self.log.producer_state)
        if producers:
            chosen = self.rng.choice(producers)
            self._end(chosen.producer_id, chosen.epoch, chosen.coordinator_epoch)

    def _end_nothing(self) -> None:
        """End a transaction without data: a marker and nothing else."""
        known = self.log.producer_state.entries.get(21)
        epoch = 3 if known is None else max(known.epoch, 0)
        self._end(21, epoch, 0)

    def _end(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        version = self.rng.choice([0, 2])
        marker = build_marker(
            self.rng.choice([ControlType.ABORT, ControlType.COMMIT]),
            offset=0,
            timestamp_ms=self.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch + (version == 2),
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        self._append(marker, origin=AppendOrigin.COORDINATOR, transaction_version=version)

    def _append_as_follower(self) -> None:
        """Append what another replica's cleaner may have left: gaps, thinned and empty batches."""
        rng = self.rng
        offset = self.log.log_end_offset + rng.choice([0, 0, 3])
        batches = []
        for _ in range(rng.randint(1, 3)):
            records = self._records(offset)
            kept = [record for record in records if rng.random() < 0.7]
            codec = rng.choice(self._codecs)
            whole = build_batch(records, codec=codec, leader_epoch=0)
            if not kept:
                batches.append(build_empty_batch(read_header(whole)))
            else:
                batches.append(
                    build_batch(
                        kept,
                        base_offset=offset,
                        last_offset_delta=len(records) - 1,
                        codec=codec,
                        leader_epoch=0,
                    )
                )
            offset += len(records) + rng.choice([0, 0, 2])
        data = b"".join(batches)
        if len(data) <= self.log.config.segment_bytes:
            self.log.append_as_follower(data)
            self._replicate()

    # Everything else

    def _roll(self) -> None:
        self.log.roll()

    def _tick(self) -> None:
        self.clock.advance_ms(self.rng.choice([1, 700, 25_000]))

    def _delete_records(self) -> None:
        self.log.delete_records(
            self.rng.randint(self.log.log_start_offset, self.log.high_watermark)
        )
        if self.rng.random() < 0.5:
            self.log.delete_old_segments()
            self.log.delete_due_files()
        self._write_checkpoints()

    def _restart(self) -> None:
        self.stop()
        (self.log_dir / filenames.CLEAN_SHUTDOWN).unlink()
        self.log = self._open(was_clean=True)

    def _crash(self) -> None:
        self._write_checkpoints()
        self.log = self._open(was_clean=False)

    def _open(self, *, was_clean: bool) -> PartitionLog:
        log = PartitionLog(
            self._fs,
            self.clock,
            LoadRequest(
                partition=PARTITION,
                directory=self.log_dir / filenames.partition_dir_name(PARTITION),
                config=self.config,
                now_ms=self.clock.now_ms(),
                log_start_offset=self._log_start_offset,
                recovery_point=self._recovery_point,
                was_clean=was_clean,
            ),
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def _write_checkpoints(self) -> None:
        log = self.log
        self._log_start_offset = log.log_start_offset
        self._recovery_point = log.recovery_point
        for name, offset in (
            (filenames.LOG_START_OFFSETS, log.log_start_offset),
            (filenames.RECOVERY_POINTS, log.recovery_point),
            (filenames.HIGH_WATERMARKS, log.high_watermark),
        ):
            self._fs.write_atomically(self.log_dir / name, format_offsets({PARTITION: offset}))
