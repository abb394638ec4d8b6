"""A log against a list: appends, rolls, retention, truncation, stops, crashes, in any order."""

import contextlib
import gc
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from siltstone.errors import OutOfOrderSequenceError
from siltstone.log.config import LogConfig
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.records.batch import read_batch, read_header
from siltstone.records.builder import stamp
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.layout import MAGIC_POSITION
from siltstone.settings import MAX_LONG
from tests.support.clock import ManualClock
from tests.support.crashable_disk import CrashableDisk
from tests.support.crashing_disk import Crash, SimulatedCrash
from tests.support.log_checks import (
    PARTITION,
    Checkpoint,
    History,
    LogWriter,
    check_log,
    check_names,
    fingerprint,
    open_log,
    small_config,
)

# None: only the process ends.
power_losses = st.none() | st.integers(0, 2**16)
# Where, within an operation, it ends; most operations have fewer steps, and go well.
crashes = st.none() | st.builds(
    Crash, st.integers(0, 40), kept_bytes=st.none() | st.integers(0, 200)
)
IDEMPOTENT, TRANSACTIONAL = st.sampled_from([1, 2]), st.sampled_from([3, 4])


class LogMachine(RuleBasedStateMachine):
    """Whatever happens: no flushed record is lost, none is made up, and everything is found."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.directory = self.root / str(PARTITION)
        self.directory.mkdir()
        self.disk = CrashableDisk(self.root)
        self.clock = ManualClock()
        self.history = History()
        self.flushes = True
        self.config: LogConfig = small_config()
        self.checkpoint = Checkpoint()
        self.leader_epoch = 0
        self.durable_end_offset = 0  # what was appended below it was flushed
        self.log: PartitionLog = self.open()
        self.logger = logging.getLogger("siltstone")
        self.logger.setLevel(logging.CRITICAL)

    def teardown(self) -> None:
        del self.log
        gc.collect()
        shutil.rmtree(self.root)
        self.logger.setLevel(logging.NOTSET)

    def open(self, *, was_clean: bool = False) -> PartitionLog:
        return open_log(
            self.disk,
            self.directory,
            self.config,
            self.clock,
            self.checkpoint,
            was_clean=was_clean,
        )

    @property
    def writer(self) -> LogWriter:
        # As in Kafka: of whom only a marker is known, the next sequence is expected to be 0.
        for producer_id, entry in self.log.producer_state.entries.items():
            if not entry.batches:
                self.history.sequences[producer_id] = 0
        return LogWriter(self.log, self.clock, self.history)

    @initialize(flushes=st.booleans(), preallocates=st.booleans())
    def configure(self, flushes: bool, preallocates: bool) -> None:
        self.flushes = flushes
        self.config = small_config(
            segment_bytes=600,
            flush_messages=1 if flushes else MAX_LONG,
            preallocate=preallocates,
            retention_ms=3_000,
            file_delete_delay_ms=100,
        )
        self.log.update_config(self.config)

    # What a crash may interrupt

    def run(self, act: Callable[[], object], crash: Crash | None, power_loss: int | None) -> bool:
        """Do something, with a crash in it, and say whether it was done to the end."""
        self.disk.arm(crash)
        try:
            act()
        except SimulatedCrash:
            self.recover(power_loss)
            return False
        self.disk.arm()
        log = self.log
        self.history.log_start_offset = max(self.history.log_start_offset, log.log_start_offset)
        # A roll flushes what came before it.
        flushed = log.log_end_offset if self.flushes else log.segments.active.base_offset
        self.durable_end_offset = max(min(self.durable_end_offset, log.log_end_offset), flushed)
        return True

    def recover(self, power_loss: int | None) -> None:
        """Open the log after a crash."""
        log, history = self.log, self.history
        if power_loss is None:
            self.disk.restart()
        else:
            history.acknowledged_end_offset = min(
                history.acknowledged_end_offset, self.durable_end_offset
            )
            self.disk.lose_unflushed_writes(power_loss)
        known_start = max(log.log_start_offset, history.log_start_offset)
        self.log = self.open()
        assert self.checkpoint.log_start_offset <= self.log.log_start_offset <= known_start
        check_log(self.log, history)
        history.forget_from(self.log.log_end_offset)
        history.acknowledged_end_offset = end_offset = self.log.log_end_offset
        if power_loss is not None:
            self.durable_end_offset = end_offset
        self.durable_end_offset = min(self.durable_end_offset, end_offset)

    # Growing

    @rule(
        count=st.integers(1, 4),
        value_bytes=st.integers(8, 120),
        codec=st.sampled_from(Codec),
        crash=crashes,
        power_loss=power_losses,
    )
    def append(
        self,
        count: int,
        value_bytes: int,
        codec: Codec,
        crash: Crash | None,
        power_loss: int | None,
    ) -> None:
        self.run(
            lambda: self.writer.append(
                count, value_bytes=value_bytes, codec=codec, leader_epoch=self.leader_epoch
            ),
            crash,
            power_loss,
        )

    @rule(producer_id=IDEMPOTENT, count=st.integers(1, 3), crash=crashes, power_loss=power_losses)
    def append_idempotent(
        self, producer_id: int, count: int, crash: Crash | None, power_loss: int | None
    ) -> None:
        self.run(
            lambda: self.writer.append(
                count, producer_id=producer_id, leader_epoch=self.leader_epoch
            ),
            crash,
            power_loss,
        )

    @rule(
        producer_id=TRANSACTIONAL, count=st.integers(1, 3), crash=crashes, power_loss=power_losses
    )
    def append_transactional(
        self, producer_id: int, count: int, crash: Crash | None, power_loss: int | None
    ) -> None:
        self.run(
            lambda: self.writer.append(
                count,
                producer_id=producer_id,
                is_transactional=True,
                leader_epoch=self.leader_epoch,
            ),
            crash,
            power_loss,
        )

    @rule(
        producer_id=TRANSACTIONAL,
        control_type=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
        crash=crashes,
        power_loss=power_losses,
    )
    def end(
        self,
        producer_id: int,
        control_type: ControlType,
        crash: Crash | None,
        power_loss: int | None,
    ) -> None:
        self.run(lambda: self.writer.end(producer_id, control_type), crash, power_loss)

    @rule(producer_id=IDEMPOTENT | TRANSACTIONAL, age=st.integers(0, 6))
    def retry(self, producer_id: int, age: int) -> None:
        """A producer that has missed the answer sends one of its last batches again."""
        sent = [
            batch
            for batch in map(read_batch, self.history.batches)
            if batch.header.producer_id == producer_id and not batch.header.is_control
        ]
        if len(sent) <= age or producer_id not in self.log.producer_state.entries:
            return
        header = sent[-1 - age].header
        remembered = self.log.producer_state.entries[producer_id].batches
        data = bytes(sent[-1 - age].data)
        data = stamp(data, 0, -1) + data[MAGIC_POSITION:]
        before = self.log.log_end_offset
        if not remembered:
            return  # Its batches are below the log start: it may send what it likes.
        try:
            info = self.log.append(data)
        except OutOfOrderSequenceError:
            # A snapshot remembers the last batch, a log that stays open five.
            assert age >= len(remembered)
        else:
            assert info.is_duplicate
            assert (info.first_offset, info.last_offset) == (
                header.base_offset,
                header.last_offset,
            )
        assert self.log.log_end_offset == before

    @rule()
    def elect(self) -> None:
        self.leader_epoch += 1

    @rule(crash=crashes, power_loss=power_losses)
    def roll(self, crash: Crash | None, power_loss: int | None) -> None:
        self.run(self.log.roll, crash, power_loss)

    # Shrinking

    @rule(duration_ms=st.integers(0, 2_000), crash=crashes, power_loss=power_losses)
    def retain(self, duration_ms: int, crash: Crash | None, power_loss: int | None) -> None:
        self.clock.advance_ms(duration_ms)
        self.run(self.log.delete_old_segments, crash, power_loss)

    @rule(crash=crashes, power_loss=power_losses)
    def delete_due_files(self, crash: Crash | None, power_loss: int | None) -> None:
        self.run(self.log.delete_due_files, crash, power_loss)

    @rule(share=st.floats(0, 1), crash=crashes, power_loss=power_losses)
    def delete_records(self, share: float, crash: Crash | None, power_loss: int | None) -> None:
        offset = int(self.log.log_end_offset * share)
        self.history.log_start_offset = max(self.history.log_start_offset, offset)
        self.run(lambda: self.log.delete_records(offset), crash, power_loss)

    @rule(batch_count=st.integers(0, 6), crash=crashes, power_loss=power_losses)
    def truncate(self, batch_count: int, crash: Crash | None, power_loss: int | None) -> None:
        """The last batches go; between two leaders' histories there is never half a batch."""
        bases = [read_header(data).base_offset for data in self.history.batches]
        offset = ([*bases, self.log.log_end_offset][-1 - batch_count :])[0]
        offset = min(max(offset, self.log.log_start_offset), self.log.log_end_offset)
        if offset not in [*bases, self.log.log_end_offset]:
            return
        self.history.acknowledged_end_offset = min(self.history.acknowledged_end_offset, offset)
        self.durable_end_offset = min(self.durable_end_offset, offset)
        if self.run(lambda: self.log.truncate_to(offset), crash, power_loss):
            self.history.forget_from(offset)

    # Stopping

    @rule(crash=crashes, power_loss=power_losses)
    def flush(self, crash: Crash | None, power_loss: int | None) -> None:
        if self.run(self.log.flush, crash, power_loss):
            self.durable_end_offset = self.log.log_end_offset
            assert self.log.recovery_point == self.log.log_end_offset

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = Checkpoint.of(self.log)

    @rule(power_loss=power_losses)
    def stop_and_start(self, power_loss: int | None) -> None:
        before = fingerprint(self.log)
        self.log.close()
        self.durable_end_offset = self.log.log_end_offset
        self.checkpoint = Checkpoint.of(self.log)
        if power_loss is not None:
            self.disk.lose_unflushed_writes(power_loss)
        self.log = self.open(was_clean=True)
        # The name of a segment without records may be lost.
        bases = self.log.segments.base_offsets
        assert set(bases) <= set(before.base_offsets)
        assert fingerprint(self.log) == before._replace(base_offsets=bases)
        check_names(self.log)

    @rule(power_loss=power_losses)
    def crash(self, power_loss: int | None) -> None:
        self.recover(power_loss)

    @precondition(lambda self: self.disk.root.exists())
    @rule(crash=crashes, power_loss=power_losses)
    def crash_twice(self, crash: Crash | None, power_loss: int | None) -> None:
        """The second crash comes while the log is recovered from the first."""
        self.disk.arm(crash)
        with contextlib.suppress(SimulatedCrash):
            self.open()
        self.recover(power_loss)

    # What always holds

    @invariant()
    def the_log_is_what_was_appended(self) -> None:
        check_log(self.log, self.history)

    @invariant()
    def committed_readers_see_no_undecided_record(self) -> None:
        open_since: dict[int, int] = {}
        for header in map(read_header, self.history.batches):
            if header.is_control:
                open_since.pop(header.producer_id, None)
            elif header.is_transactional:
                open_since.setdefault(header.producer_id, header.base_offset)
        oldest = min(open_since.values(), default=self.log.log_end_offset)
        if oldest >= self.log.log_start_offset:
            assert self.log.last_stable_offset == oldest
            result = self.log.read(self.log.log_start_offset, 2**31 - 1, Isolation.COMMITTED)
            assert all(batch.header.last_offset < oldest for batch in result.batches())


LogMachine.TestCase.settings = settings(stateful_step_count=30)
TestLogMachine = pytest.mark.timeout(1_800)(LogMachine.TestCase)
