"""Our passes against those of Kafka's own cleaner, over random logs.

Both logs have the same content, under clocks that show the same time. Both are asked whether a pass
is due; both run one; then everything that is left must be equal byte for byte: batches, indexes,
transaction indexes, checkpoints, and what was counted on the way. Between passes records are added,
time goes by, and each side is stopped and goes on with the files that the other has left.

Where the two differ, all of it on purpose but the first:

1.  Snappy finds other matches: such a payload may have other bytes, and the same records.
2.  A group of one segment in which nothing changes is left alone by us, with its indexes. Kafka
    copies it, and builds the indexes anew.
3.  What a pass writes may be larger than what it read: delete horizons take room. We begin another
    segment at `segment.bytes`; Kafka's becomes larger than that.
4.  An expired delete horizon makes a log eligible with us. Kafka waits for new data, and would not
    do anything without: for the comparison it is told that everything is dirty.
5.  With a first dirty offset within a segment, where a pass ends whose map was too small, Kafka
    takes transactions for aborted that began later, if their producer had one aborted in that
    segment before: older values of their keys stay for ever. It is told to begin at the segment.
6.  Below the log start Kafka leaves superseded records (it is told that everything is dirty), and
    does not know which transactions were aborted: markers go before the data. Our plan is run with
    Kafka's list first, and compared; then with ours, which leaves the same above the log start.
7.  Kafka gives up on a log whose merged segments need more index entries than fit. We leave some
    out. Both are given larger indexes and begin again.
8.  A first dirty offset is a hint to us: we also remove what is superseded below it.
9.  A batch whose CRC is wrong stops our pass; Kafka signs what is left of it.
10. Kafka gives up on a log in which a batch with times before 1970 must be written anew.

All but the first four have tests of their own as well.

    SILTSTONE_SOAK=5000        run so many random logs instead of the default
    SILTSTONE_FIRST_SEED=77    begin with this seed, to repeat a failure: the message names it
"""

import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.commit import discard_pass
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.result import GroupResult, PassResult
from siltstone.cleaner.selection import Assessment, Reason
from siltstone.errors import CorruptBatchError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.producer_entry import ProducerEntry
from siltstone.log.recovery import LoadRequest
from siltstone.records.batch import Batch, TimestampType, iter_batches
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
from tests.kafka.engines import ENGINES, close_engine
from tests.kafka.harness import Harness
from tests.kafka.log_ops import KafkaRefusedError
from tests.kafka.states import LogState, encode
from tests.support.clock import ManualClock

LOGS: Final = int(os.environ.get("SILTSTONE_SOAK", "300"))
FIRST_SEED: Final = int(os.environ.get("SILTSTONE_FIRST_SEED", "0"))
SEEDS_PER_TEST: Final = 25
PASSES: Final = 3

# Kafka flushes at every step: in memory that costs nothing, and nothing here survives the test.
MEMORY_DISK: Final = Path("/dev/shm")

PARTITION: Final = TopicPartition("t", 0)
YEAR_2020_MS: Final = 1_577_836_800_000
DAY_MS: Final = 86_400_000
MAX_SEQUENCE: Final = 2**31 - 1
LARGE_INDEX_BYTES: Final = 4096
TIME_ENTRY_BYTES: Final = 12
SEGMENT_FILES: Final = (
    filenames.LOG,
    filenames.OFFSET_INDEX,
    filenames.TIME_INDEX,
    filenames.TRANSACTION_INDEX,
)

Side = Literal["ours", "kafka"]

SEEN: Final[Counter[str]] = Counter()
"""What the random logs have met; `test_the_random_logs_met_everything` looks at it in the end."""


@pytest.fixture(scope="module")
def watched_ops(harness: Harness) -> Iterator[WatchedLogOps]:
    """A process of its own, so that its warnings are about these logs."""
    with start_watched(harness) as ops:
        yield ops


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[CleaningEngine]:
    make, _ = ENGINES[request.param]
    made = make()
    yield made
    close_engine(made)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory if the machine has such a place."""
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as name:
        yield Path(name)


@pytest.mark.parametrize(
    "first_seed",
    range(FIRST_SEED, FIRST_SEED + LOGS, SEEDS_PER_TEST),
    ids=lambda seed: f"from-seed-{seed}",
)
def test_a_pass_leaves_what_kafkas_cleaner_leaves(
    engine: CleaningEngine,
    first_seed: int,
    request: pytest.FixtureRequest,
    watched_ops: WatchedLogOps,
    directory: Path,
) -> None:
    _, step = ENGINES[request.node.callspec.params["engine"]]
    last_seed = min(first_seed + SEEDS_PER_TEST, FIRST_SEED + LOGS) - 1
    print(f"seeds {first_seed} to {last_seed} in steps of {step}, {PASSES} passes each")

    for seed in range(first_seed, last_seed + 1, step):
        life = Life(watched_ops, directory / str(seed), seed, engine)
        try:
            life.run()
        except Exception as error:
            error.add_note(f"seed {seed}:\n" + "\n".join(life.trace))
            raise
        finally:
            life.pair.forget()
        shutil.rmtree(directory / str(seed))
        SEEN["logs"] += 1


def test_the_random_logs_met_everything() -> None:
    """Guard the random logs: a comparison proves nothing about what they do not contain."""
    if SEEN["logs"] < 300:
        pytest.skip("needs the logs of a whole run in the same process")
    print(SEEN)

    wanted = [
        *("merged groups", "unchanged groups", "split groups", "empty segments", "distant offsets"),
        *("superseded", "keyless_removed", "aborted_removed", "batches_emptied"),
        *("tombstones_kept", "tombstones_removed", "markers_kept", "markers_removed"),
        *("limit: active segment", "limit: last stable offset", "limit: min.compaction.lag.ms"),
        *("due: dirty ratio", "due: max compaction lag", "due: expired delete horizon"),
        *(f"rewritten: {codec.name}" for codec in Codec),
        *(f"rewritten: {timestamp_type.name}" for timestamp_type in TimestampType),
        *("lost checkpoint", "map too small", "deleted records", "aborted below the log start"),
        *("started from ours", "started from kafka", "recovered", "not recovered"),
    ]
    assert [name for name in wanted if not SEEN[name]] == []


def test_what_is_superseded_below_the_first_dirty_offset_goes_as_well(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        for key, value in ((b"k", b"1"), (b"k", b"2"), (b"other", b"3")):
            pair.append(build_batch([Record(0, YEAR_2020_MS, key, value)]), leader_epoch=0)
            pair.roll()
        pair.update_high_watermark(3)
        selection, assessment = pair.select(2)  # as if a pass had been there

        theirs = clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert theirs.next_dirty_offset == pair.checkpoint == 3
        assert values(pair.kafka.directory) == [b"1", b"2", b"3"]
        assert values(pair.our_directory) == [b"2", b"3"]


def test_a_batch_with_a_wrong_crc_stops_the_pass_before_anything_is_written(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        records = [Record(n, YEAR_2020_MS, b"k", b"value-%d" % n) for n in range(3)]
        pair.append(build_batch(records), leader_epoch=0)
        pair.roll()
        pair.update_high_watermark(3)
        selection, assessment = pair.select(None)
        for partition_dir in (pair.our_directory, pair.kafka.directory):
            path = filenames.log_path(partition_dir, 0)
            path.write_bytes(path.read_bytes().replace(b"value-2", b"VALUE-2"))
        before = Files.read(pair.our_directory)

        clean(pair.kafka, 0, selection.limit_offset)
        with pytest.raises(CorruptBatchError, match="CRC"):
            pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert values(pair.kafka.directory) == [b"VALUE-2"]  # and its CRC is right
        assert Files.read(pair.our_directory) == before


def test_a_batch_with_times_before_1970_is_written_anew(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.append(
            build_batch([Record(0, -500, b"k", b"1"), Record(1, -7, b"k", b"2")]), leader_epoch=0
        )
        pair.roll()
        pair.update_high_watermark(2)
        selection, assessment = pair.select(None)

        with pytest.raises(KafkaRefusedError, match="Invalid negative timestamp -7"):
            clean(pair.kafka, 0, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        (batch,) = batches(pair.our_directory)
        assert list(batch.iter_records()) == [Record(1, -7, b"k", b"2")]
        assert batch.header.max_timestamp_ms == -7


def test_a_committed_value_supersedes_others_wherever_the_pass_before_ended(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.append(transactional_batch(b"aborted", sequence=0), leader_epoch=0)
        pair.end(ControlType.ABORT)
        for value in (b"1", b"2"):
            pair.append(build_batch([Record(0, YEAR_2020_MS, b"k", value)]), leader_epoch=0)
        pair.append(transactional_batch(b"3", sequence=1), leader_epoch=0)
        pair.end(ControlType.COMMIT)
        pair.roll()
        pair.update_high_watermark(6)
        selection, assessment = pair.select(3)  # as if the map had been full at 2

        clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert values(pair.kafka.directory) == [b"2", b"3"]
        assert values(pair.our_directory) == [b"3"]


def test_an_index_that_is_too_small_for_a_merged_segment_stops_no_pass(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.update_config({"segment.index.bytes": "36"})  # four offsets, three timestamps
        for number in range(6):
            record = Record(0, YEAR_2020_MS, b"%d" % number, b"v")
            pair.append(build_batch([record]), leader_epoch=0)
            if number % 3 == 2:
                pair.roll()
        pair.update_high_watermark(6)
        selection, assessment = pair.select(None)

        with pytest.raises(KafkaRefusedError, match="append to a full index"):
            clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert pair.ours.segments.base_offsets == (0, 6)
        assert pair.ours.segments.first.offset_index.file.size_bytes == 32
        for offset in range(6):
            (batch,) = pair.ours.read(offset, 1).batches()
            assert batch.header.base_offset == offset


def test_a_transaction_below_the_log_start_stays_ended(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.update_config({"cleanup.policy": "compact,delete", "delete.retention.ms": "0"})
        pair.append(transactional_batch(b"aborted", sequence=0), leader_epoch=0)
        pair.end(ControlType.ABORT)
        pair.append(build_batch([Record(0, YEAR_2020_MS, b"k", b"1")]), leader_epoch=0)
        pair.roll()
        pair.update_high_watermark(3)
        pair.delete_records(2)

        for _ in range(3):
            selection = select(pair.kafka, None)
            clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
            assessment, _ = assess_log(pair.ours, None, YEAR_2020_MS)
            pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        # Kafka has removed the marker but not the batch: after a crash the transaction is open.
        assert pair.last_stable_offset_after_crash("kafka") == 2
        assert pair.last_stable_offset_after_crash("ours") == 3


class UnsafeFileSystem(FileSystem):
    """The disk without the waiting: what survives a loss of power is tested elsewhere."""

    def fsync(self, file: File) -> None:
        pass

    def fsync_dir(self, path: Path) -> None:
        pass


class Pair:
    """A log of Kafka's and one of ours with the same content. What one is told, the other is."""

    def __init__(
        self,
        ops: WatchedLogOps,
        directory: Path,
        settings: Mapping[str, str],
        engine: CleaningEngine,
        *,
        producer_expiration_ms: int = DAY_MS,
    ) -> None:
        self.settings = dict(settings)
        self.clock = ManualClock(YEAR_2020_MS)
        self.our_directory = directory / "ours" / "t-0"
        self.checkpoint: int | None = None
        self.is_equal = True  # after the last pass, byte for byte
        self._producer_expiration_ms = producer_expiration_ms
        self._ops = ops
        self._fs = UnsafeFileSystem()
        self._engine = engine
        self._checkpoints = CleanerCheckpoints(self._fs, self.our_directory.parent)
        self._runner = PassRunner(self._fs, self.clock, engine, self._checkpoints)
        self._rewritten: frozenset[int] = frozenset()  # base offsets, by the last pass of ours
        self.kafka = ops.open(
            directory / "kafka" / "t-0",
            config=self.settings,
            now_ms=self.clock.now_ms(),
            producer_id_expiration_ms=producer_expiration_ms,
        )
        self.ours = self._open(was_clean=True, recovery_point=0, log_start_offset=0)

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()

    def forget(self) -> None:
        self.kafka.forget()

    @property
    def has_deleted_records(self) -> bool:
        """Whether there are records below the log start."""
        return self.ours.log_start_offset > self.ours.segments.first.base_offset

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

    def end(self, kind: ControlType) -> None:
        """End the transaction of producer 1."""
        self.append(marker(kind, 1), leader_epoch=0, origin=AppendOrigin.COORDINATOR)

    def append_as_follower(self, data: bytes, *, leader_epoch: int) -> None:
        self._post("append", batches=encode(data), leader_epoch=leader_epoch, origin="REPLICATION")
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
        assert (
            ours.first_dirty_offset,
            ours.first_uncleanable_offset,
            ours.clean_bytes,
            ours.dirty_bytes,
            ours.dirty_ratio,
            ours.checkpoint_was_reset,
        ) == (
            theirs.first_dirty_offset,
            theirs.first_uncleanable_offset,
            theirs.clean_bytes,
            theirs.cleanable_bytes,
            theirs.cleanable_ratio or 0.0,
            theirs.resets_checkpoint,
        ), (ours, theirs)
        if not self.ours.config.is_compacted:
            assert ours.reason is Reason.NOT_COMPACTED
            assert not theirs.is_eligible
            return theirs, ours
        assert ours.compaction_delay_ms == theirs.compaction_delay_ms
        # Difference 4; but not as long as the last stable offset must catch up after a start.
        end_offset = ours.first_uncleanable_offset
        has_expired = (
            checkpoint is not None
            and end_offset <= self.ours.last_stable_offset
            and self._has_expired(min(checkpoint, end_offset))
        )
        assert ours.is_eligible == (theirs.is_eligible or has_expired), (ours, theirs)
        return theirs, ours

    def clean(self, selection: Selection, assessment: Assessment) -> int:
        """Run one pass on both and hold what it left against each other.

        Returns from where on Kafka was told to look.
        """
        first_dirty_offset = self.first_dirty_offset_for_kafka(selection)
        before = Files.read(self.our_directory)
        our_snapshots = self._read_snapshots("ours")
        their_snapshots = self._read_snapshots("kafka")
        described = describe_ours(self.ours)
        modified = self._modified_ms(before.base_offsets)
        plan = plan_pass(self.ours, assessment, self.clock.now_ms())
        theirs = clean(
            self.kafka,
            first_dirty_offset,
            selection.limit_offset,
            io_bytes=1000,
            write_checkpoint=True,
        )
        self.kafka.advance(0)  # lets it delete what it has replaced
        left = Files.read(self.kafka.directory)

        known_aborted = tuple(t for t in plan.aborted if t.last_offset >= plan.log_start_offset)
        if known_aborted != plan.aborted:
            # Difference 6.
            self._compare_with_less_aborted(
                replace(plan, aborted=known_aborted), theirs, before, left
            )
            result = self.clean_ours(plan)
            ours = Files.read(self.our_directory)
            assert ours.records_from(plan.log_start_offset) == left.records_from(
                plan.log_start_offset
            )
        else:
            result = self.clean_ours(plan)
            ours = Files.read(self.our_directory)
            Comparison(plan, result, theirs, before, ours, left).check()
            self._compare_modified(result, modified)
        self.is_equal = ours == left
        assert self._read_checkpoint("ours") == self._read_checkpoint("kafka")
        gone = {base for group in result.groups for base in group.base_offsets[1:]}
        kept = {output.base_offset for group in result.groups for output in group.outputs}
        assert self._read_snapshots("kafka") == without(their_snapshots, gone)
        assert self._read_snapshots("ours") == without(our_snapshots, gone - kept)
        for name, value in describe_ours(self.ours).items():
            if name != "segments":
                assert value == described[name], name
                assert value == describe_kafka(self.kafka.state)[name], name
        return first_dirty_offset

    def clean_ours(self, plan: CleaningPlan) -> PassResult:
        """Run one pass on our log; the checkpoint moves."""
        result = self._runner.run(self.ours, plan).result
        self.ours.delete_due_files()
        self.checkpoint = self._checkpoints.find(PARTITION)
        self._rewritten = frozenset(
            output.base_offset for group in result.groups for output in group.outputs
        )
        return result

    def half_clean_kafkas(self, selection: Selection, key_count: int) -> KafkaPass:
        """Run a pass on Kafka's log with a map that holds less than so many keys."""
        done = clean(
            self.kafka,
            self.first_dirty_offset_for_kafka(selection),
            selection.limit_offset,
            map_bytes=24 * key_count,
        )
        self.checkpoint = done.next_dirty_offset
        return done

    def first_dirty_offset_for_kafka(self, selection: Selection) -> int:
        """Say from where on Kafka must look to come to the same result."""
        first_dirty_offset = selection.first_dirty_offset
        if first_dirty_offset >= selection.first_uncleanable_offset:
            return self.ours.segments.first.base_offset  # Difference 4.
        if self.has_deleted_records:
            return self.ours.segments.first.base_offset  # Difference 6.
        segment = self.ours.segments.find_floor(first_dirty_offset)
        assert segment is not None
        if any(txn.last_offset < first_dirty_offset for txn in segment.transaction_index.entries):
            return segment.base_offset  # Difference 5.
        return first_dirty_offset

    def _compare_with_less_aborted(
        self, plan: CleaningPlan, theirs: KafkaPass, before: "Files", left: "Files"
    ) -> None:
        result = self._engine.run(plan)
        ours = before.replaced(self.our_directory, result)
        discard_pass(self._fs, self.ours, result)
        Comparison(plan, result, theirs, before, ours, left).check()
        SEEN["aborted below the log start"] += 1

    def _has_expired(self, end_offset: int) -> bool:
        """Look for a tombstone or marker that has waited long enough."""
        now_ms = self.clock.now_ms()
        return any(
            batch.header.delete_horizon_ms is not None
            and batch.header.delete_horizon_ms <= now_ms
            and (
                any(record.is_tombstone for record in batch.iter_records())
                or (batch.header.is_control and not batch.header.is_empty)
            )
            for segment in self.ours.segments
            if segment.base_offset < end_offset
            for _, batch in segment.iter_batches()
        )

    def _modified_ms(self, base_offsets: Sequence[int]) -> dict[Path, dict[int, int]]:
        return {
            directory: {
                base_offset: filenames.log_path(directory, base_offset).stat().st_mtime_ns
                // 1_000_000
                for base_offset in base_offsets
            }
            for directory in (self.our_directory, self.kafka.directory)
        }

    def _compare_modified(
        self, result: PassResult, before: Mapping[Path, Mapping[int, int]]
    ) -> None:
        """Both let a cleaned segment be as old as the last one that it was made from."""
        for group in result.groups:
            first, last = group.base_offsets[0], group.base_offsets[-1]
            for directory, modified in self._modified_ms([first]).items():
                assert modified[first] == before[directory][last], (directory, first)

    def _directory_of(self, side: Side) -> Path:
        return self.our_directory if side == "ours" else self.kafka.directory

    def _read_checkpoint(self, side: Side) -> bytes:
        return (self._directory_of(side).parent / filenames.CLEANER_OFFSETS).read_bytes()

    def _read_snapshots(self, side: Side) -> dict[int, bytes]:
        """Read the producer snapshots, by offset; those of merged segments go with them."""
        return {
            int(path.name.removesuffix(filenames.SNAPSHOT)): path.read_bytes()
            for path in self._directory_of(side).glob(f"*{filenames.SNAPSHOT}*")
        }

    # Restart

    def restart(self, *, source: Side, is_clean: bool, recovery_point: int | None = None) -> None:
        """Stop both, give one's files to the other, and start both on them.

        What they know of the log must then be equal, and Kafka must have nothing to complain about.
        """
        log_start_offset = self.ours.log_start_offset
        indexes = {base: entries for base, *entries in describe_ours(self.ours)["segments"]}
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
        assert complaints == []
        theirs = describe_kafka(self.kafka.state)
        for name, ours in describe_ours(self.ours).items():
            assert ours == theirs[name], f"{name}: {ours} is not {theirs[name]}"
        if source == "ours" and not is_clean and recovery_point == 0:
            # Kafka has built all indexes anew: the two that our pass wrote were the same.
            for base_offset, *entries in theirs["segments"]:
                if base_offset in self._rewritten:
                    assert entries[:3] == indexes[base_offset][:3], base_offset
        self.is_equal = True

    def last_stable_offset_after_crash(self, source: Side) -> int:
        """Let Kafka recover the files of one side, and say up to where a consumer gets."""
        log_start_offset, log_end_offset = self.ours.log_start_offset, self.ours.log_end_offset
        self.kafka.close()
        if source == "ours":
            self.ours.close()
            shutil.rmtree(self.kafka.directory)
            shutil.copytree(self.our_directory, self.kafka.directory)
        self.kafka.reopen(clean=False, recovery_point=0, log_start_offset=log_start_offset)
        self.kafka.update_high_watermark(log_end_offset)
        return self.kafka.state.last_stable_offset

    def _open(self, *, was_clean: bool, recovery_point: int, log_start_offset: int) -> PartitionLog:
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
                producer_expiration_ms=self._producer_expiration_ms,
            ),
        )

    def _post(self, op: str, **fields: Any) -> None:
        self._ops.post(op, self.kafka, **fields)

    def _remove_expired_producers(self) -> None:
        self._post("remove_expired_producers")
        self.ours.remove_expired_producers()


def small_pair(ops: WatchedLogOps, directory: Path, engine: CleaningEngine) -> Pair:
    settings = {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "segment.bytes": "1000",
        "segment.index.bytes": str(LARGE_INDEX_BYTES),
        "index.interval.bytes": "0",
        "file.delete.delay.ms": "0",
    }
    return Pair(ops, directory, settings, engine)


@dataclass(frozen=True)
class Files:
    """The files of all segments of a log, by base offset and extension, in memory."""

    contents: Mapping[tuple[int, str], bytes]

    @classmethod
    def read(cls, directory: Path) -> "Files":
        """Read a directory in which nothing waits for its deletion."""
        contents = {}
        for path in directory.iterdir():
            file = filenames.parse_segment_file(path.name)
            if file is not None and file.extension in SEGMENT_FILES:
                assert not file.suffix, path
                contents[file.base_offset, file.extension] = path.read_bytes()
        return cls(contents)

    def replaced(self, directory: Path, result: PassResult) -> "Files":
        """Give what there would be if a pass, whose files are in a directory, were committed."""
        contents = dict(self.contents)
        for group in result.groups:
            if group.is_unchanged:
                continue
            for base_offset in group.base_offsets:
                for extension in SEGMENT_FILES:
                    contents.pop((base_offset, extension), None)
            for output in group.outputs:
                for file in output.files:
                    data = (directory / file.name).read_bytes()
                    contents[output.base_offset, file.extension] = data
        return Files(contents)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return tuple(sorted(base for base, extension in self.contents if extension == ".log"))

    def segment(self, base_offset: int) -> dict[str, bytes]:
        return {
            extension: data
            for (base, extension), data in self.contents.items()
            if base == base_offset
        }

    def batches(self) -> Iterator[Batch]:
        for base_offset in self.base_offsets:
            for _, batch in iter_batches(self.contents[base_offset, ".log"]):
                batch.check_crc()
                yield batch

    def records_from(self, offset: int) -> list[Record]:
        return [
            record
            for batch in self.batches()
            if not batch.header.is_control
            for record in batch.iter_records()
            if record.offset >= offset
        ]


def without(snapshots: Mapping[int, bytes], gone: Set[int]) -> dict[int, bytes]:
    return {offset: data for offset, data in snapshots.items() if offset not in gone}


def batches(directory: Path) -> list[Batch]:
    return list(Files.read(directory).batches())


def values(directory: Path) -> list[bytes | None]:
    return [record.value for record in Files.read(directory).records_from(0)]


class Comparison:
    """What a pass of ours left, against what Kafka's did."""

    def __init__(
        self,
        plan: CleaningPlan,
        result: PassResult,
        kafka_pass: KafkaPass,
        before: Files,
        ours: Files,
        theirs: Files,
    ) -> None:
        self.plan, self.result, self.kafka_pass = plan, result, kafka_pass
        self.before, self.ours, self.theirs = before, ours, theirs

    def check(self) -> None:
        plan, groups = self.plan, self.result.groups
        assert plan.end_offset == self.kafka_pass.next_dirty_offset
        above = [base for base in self.before.base_offsets if base >= plan.end_offset]
        assert self.theirs.base_offsets == (*(group.base_offsets[0] for group in groups), *above)
        for group in groups:
            self._check_group(group)
        for base_offset in above:
            assert self.ours.segment(base_offset) == self.before.segment(base_offset)
        self._check_counts()

    def _check_counts(self) -> None:
        counts, theirs = self.result.counts, self.kafka_pass
        assert counts.bytes_read == theirs.bytes_read
        assert counts.records_kept + counts.markers_kept == theirs.messages_written
        assert counts.keyless_removed == theirs.invalid_messages_read
        SEEN.update(name for name, value in counts.as_dict().items() if value)
        SEEN["passes"] += 1
        SEEN["distant offsets"] += self.plan.end_offset - self.plan.sources[0].base_offset > 2**31

    def _check_group(self, group: GroupResult) -> None:
        base_offset = group.base_offsets[0]
        theirs = self.theirs.segment(base_offset)
        if group.is_unchanged:
            # Difference 2.
            before = self.before.segment(base_offset)
            assert self.ours.segment(base_offset) == before
            for extension in (filenames.LOG, filenames.TRANSACTION_INDEX):
                assert theirs.get(extension) == before.get(extension)
            SEEN["unchanged groups"] += 1
        elif len(group.outputs) > 1:
            self._check_split(group, theirs)
        else:
            (output,) = group.outputs
            assert output.base_offset == base_offset
            ours = self.ours.segment(base_offset)
            if compare_batches(ours[filenames.LOG], theirs[filenames.LOG]):
                assert ours == theirs
            assert ours.get(".txnindex") == theirs.get(".txnindex")
            SEEN["merged groups"] += len(group.base_offsets) > 1
            SEEN["empty segments"] += not ours[filenames.LOG]

    def _check_split(self, group: GroupResult, theirs: Mapping[str, bytes]) -> None:
        """Difference 3: the parts are Kafka's segment, cut where the next batch did not fit."""
        parts = [self.ours.segment(output.base_offset) for output in group.outputs]
        logs = [part[filenames.LOG] for part in parts]
        compare_batches(b"".join(logs), theirs[filenames.LOG])
        own_bytes = [
            s.size_bytes for s in self.plan.sources if group.base_offsets == (s.base_offset,)
        ]
        limit = max(self.plan.segment_bytes, *own_bytes, 0)
        for slot, log in enumerate(logs):
            headers = [batch.header for _, batch in iter_batches(log)]
            assert len(log) <= limit or len(headers) == 1
            if slot > 0:
                assert group.outputs[slot].base_offset == headers[0].base_offset
                assert len(logs[slot - 1]) + headers[0].size_bytes > limit
        aborted = [part.get(filenames.TRANSACTION_INDEX, b"") for part in parts]
        assert b"".join(aborted) == theirs.get(filenames.TRANSACTION_INDEX, b"")
        SEEN["split groups"] += 1


def compare_batches(ours: bytes, theirs: bytes) -> bool:
    """Hold the batches of a cleaned segment against each other; False if they have other bytes."""
    our_batches = [batch for _, batch in iter_batches(ours)]
    for batch in our_batches:
        SEEN[f"rewritten: {batch.header.codec.name}"] += 1
        SEEN[f"rewritten: {batch.header.timestamp_type.name}"] += 1
    if ours == theirs:
        return True
    their_batches = [batch for _, batch in iter_batches(theirs)]
    for our, their in zip(our_batches, their_batches, strict=True):
        our.check_crc()
        if our.header.codec is Codec.SNAPPY:
            # Difference 1.
            other = {"length": their.header.length, "crc": their.header.crc}
            assert our.header._replace(**other) == their.header
            assert list(our.iter_records()) == list(their.iter_records())
        else:
            assert bytes(our.data) == bytes(their.data), (our.header, their.header)
    SEEN["other bytes"] += 1
    return False


def describe_kafka(state: LogState) -> dict[str, Any]:
    """Everything about Kafka's log that a restart must bring back."""
    return {
        "offsets": (
            state.log_start_offset,
            state.last_stable_offset,
            state.high_watermark,
            state.log_end_offset,
        ),
        "epochs": state.epochs,
        "producers": [
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_data_offset,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.current_txn_first_offset,
            )
            for producer in state.producers
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
    """The same about ours."""

    def number(offset: int | None) -> int:
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
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                number(entry.last_data_offset),
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                number(entry.current_txn_first_offset),
            )
            for _, entry in sorted(log.producer_state.entries.items())
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
                [tuple(txn) for txn in segment.transaction_index.entries],
            )
            for segment in log.segments
        ],
    }


def transactional_batch(value: bytes, *, sequence: int) -> bytes:
    return build_batch(
        [Record(0, YEAR_2020_MS, b"k", value)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker(
    kind: ControlType,
    producer_id: int,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp_ms: int = YEAR_2020_MS,
) -> bytes:
    return build_marker(
        kind,
        offset=0,
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
    )


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

    def _open_transactions(self) -> list[ProducerEntry]:
        return [
            entry
            for entry in self.log.producer_state.entries.values()
            if entry.current_txn_first_offset is not None
        ]

    def _end_transaction(self) -> str:
        producers = self._open_transactions()
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
        while self.rng.random() < 0.85 and self._open_transactions():
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
