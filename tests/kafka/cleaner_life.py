"""Random lives of a log that two cleaners share: what is appended, when, and how it is set up."""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from siltstone.cleaner.engine import CleaningEngine
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.records.batch import iter_batches
from siltstone.records.builder import build_batch, build_empty_batch
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.kafka.clean_ops import (
    WatchedLogOps,
)
from tests.kafka.cleaner_pair import LARGE_INDEX_BYTES, Pair, marker
from tests.kafka.cleaner_states import SEEN, TIME_ENTRY_BYTES, Side
from tests.kafka.log_ops import KafkaRefusedError
from tests.support.producers import open_transactions

DAY_MS: Final = 86_400_000
PASSES: Final = 3
MAX_SEQUENCE: Final = 2**31 - 1


class Life:
    """A random life of a compacted log. Equal seeds give equal lives."""

    def __init__(
        self, ops: WatchedLogOps, directory: Path, seed: int, engine: CleaningEngine
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.trace: list[str] = []
        settings = self._settings()
        self.retention_ms = int(settings["delete.retention.ms"])
        self.has_small_indexes = int(settings["segment.index.bytes"]) < LARGE_INDEX_BYTES
        self.key_count = rng.choice([1, 4, 12, 40, 10_000])
        self.tombstone_share = rng.choice([0.0, 0.2, 0.2, 0.5, 1.0])
        self.largest_value = rng.choice([100, 100, 100, 3000])
        self.codecs = rng.choice([[Codec.NONE], list(Codec), [rng.choice(list(Codec))]])
        self.is_replicated = rng.random() < 0.8  # every append moves the high watermark
        self.leader_epoch = 0
        self.epochs: dict[int, int] = {}  # the newest of every producer
        self.loses_producers = rng.random() < 0.3
        self.pair = Pair(
            ops,
            directory,
            settings,
            engine,
            producer_expiration_ms=5000 if self.loses_producers else DAY_MS,
        )
        self.trace.append(f"  {settings}, {self.key_count} keys")

    @property
    def log(self) -> PartitionLog:
        return self.pair.ours

    def run(self) -> None:
        for number in range(PASSES):
            if number < 2 or self.rng.random() < 0.7:
                for _ in range(self.rng.randint(5, 30)):
                    operations, weights = zip(*self._operations(), strict=True)
                    (act,) = self.rng.choices(operations, weights)
                    self._do(act)
            self._settle()
            self._do(self._jump)
            if self.rng.random() < 0.15:
                self._do(self._half_clean)
            self._do(self._clean)
            if not self.pair.is_equal or self.rng.random() < 0.6:
                self._do(self._restart)

    def _do(self, act: Callable[[], str]) -> None:
        self.trace.append(f"  {act.__name__.strip('_')}")
        self.trace[-1] += f": {act()}"

    def _settings(self) -> dict[str, str]:
        rng = self.rng
        policies = ["compact", "compact", "compact", "compact,delete", "delete"]
        settings: dict[str, Any] = {
            "cleanup.policy": rng.choice(policies),
            "retention.ms": -1,
            "segment.bytes": rng.choice([400, 800, 2000, 12_000]),
            "index.interval.bytes": rng.choice([0, 80, 300, 4096]),
            "segment.index.bytes": rng.choice(
                [LARGE_INDEX_BYTES, LARGE_INDEX_BYTES, 1200, 240, 60]
            ),
            "segment.ms": rng.choice([2000, 604_800_000]),
            "file.delete.delay.ms": 0,
            "delete.retention.ms": rng.choice([0, 1000, 20_000]),
            "min.cleanable.dirty.ratio": rng.choice([0.0, 0.1, 0.5, 1.0]),
            "message.timestamp.type": rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        }
        if rng.random() < 0.2:
            settings["min.compaction.lag.ms"] = rng.choice([500, 3000])
        if rng.random() < 0.2:
            settings["max.compaction.lag.ms"] = rng.choice([3000, 15_000])
        return {name: str(value) for name, value in settings.items()}

    def _operations(self) -> Iterator[tuple[Callable[[], str], float]]:
        yield self._append_plain, 6
        yield self._append_idempotent, 3
        yield self._append_transactional, 5
        yield self._end_transaction, 3
        yield self._end_nothing, 0.3
        yield self._append_as_follower, 1
        yield self._roll, 1.5
        yield self._tick, 1.5
        yield self._change_settings, 0.2
        if self.log.config.deletes:
            yield self._delete_records, 0.5
            yield self._delete_old_segments, 0.5

    # Appends

    def _records(self, offset: int = 0) -> list[Record]:
        rng = self.rng
        now_ms = self.pair.clock.now_ms()
        style = rng.choice(["now", "now", "spread", "none"])
        may_lack_key = not self.log.config.is_compacted

        def timestamp_ms() -> int:
            if style == "none":
                return -1
            return now_ms if style == "now" else now_ms - rng.randint(0, 4000)

        def key() -> bytes | None:
            if may_lack_key and rng.random() < 0.3:
                return None
            number = rng.randrange(self.key_count)
            return b"" if number == 0 else b"key-%d" % number

        def value() -> bytes | None:
            if rng.random() < self.tombstone_share:
                return None
            size = rng.randint(1, self.largest_value)
            return rng.choice([b"", b"v" * size, rng.randbytes(20), rng.randbytes(9) * (size // 9)])

        return [
            Record(
                offset + number,
                timestamp_ms(),
                key(),
                value(),
                (("h", b"x"), ("", None)) if rng.random() < 0.1 else (),
            )
            for number in range(rng.choice([1, 1, 1, 2, 3, 6]))
        ]

    def _codec(self) -> Codec:
        return self.rng.choice(self.codecs)

    def _append(self, data: bytes, **options: Any) -> str:
        if len(data) > self.log.config.segment_bytes:
            return "left out: over segment.bytes"
        if self.rng.random() < 0.03:
            self.leader_epoch += 1
        first_offset = self.log.log_end_offset
        self.pair.append(data, leader_epoch=self.leader_epoch, **options)
        self._replicate()
        return f"{len(data)} bytes at {first_offset}..{self.log.log_end_offset - 1}"

    def _replicate(self) -> None:
        if self.is_replicated or self.rng.random() < 0.3:
            self.pair.update_high_watermark(self.log.log_end_offset)

    def _append_plain(self) -> str:
        return self._append(build_batch(self._records(), codec=self._codec()))

    def _append_idempotent(self) -> str:
        return self._append_as_producer(self.rng.choice([1, 2]), is_transactional=False)

    def _append_transactional(self) -> str:
        return self._append_as_producer(self.rng.choice([11, 12, 13]), is_transactional=True)

    def _append_as_producer(self, producer_id: int, *, is_transactional: bool) -> str:
        rng = self.rng
        known = self.log.producer_state.entries.get(producer_id)
        # After it was forgotten, a producer comes back with a higher epoch.
        epoch, sequence = self.epochs.get(producer_id, -1) + 1, rng.choice([0, MAX_SEQUENCE - 1])
        if known is not None:
            epoch, sequence = known.epoch, (known.last_sequence + 1) & MAX_SEQUENCE
            if epoch < 0:
                return "left out: its epoch is unknown"
            if known.current_txn_first_offset is None and rng.random() < 0.1:
                epoch, sequence = epoch + 1, 0
        data = build_batch(
            self._records(),
            codec=self._codec(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        if len(data) <= self.log.config.segment_bytes:
            self.epochs[producer_id] = epoch
        return f"producer {producer_id}, epoch {epoch}, sequence {sequence}: {self._append(data)}"

    def _end_transaction(self) -> str:
        producers = open_transactions(self.log.producer_state)
        if not producers:
            return "left out: none is open"
        chosen = self.rng.choice(producers)
        return self._end(
            chosen.producer_id, chosen.epoch, chosen.coordinator_epoch, self.rng.choice([0, 2])
        )

    def _end_nothing(self) -> str:
        """End a transaction without data: a marker and nothing else."""
        known = [
            entry
            for producer_id, entry in self.log.producer_state.entries.items()
            if producer_id > 10 and entry.epoch >= 0
        ]
        if known and self.rng.random() < 0.7:
            chosen = self.rng.choice(known)
            return self._end(chosen.producer_id, chosen.epoch, chosen.coordinator_epoch, 0)
        producer_id = self.rng.choice([21, 22])
        return self._end(producer_id, self.epochs.get(producer_id, 3), -1, 0)

    def _end(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int) -> str:
        kind = self.rng.choice([ControlType.ABORT, ControlType.COMMIT])
        epoch += version == 2
        self.epochs[producer_id] = max(self.epochs.get(producer_id, 0), epoch)
        done = self._append(
            marker(
                kind,
                producer_id,
                epoch=epoch,
                coordinator_epoch=max(coordinator_epoch, 0),
                timestamp_ms=self.pair.clock.now_ms(),
            ),
            origin=AppendOrigin.COORDINATOR,
            transaction_version=version,
        )
        return f"{kind.name} of {producer_id}, epoch {epoch}, version {version}: {done}"

    def _append_as_follower(self) -> str:
        """Append what the leader's cleaner may have left: gaps, thinned and empty batches."""
        rng = self.rng
        offset = self.log.log_end_offset + rng.choice([0, 0, 3])
        if rng.random() < 0.05:
            offset += 2**31 - rng.randint(0, 20)
        data = []
        # Kafka: it breaks down when one call fills an index.
        for _ in range(1 if self.has_small_indexes else rng.randint(1, 3)):
            records = self._records(offset)
            kept = [record for record in records if rng.random() < 0.7]
            horizon_ms = rng.choice([None, self.pair.clock.now_ms() + rng.randint(-500, 3000)])
            batch = build_batch(
                kept or records,
                base_offset=offset,
                last_offset_delta=len(records) - 1,
                codec=self._codec(),
                leader_epoch=self.leader_epoch,
                delete_horizon_ms=horizon_ms,
            )
            if not kept:
                (whole,) = (found for _, found in iter_batches(batch))
                batch = build_empty_batch(whole.header)
            data.append(batch)
            offset += len(records) + rng.choice([0, 0, 2])
        if sum(map(len, data)) > self.log.config.segment_bytes:
            return "left out: over segment.bytes"
        self.pair.append_as_follower(b"".join(data), leader_epoch=self.leader_epoch)
        self._replicate()
        return f"{[len(batch) for batch in data]}, now at {self.log.log_end_offset}"

    # Everything else

    def _roll(self) -> str:
        if not self.log.segments.active.size_bytes:
            return "left out: it is empty"
        self.pair.roll()
        return f"at {self.log.log_end_offset}"

    def _tick(self) -> str:
        self.pair.advance(self.rng.choice([1, 100, 1500]))
        return f"to {self.pair.clock.now_ms()}"

    def _jump(self) -> str:
        # To the very millisecond at which something is due, among others.
        retention_ms, lag_ms = self.retention_ms, self.log.config.min_compaction_lag_ms
        self.pair.advance(self.rng.choice([0, 1, retention_ms, retention_ms, lag_ms, 4000, 60_000]))
        return f"to {self.pair.clock.now_ms()}"

    def _settle(self) -> None:
        """See to it that there mostly is something to clean."""
        if not self.log.config.is_compacted:
            self.pair.update_config({"cleanup.policy": "compact"})
        while self.rng.random() < 0.85 and open_transactions(self.log.producer_state):
            self._do(self._end_transaction)
        if self.rng.random() < 0.8:
            self._do(self._roll)
        if self.rng.random() < 0.8:
            self.pair.update_high_watermark(self.log.log_end_offset)

    def _change_settings(self) -> str:
        name, choices = self.rng.choice(
            [
                ("message.timestamp.type", ["CreateTime", "LogAppendTime"]),
                ("segment.bytes", ["500", "3000"]),
                ("index.interval.bytes", ["0", "200"]),
                ("cleanup.policy", ["compact", "compact,delete", "delete"]),
            ]
        )
        value = self.rng.choice(choices)
        self.pair.update_config({name: value})
        return f"{name}={value}"

    def _delete_records(self) -> str:
        # Kafka: with a transaction open from below the log start, its last stable offset is some
        # batch near that. Either way there is nothing to read.
        offset = self.rng.randint(self.log.log_start_offset, self.log.last_stable_offset)
        self.pair.delete_records(offset)
        SEEN["deleted records"] += 1
        return f"below {offset}"

    def _delete_old_segments(self) -> str:
        self.pair.delete_old_segments()
        self.pair.advance(0)
        self.log.delete_due_files()
        return f"now from {self.log.segments.first.base_offset}"

    def _half_clean(self) -> str:
        """Let Kafka's cleaner do a pass with a map that is too small, and both go on from there."""
        selection, _ = self.pair.select(self.pair.checkpoint)
        if selection.first_dirty_offset >= selection.first_uncleanable_offset:
            return "left out: nothing is dirty"
        try:
            done = self.pair.half_clean_kafkas(selection, self.rng.randint(2, 6))
        except KafkaRefusedError as error:
            return self._enlarge_indexes(error)
        self.pair.restart(source="kafka", is_clean=True)
        SEEN["map too small"] += done.next_dirty_offset < done.first_uncleanable_offset
        return f"to {done.next_dirty_offset} of {done.first_uncleanable_offset}"

    def _clean(self) -> str:
        rng = self.rng
        end = self.log.log_end_offset
        for checkpoint in rng.sample([None, rng.randint(0, end), end, end + 1], 2):
            self.pair.select(checkpoint)
        if rng.random() < 0.1:
            self.pair.checkpoint = None
            SEEN["lost checkpoint"] += 1
        selection, assessment = self.pair.select(self.pair.checkpoint)
        if assessment.first_uncleanable_offset == self.log.segments.first.base_offset:
            return f"left out: {assessment.explanation}"
        try:
            first_dirty_offset = self.pair.clean(selection, assessment)
        except KafkaRefusedError as error:
            return f"{self._enlarge_indexes(error)}; once more: {self._clean()}"
        SEEN[f"limit: {assessment.limit.value}"] += 1
        if assessment.is_eligible:
            SEEN[f"due: {assessment.reason.value}"] += 1
        return f"from {first_dirty_offset}, {assessment.explanation}, to {self.pair.checkpoint}"

    def _enlarge_indexes(self, error: KafkaRefusedError) -> str:
        """Difference 7: let both begin again, with indexes that are large enough for Kafka."""
        if not re.search("append to a full (time )?index", error.message):
            raise error
        self.pair.update_config({"segment.index.bytes": str(LARGE_INDEX_BYTES)})
        self.pair.restart(source="ours", is_clean=True)
        SEEN["index too small"] += 1
        return error.message

    def _can_be_recovered(self) -> bool:
        """Say whether Kafka knows as much as we do after an unclean stop.

        It forgets what has expired in old snapshots, and producers whose batches are below the log
        start. It cannot load a log whose rebuilt index has more entries than fit.
        """
        largest = max(sum(1 for _ in segment.iter_headers()) for segment in self.log.segments)
        fits = largest * TIME_ENTRY_BYTES < self.log.config.segment_index_bytes
        return fits and not (self.loses_producers or self.pair.has_deleted_records)

    def _restart(self) -> str:
        rng = self.rng
        source: Side = "ours" if rng.random() < 0.6 else "kafka"
        is_clean = not self._can_be_recovered() or rng.random() < 0.4
        recovery_point = None if is_clean or rng.random() < 0.3 else 0
        self.pair.restart(source=source, is_clean=is_clean, recovery_point=recovery_point)
        SEEN[f"started from {source}"] += 1
        SEEN["not recovered" if is_clean else "recovered"] += 1
        return f"from {source}, clean: {is_clean}, recovery point {recovery_point}"
