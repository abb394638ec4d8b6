"""Our passes against those of Kafka's own cleaner, over random logs.

Draft docstring.
"""

import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.reference import ReferenceEngine
from siltstone.cleaner.result import GroupResult, PassResult
from siltstone.cleaner.selection import Assessment, Reason
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.producer_entry import ProducerEntry
from siltstone.log.recovery import LoadRequest
from siltstone.records.batch import Batch, iter_batches
from siltstone.records.builder import build_batch, build_empty_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.kafka.clean_ops import (
    KafkaPass,
    Selection,
    WatchedLogOps,
    clean,
    select,
    start_watched,
)
from tests.kafka.harness import Harness
from tests.kafka.states import LogState, encode
from tests.support.clock import ManualClock

LOGS: Final = int(os.environ.get("SILTSTONE_SOAK", "300"))
FIRST_SEED: Final = int(os.environ.get("SILTSTONE_FIRST_SEED", "0"))
SEEDS_PER_TEST: Final = 25
PASSES: Final = 3

# One line per engine: all must do what Kafka does.
ENGINES: Final[Mapping[str, Callable[[], CleaningEngine]]] = {
    "reference": ReferenceEngine,
}

PARTITION: Final = TopicPartition("t", 0)
YEAR_2020_MS: Final = 1_577_836_800_000
MAX_SEQUENCE: Final = 2**31 - 1
SEGMENT_FILES: Final = (
    filenames.LOG,
    filenames.OFFSET_INDEX,
    filenames.TIME_INDEX,
    filenames.TRANSACTION_INDEX,
)
STATS: Counter[str] = Counter()


@pytest.fixture(scope="module")
def watched_ops(harness: Harness) -> Iterator[WatchedLogOps]:
    """A process of its own, so that its warnings are about these logs."""
    with start_watched(harness) as ops:
        yield ops


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize(
    "first_seed",
    range(FIRST_SEED, FIRST_SEED + LOGS, SEEDS_PER_TEST),
    ids=lambda seed: f"from-seed-{seed}",
)
def test_a_pass_leaves_what_kafkas_cleaner_leaves(
    engine_name: str, first_seed: int, watched_ops: WatchedLogOps, tmp_path: Path
) -> None:
    last_seed = min(first_seed + SEEDS_PER_TEST, FIRST_SEED + LOGS)
    print(f"seeds {first_seed} to {last_seed - 1}, {PASSES} passes each")
    for seed in range(first_seed, last_seed):
        directory = tmp_path / str(seed)
        life = Life(watched_ops, directory, seed, ENGINES[engine_name]())
        try:
            life.run()
        except Exception as error:
            error.add_note(f"seed {seed}:\n" + "\n".join(life.trace))
            raise
        finally:
            life.pair.forget()
        shutil.rmtree(directory)
    print(STATS)


class UnsafeFileSystem(FileSystem):
    """The disk without the waiting: what survives a loss of power is tested elsewhere."""

    def fsync(self, file: File) -> None:
        pass

    def fsync_dir(self, path: Path) -> None:
        pass


class Pair:
    """A log of Kafka's and one of ours with the same content, under clocks with the same time."""

    def __init__(
        self,
        ops: WatchedLogOps,
        directory: Path,
        settings: Mapping[str, str],
        now_ms: int,
        engine: CleaningEngine,
        *,
        producer_expiration_ms: int,
    ) -> None:
        self.settings = dict(settings)
        self.producer_expiration_ms = producer_expiration_ms
        self.clock = ManualClock(now_ms)
        self.our_directory = directory / "ours" / "t-0"
        self.checkpoint: int | None = None
        self.is_equal = True
        self._ops = ops
        self._fs = UnsafeFileSystem()
        self.checkpoints = CleanerCheckpoints(self._fs, self.our_directory.parent)
        self._runner = PassRunner(self._fs, self.clock, engine, self.checkpoints)
        self.kafka = ops.open(
            directory / "kafka" / "t-0",
            config=self.settings,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_expiration_ms,
        )
        self.ours = self._open(was_clean=True, recovery_point=0, log_start_offset=0)

    def forget(self) -> None:
        self.kafka.forget()

    # Operations, each on both

    def append(
        self,
        data: bytes,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> None:
        self._post(
            "append",
            batches=encode(data),
            leader_epoch=leader_epoch,
            origin="CLIENT" if origin is AppendOrigin.CLIENT else "COORDINATOR",
            transaction_version=transaction_version,
        )
        self.ours.append(
            data,
            leader_epoch=leader_epoch,
            origin=origin,
            transaction_version=transaction_version,
        )

    def append_as_follower(self, data: bytes, *, leader_epoch: int) -> None:
        self._post(
            "append", batches=encode(data), leader_epoch=leader_epoch, origin="REPLICATION"
        )
        self.ours.append_as_follower(data)

    def update_high_watermark(self, offset: int) -> None:
        self._post("update_high_watermark", offset=offset)
        self.ours.update_high_watermark(offset)

    def roll(self) -> None:
        self._post("roll")
        self.ours.roll()

    def update_config(self, settings: Mapping[str, str]) -> None:
        self.settings.update(settings)
        self._post("update_config", config=dict(settings))
        self.ours.update_config(LogConfig.parse(self.settings))

    def advance(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self._post("advance", ms=ms)
        self._remove_expired_producers()

    def delete_records(self, offset: int) -> None:
        self._post("increment_log_start_offset", offset=offset)
        self.ours.delete_records(offset)

    def delete_old_segments(self) -> None:
        self._post("delete_old_segments")
        self.ours.delete_old_segments()

    # Cleaning

    def select(self, checkpoint: int | None) -> tuple[Selection, Assessment]:
        """Let both say what they would do with the log, and hold it against each other."""
        theirs = select(self.kafka, checkpoint)
        ours, _ = assess_log(self.ours, checkpoint, self.clock.now_ms())
        numbers = (
            ours.first_dirty_offset,
            ours.first_uncleanable_offset,
            ours.clean_bytes,
            ours.dirty_bytes,
            ours.checkpoint_was_reset,
        )
        assert numbers == (
            theirs.first_dirty_offset,
            theirs.first_uncleanable_offset,
            theirs.clean_bytes,
            theirs.cleanable_bytes,
            theirs.resets_checkpoint,
        ), (ours, theirs)
        assert ours.dirty_ratio == (theirs.cleanable_ratio or 0.0)
        if not self.ours.config.is_compacted:
            assert ours.reason is Reason.NOT_COMPACTED
            assert not theirs.is_eligible
            return theirs, ours
        assert ours.compaction_delay_ms == theirs.compaction_delay_ms
        if ours.is_eligible != theirs.is_eligible:
            assert ours.reason is Reason.EXPIRED_HORIZON, (ours, theirs)
        return theirs, ours

    def clean(self, first_dirty_offset: int, selection: Selection, assessment: Assessment) -> None:
        """Run one pass on both and hold what it left against each other."""
        before = Files.read(self.our_directory)
        mtimes = {base: _modified_ms(self.our_directory, base) for base in before.base_offsets}
        their_mtimes = {
            base: _modified_ms(self.kafka.directory, base) for base in before.base_offsets
        }
        state = describe_ours(self.ours)
        plan = plan_pass(self.ours, assessment, self.clock.now_ms())
        known = tuple(t for t in plan.aborted if t.last_offset >= plan.log_start_offset)
        STATS["deletes"] += plan.log_start_offset > plan.sources[0].base_offset
        if plan.aborted != known:
            STATS["aborted below log start"] += 1
            plan = replace(plan, aborted=known)
        done = self._runner.run(self.ours, plan)
        theirs = clean(
            self.kafka,
            first_dirty_offset,
            selection.limit_offset,
            io_bytes=1000,
            write_checkpoint=True,
        )
        self.kafka.advance(0)  # lets it delete what it has replaced
        self.ours.delete_due_files()
        self.checkpoint = self.checkpoints.find(PARTITION)
        STATS["passes"] += 1
        comparison = Comparison(
            plan, done.result, theirs, before, Files.read(self.our_directory),
            Files.read(self.kafka.directory),
        )
        comparison.check()
        self.is_equal = comparison.is_equal
        assert _without_segments(describe_ours(self.ours)) == _without_segments(state)
        assert _without_segments(describe_kafka(self.kafka.state)) == _without_segments(state)

    def trusted_dirty_offset(self, first_dirty_offset: int) -> int:
        """Give the offset from which on Kafka reads transactions right."""
        segment = self.ours.segments.find_floor(first_dirty_offset)
        if segment is None:
            return first_dirty_offset
        for txn in segment.transaction_index.entries:
            if txn.last_offset < first_dirty_offset:
                STATS["mid-segment txns"] += 1
                return segment.base_offset
        return first_dirty_offset

    def half_clean(self, selection: Selection, key_count: int) -> int | None:
        if selection.first_dirty_offset >= selection.first_uncleanable_offset:
            return None
        done = clean(
            self.kafka,
            self.trusted_dirty_offset(selection.first_dirty_offset),
            selection.limit_offset,
            map_bytes=24 * key_count, write_checkpoint=True,
        )
        self.checkpoint = done.next_dirty_offset
        STATS["half"] += done.next_dirty_offset < done.first_uncleanable_offset
        return done.next_dirty_offset

    # Restart

    def restart(self, *, source: str, is_clean: bool, recovery_point: int | None) -> None:
        """Stop both, give one's files to the other, and start both on them."""
        log_start_offset = self.ours.log_start_offset
        self.kafka.close()
        self.ours.close()
        self._ops.complaints()
        origin, target = self.our_directory, self.kafka.directory
        if source == "kafka":
            origin, target = target, origin
        shutil.rmtree(target)
        shutil.copytree(origin, target)
        if recovery_point is None:
            recovery_point = self.ours.recovery_point
        self.kafka.reopen(
            clean=is_clean, recovery_point=recovery_point, log_start_offset=log_start_offset
        )
        self.ours = self._open(
            was_clean=is_clean, recovery_point=recovery_point, log_start_offset=log_start_offset
        )
        self._remove_expired_producers()
        # To the end: which markers were not replicated yet, Kafka does not know after a restart.
        self.update_high_watermark(self.ours.log_end_offset)
        self.kafka.call("state")
        complaints = self._ops.complaints()
        assert complaints == [], complaints
        self.compare_states()

    def compare_states(self) -> None:
        theirs = describe_kafka(self.kafka.state)
        for name, ours in describe_ours(self.ours).items():
            assert ours == theirs[name], f"{name}: {ours} is not {theirs[name]}"

    def _open(
        self, *, was_clean: bool, recovery_point: int, log_start_offset: int
    ) -> PartitionLog:
        return PartitionLog(
            self._fs,
            self.clock,
            LoadRequest(
                partition=PARTITION,
                directory=self.our_directory,
                config=LogConfig.parse(self.settings),
                now_ms=self.clock.now_ms(),
                log_start_offset=log_start_offset,
                recovery_point=recovery_point,
                was_clean=was_clean,
                producer_expiration_ms=self.producer_expiration_ms,
            ),
        )

    def _post(self, op: str, **fields: Any) -> None:
        self._ops.post(op, self.kafka, **fields)

    def _remove_expired_producers(self) -> None:
        self._post("remove_expired_producers")
        self.ours.remove_expired_producers()


def _modified_ms(directory: Path, base_offset: int) -> int:
    return filenames.log_path(directory, base_offset).stat().st_mtime_ns // 1_000_000


@dataclass(frozen=True)
class Files:
    """The files of all segments of a log, in memory."""

    contents: Mapping[tuple[int, str], bytes]  # by base offset and extension

    @classmethod
    def read(cls, directory: Path) -> "Files":
        contents = {}
        for path in directory.iterdir():
            file = filenames.parse_segment_file(path.name)
            if file is not None and file.extension in SEGMENT_FILES:
                assert not file.suffix, path
                contents[file.base_offset, file.extension] = path.read_bytes()
        return cls(contents)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return tuple(sorted(base for base, extension in self.contents if extension == ".log"))

    def of(self, base_offset: int) -> dict[str, bytes]:
        return {
            extension: data for (base, extension), data in self.contents.items()
            if base == base_offset
        }


class Comparison:
    def __init__(
        self, plan: CleaningPlan, result: PassResult, kafka_pass: KafkaPass,
        before: Files, ours: Files, theirs: Files,
    ) -> None:
        self.plan, self.result, self.kafka_pass = plan, result, kafka_pass
        self.before, self.ours, self.theirs = before, ours, theirs

    @property
    def is_equal(self) -> bool:
        return self.ours == self.theirs

    def check(self) -> None:
        assert self.plan.end_offset == self.kafka_pass.next_dirty_offset
        assert self.theirs.base_offsets == (
            *(group.base_offsets[0] for group in self.result.groups),
            *(base for base in self.before.base_offsets if base >= self.plan.end_offset),
        )
        counts = self.result.counts
        for name, value in counts.as_dict().items():
            STATS[name] += bool(value)
        assert counts.records_kept + counts.markers_kept == self.kafka_pass.messages_written
        assert counts.keyless_removed == self.kafka_pass.invalid_messages_read
        assert counts.bytes_read == self.kafka_pass.bytes_read
        for group in self.result.groups:
            self._check_group(group)
        for base in self.before.base_offsets:
            if base >= self.plan.end_offset:
                assert self.ours.of(base) == self.before.of(base)

    def _check_group(self, group: GroupResult) -> None:
        base = group.base_offsets[0]
        theirs = self.theirs.of(base)
        if group.is_unchanged:
            STATS["unchanged groups"] += 1
            assert self.ours.of(base) == self.before.of(base)
            assert theirs[".log"] == self.before.of(base)[".log"]
            assert theirs.get(".txnindex") == self.before.of(base).get(".txnindex")
            if theirs != self.before.of(base):
                STATS["unchanged groups with other indexes"] += 1
            return
        STATS["groups"] += 1
        STATS["merged groups"] += len(group.base_offsets) > 1
        if len(group.outputs) > 1:
            STATS["split groups"] += 1
            bases = [output.base_offset for output in group.outputs]
            parts = [self.ours.of(output) for output in bases]
            assert compare_batches(b"".join(p[".log"] for p in parts), theirs[".log"])
            assert b"".join(p.get(".txnindex", b"") for p in parts) == theirs.get(".txnindex", b"")
            return
        ours = self.ours.of(base)
        is_equal = compare_batches(ours[".log"], theirs[".log"])
        assert ours.get(".txnindex") == theirs.get(".txnindex")
        if is_equal:
            assert ours[".index"] == theirs[".index"]
            assert ours[".timeindex"] == theirs[".timeindex"]
        else:
            STATS["groups with other compressed bytes"] += 1


def compare_batches(ours: bytes, theirs: bytes) -> bool:
    if ours == theirs:
        return True
    our_batches = [batch for _, batch in iter_batches(ours)]
    their_batches = [batch for _, batch in iter_batches(theirs)]
    assert [b.header.base_offset for b in our_batches] == [
        b.header.base_offset for b in their_batches
    ]
    for our, their in zip(our_batches, their_batches, strict=True):
        if our.header.codec is Codec.NONE:
            assert bytes(our.data) == bytes(their.data), (our.header, their.header)
        elif bytes(our.data) != bytes(their.data):
            STATS[f"other bytes {our.header.codec.name}"] += 1
        same = {"length": 0, "crc": 0}
        assert our.header._replace(**same) == their.header._replace(**same)
        assert list(our.iter_records()) == list(their.iter_records())
    return False


def describe_kafka(state: LogState) -> dict[str, Any]:
    return {
        "offsets": (
            state.log_start_offset,
            # Kafka: with a transaction open from below a log start within a batch, it is the start
            # of that batch. Either way there is nothing to read.
            max(state.last_stable_offset, state.log_start_offset),
            state.high_watermark,
            state.log_end_offset,
        ),
        "epochs": state.epochs,
        "producers": [
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
        "segments": [
            (
                segment.base_offset,
                segment.size,
                segment.offset_index or (),
                segment.time_index or (),
                [
                    (t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
                    for t in segment.txn_index or ()
                ],
            )
            for segment in state.segments
        ],
    }


def describe_ours(log: PartitionLog) -> dict[str, Any]:
    def absent(offset: int | None) -> int:
        return -1 if offset is None else offset

    return {
        "offsets": (
            log.log_start_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.log_end_offset,
        ),
        "epochs": tuple(tuple(entry) for entry in log.leader_epochs.entries),
        "producers": [
            (
                e.producer_id,
                e.epoch,
                e.last_sequence,
                absent(e.last_data_offset),
                e.last_timestamp_ms,
                e.coordinator_epoch,
                absent(e.current_txn_first_offset),
            )
            for _, e in sorted(log.producer_state.entries.items())
        ],
        "segments": [
            (
                segment.base_offset,
                segment.size_bytes,
                tuple(
                    tuple(segment.offset_index.get(slot))
                    for slot in range(segment.offset_index.file.count)
                ),
                tuple(tuple(entry) for entry in segment.time_index.entries()),
                [tuple(t) for t in segment.transaction_index.entries],
            )
            for segment in log.segments
        ],
    }


def _without_segments(described: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name != "segments"}


class Life:
    """A random life of a compacted log. Equal seeds give equal lives."""

    def __init__(
        self, ops: WatchedLogOps, directory: Path, seed: int, engine: CleaningEngine
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.trace: list[str] = []
        settings = self._settings()
        self.key_count = rng.choice([1, 4, 12, 40, 10_000])
        self.tombstone_share = rng.choice([0.0, 0.2, 0.2, 0.5, 1.0])
        self.codecs = rng.choice([[Codec.NONE], [Codec.NONE], list(Codec), [rng.choice(list(Codec))]])
        self.follows_log_end = rng.random() < 0.8
        self.leader_epoch = 0
        self.epochs: dict[int, int] = {}  # the newest of every producer
        self.retention_ms = int(settings["delete.retention.ms"])
        now_ms = YEAR_2020_MS
        # Kafka: what it forgets about a producer when it recovers depends on which snapshots it
        # finds. Logs in which producers expire are therefore always stopped in good order.
        self.loses_producers = rng.random() < 0.3
        self.pair = Pair(
            ops,
            directory,
            settings,
            now_ms,
            engine,
            producer_expiration_ms=5000 if self.loses_producers else 86_400_000,
        )
        self.trace.append(f"  {settings}, {self.key_count} keys")

    @property
    def log(self) -> PartitionLog:
        return self.pair.ours

    def run(self) -> None:
        for number in range(PASSES):
            if number == 1 or self.rng.random() < 0.8:
                for _ in range(self.rng.randint(4, 30)):
                    self._act(*zip(*self._operations(), strict=True))
            self._settle()
            self._note("advance", self._jump())
            self._note("clean", self._clean())
            if not self.pair.is_equal or self.rng.random() < 0.6:
                self._note("restart", self._restart())

    def _act(self, operations: Sequence[Callable[[], str]], weights: Sequence[float]) -> None:
        (act,) = self.rng.choices(operations, weights)
        self.trace.append(f"  {act.__name__.strip('_')}")
        self.trace[-1] += f": {act()}"

    def _note(self, what: str, done: str) -> None:
        self.trace.append(f"  {what}: {done}")

    def _settings(self) -> dict[str, str]:
        rng = self.rng
        settings: dict[str, Any] = {
            "cleanup.policy": rng.choice(["compact", "compact", "compact", "compact,delete", "delete"]),
            "retention.ms": -1,
            "segment.bytes": rng.choice([400, 800, 2000, 12_000]),
            "index.interval.bytes": rng.choice([0, 80, 300, 4096]),
            "segment.index.bytes": rng.choice([4096, 4096, 1200, 240, 60]),
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
        accepts_null = not self.log.config.is_compacted

        def timestamp_ms() -> int:
            if style == "none":
                return -1
            return now_ms if style == "now" else now_ms - rng.randint(0, 4000)

        def key() -> bytes | None:
            if accepts_null and rng.random() < 0.3:
                return None
            number = rng.randrange(self.key_count)
            return b"" if number == 0 else b"key-%d" % number

        def value() -> bytes | None:
            if rng.random() < self.tombstone_share:
                return None
            return rng.choice([b"", b"v" * rng.randint(1, 100), rng.randbytes(20)])

        def headers() -> tuple[tuple[str, bytes | None], ...]:
            return (("h", b"x"), ("", None)) if rng.random() < 0.1 else ()

        return [
            Record(offset + number, timestamp_ms(), key(), value(), headers())
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
        if self.follows_log_end or self.rng.random() < 0.3:
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
        self.epochs[producer_id] = epoch
        data = build_batch(
            self._records(),
            codec=self._codec(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        return f"producer {producer_id}, epoch {epoch}, sequence {sequence}: {self._append(data)}"

    def _end_transaction(self) -> str:
        producers = self._open_transactions()
        if not producers:
            return "left out: none is open"
        chosen = self.rng.choice(producers)
        return self._end(chosen.producer_id, chosen.epoch, chosen.coordinator_epoch)

    def _end_nothing(self) -> str:
        """End a transaction without data: a marker and nothing else."""
        known = [
            entry
            for producer_id, entry in self.log.producer_state.entries.items()
            if producer_id > 10 and entry.epoch >= 0
        ]
        if known and self.rng.random() < 0.7:
            chosen = self.rng.choice(known)
            return self._end(chosen.producer_id, chosen.epoch, chosen.coordinator_epoch)
        producer_id = self.rng.choice([21, 22])
        return self._end(producer_id, self.epochs.get(producer_id, 3), -1, version=0)

    def _end(
        self, producer_id: int, epoch: int, coordinator_epoch: int, version: int | None = None
    ) -> str:
        rng = self.rng
        if version is None:
            version = rng.choice([0, 2])
        known = self.log.producer_state.entries.get(producer_id)
        if known is not None and epoch < known.epoch:
            return "left out: a newer epoch is known"
        epoch += version == 2
        self.epochs[producer_id] = max(self.epochs.get(producer_id, 0), epoch)
        kind = rng.choice([ControlType.ABORT, ControlType.COMMIT])
        marker = build_marker(
            kind,
            offset=0,
            timestamp_ms=self.pair.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        done = self._append(
            marker, origin=AppendOrigin.COORDINATOR, transaction_version=version
        )
        return f"{kind.name} of {producer_id}, epoch {epoch}, version {version}: {done}"

    def _append_as_follower(self) -> str:
        """Append what another replica's cleaner may have left: gaps, thinned and empty batches."""
        rng = self.rng
        offset = self.log.log_end_offset + rng.choice([0, 0, 3])
        if rng.random() < 0.05:
            offset += 2**31 - rng.randint(0, 20)
        batches = []
        for _ in range(rng.randint(1, 3)):
            records = self._records(offset)
            kept = [record for record in records if rng.random() < 0.7]
            whole = build_batch(
                records, codec=self._codec(), leader_epoch=self.leader_epoch
            )
            if not kept:
                (header,) = (batch.header for _, batch in iter_batches(whole))
                batches.append(build_empty_batch(header))
            else:
                batches.append(
                    build_batch(
                        kept,
                        base_offset=offset,
                        last_offset_delta=len(records) - 1,
                        codec=self._codec(),
                        leader_epoch=self.leader_epoch,
                        delete_horizon_ms=rng.choice(
                            [None, self.pair.clock.now_ms() + rng.randint(-500, 3000)]
                        ),
                    )
                )
            offset += len(records) + rng.choice([0, 0, 2])
        data = b"".join(batches)
        if len(data) > self.log.config.segment_bytes:
            return "left out: over segment.bytes"
        self.pair.append_as_follower(data, leader_epoch=self.leader_epoch)
        self._replicate()
        return f"{[len(batch) for batch in batches]}, now at {self.log.log_end_offset}"

    # Everything else

    def _settle(self) -> None:
        """See to it that there mostly is something to clean."""
        if not self.log.config.is_compacted:
            self.pair.update_config({"cleanup.policy": "compact"})
        while self.rng.random() < 0.85 and self._open_transactions():
            self._note("end_transaction", self._end_transaction())
        if self.rng.random() < 0.8:
            self._note("roll", self._roll())
        if self.rng.random() < 0.8:
            self.pair.update_high_watermark(self.log.log_end_offset)

    def _open_transactions(self) -> list[ProducerEntry]:
        return [
            entry
            for entry in self.log.producer_state.entries.values()
            if entry.current_txn_first_offset is not None
        ]

    def _roll(self) -> str:
        if not self.log.segments.active.size_bytes:
            return "left out: it is empty"
        self.pair.roll()
        return f"at {self.log.log_end_offset}"

    def _tick(self) -> str:
        self.pair.advance(self.rng.choice([1, 100, 1500]))
        return f"to {self.pair.clock.now_ms()}"

    def _jump(self) -> str:
        self.pair.advance(
            self.rng.choice([0, 1, self.retention_ms, self.retention_ms, 4000, 60_000])
        )
        return f"to {self.pair.clock.now_ms()}"

    def _change_settings(self) -> str:
        name, values = self.rng.choice(
            [
                ("message.timestamp.type", ["CreateTime", "LogAppendTime"]),
                ("segment.bytes", ["500", "3000"]),
                ("index.interval.bytes", ["0", "200"]),
                ("cleanup.policy", ["compact", "compact,delete", "delete"]),
            ]
        )
        value = self.rng.choice(values)
        self.pair.update_config({name: value})
        return f"{name}={value}"

    def _delete_records(self) -> str:
        offset = self.rng.randint(self.log.log_start_offset, self.log.high_watermark)
        self.pair.delete_records(offset)
        return f"below {offset}"

    def _delete_old_segments(self) -> str:
        self.pair.delete_old_segments()
        return f"now from {self.log.segments.first.base_offset}"

    def _half_clean(self) -> str:
        """Let Kafka's cleaner do a pass with a map that is too small, and take over from it."""
        selection, _ = self.pair.select(self.pair.checkpoint)
        done = self.pair.half_clean(selection, self.rng.randint(2, 6))
        if done is None:
            return "left out"
        self._note("half clean", f"to {done}")
        self.pair.restart(source="kafka", is_clean=True, recovery_point=None)
        return "restarted"

    def _clean(self) -> str:
        rng = self.rng
        if rng.random() < 0.15:
            self._half_clean()
        end = self.log.log_end_offset
        for checkpoint in rng.sample([None, rng.randint(0, end), end, end + 1], 2):
            self.pair.select(checkpoint)
        if rng.random() < 0.1:
            self.pair.checkpoint = None  # lost: everything is dirty again
        selection, assessment = self.pair.select(self.pair.checkpoint)
        first_dirty_offset = selection.first_dirty_offset
        if assessment.first_uncleanable_offset == self.log.segments.first.base_offset:
            return f"left out: {assessment}"
        if first_dirty_offset >= assessment.first_uncleanable_offset:
            # Kafka does nothing at all then, so it is told that everything is dirty.
            first_dirty_offset = 0
        if self.log.log_start_offset > self.log.segments.first.base_offset:
            first_dirty_offset = 0
        first_dirty_offset = self.pair.trusted_dirty_offset(first_dirty_offset)
        self.pair.clean(first_dirty_offset, selection, assessment)
        return f"from {first_dirty_offset}, {assessment.explanation} -> {self.pair.checkpoint}"

    def _restart(self) -> str:
        rng = self.rng
        source = rng.choice(["ours", "kafka"])
        # Kafka: after an unclean stop it forgets producers whose batches are below the log start.
        has_lost = self.log.log_start_offset > self.log.segments.first.base_offset
        is_clean = self.loses_producers or has_lost or rng.random() < 0.5
        recovery_point = None if is_clean or rng.random() < 0.3 else 0
        self.pair.restart(source=source, is_clean=is_clean, recovery_point=recovery_point)
        return f"from {source}, clean: {is_clean}, recovery point {recovery_point}"
