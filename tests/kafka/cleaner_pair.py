"""One log twice, cleaned by us and by Kafka's cleaner."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.commit import discard_pass
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.selection import Assessment, Reason
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.recovery import LoadRequest
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.kafka.clean_ops import (
    KafkaPass,
    Selection,
    WatchedLogOps,
    clean,
    select,
)
from tests.kafka.cleaner_states import (
    SEEN,
    Comparison,
    Files,
    Side,
    describe_kafka,
    describe_ours,
    without,
)
from tests.kafka.states import encode
from tests.support.clock import ManualClock

PARTITION: Final = TopicPartition("t", 0)
YEAR_2020_MS: Final = 1_577_836_800_000
DAY_MS: Final = 86_400_000


LARGE_INDEX_BYTES: Final = 4096


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
