"""In any order of appends, transactions, passes and restarts, no committed value is lost.

The model is a dict of what was appended, by offset. Every pass is run by every engine, which must
write the same bytes (I11), and one of them, whichever, is committed. What it has changed is then
held against what was there before: I3, I6, I7, I8, I9, I10, I15, I18; and all the time I20, I4, and
that a reader of committed records gets the latest values of the model.
"""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from siltstone.cleaner.commit import check_sources, discard_pass
from siltstone.cleaner.plan import CleaningPlan
from siltstone.errors import CleaningAbortedError
from siltstone.log.append_info import AppendInfo
from siltstone.log.producer_state import ProducerState
from siltstone.log.reading import Isolation, ReadResult
from siltstone.records.batch import Batch
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.cleaning import ENGINES, Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.compacted_history import State, Stored, Transaction, Written, read_stored, replay
from tests.support.log_checks import check_segments
from tests.support.make_log import MadeLog
from tests.support.pass_checks import CheckedPass, check_plan, check_same_bytes
from tests.support.producers import open_transactions

TRANSACTIONAL = (1, 2)
IDEMPOTENT = 3
FETCH_BYTES = 300

keys = st.sampled_from("abcde")
values = st.one_of(st.none(), st.sampled_from(["", "v", "a-longer-value"]))
contents = st.lists(st.tuples(keys, values, st.integers(-20, 0)), min_size=1, max_size=4)
codecs = st.sampled_from(Codec)
transactional = st.sampled_from(TRANSACTIONAL)
engines = st.sampled_from(sorted(ENGINES))
booleans = st.booleans()
usually = st.sampled_from([True, True, True, False])

Contents: TypeAlias = list[tuple[str, str | None, int]]  # key, value, how far back in time


class Appended(NamedTuple):
    """The last batch of a producer."""

    data: bytes
    info: AppendInfo


class Planned(NamedTuple):
    """A plan and how many passes were committed before it."""

    plan: CleaningPlan
    pass_count: int


def without_aborted(result: ReadResult) -> Iterator[Batch]:
    """Leave out what a consumer of committed records leaves out."""
    waiting = sorted(result.aborted, key=lambda txn: txn.first_offset)
    aborted: set[int] = set()
    for batch in result.batches():
        header = batch.header
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        marker = batch.marker()
        if marker is not None and marker.control_type is ControlType.ABORT:
            aborted.discard(header.producer_id)
        elif not header.is_control:
            if not header.is_transactional or header.producer_id not in aborted:
                yield batch


class CompactedLogMachine(RuleBasedStateMachine):
    """A log, its cleaner and the model."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.engines = {name: make() for name, make in ENGINES.items()}
        self.cleaner = Cleaner(self.engines["reference"], self.clock)
        self.history: dict[int, Written] = {}
        self.open: dict[int, Transaction] = {}
        self.transactions: list[Transaction] = []
        self.sequences: dict[int, int] = {}
        self.last: dict[int, Appended] = {}
        self.planned: Planned | None = None
        self.pass_count = 0
        self._level = logging.getLogger("siltstone").level
        logging.getLogger("siltstone").setLevel(logging.ERROR)

    def teardown(self) -> None:
        logging.getLogger("siltstone").setLevel(self._level)
        self._directory.cleanup()

    @initialize(
        segment_bytes=st.sampled_from([300, 1000, 10**6]),
        index_interval_bytes=st.sampled_from([0, 100, 4096]),
        min_compaction_lag_ms=st.sampled_from([0, 0, 0, 500]),
        delete_retention_ms=st.sampled_from([0, 1000]),
        message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    )
    def create(self, **topic: Any) -> None:
        make_log = MakeCompactedLog(Path(self._directory.name), self.clock)
        self.log: MadeLog = make_log(min_cleanable_dirty_ratio=0, **topic)

    # Writing

    @rule(batches=st.lists(contents, min_size=1, max_size=4), codec=codecs, is_idempotent=booleans)
    def append(self, batches: list[Contents], codec: Codec, is_idempotent: bool) -> None:
        for records in batches:
            self._append(records, codec, IDEMPOTENT if is_idempotent else None, None)

    @rule(key=keys, rolls=booleans)
    def delete(self, key: str, rolls: bool) -> None:
        self._append([(key, None, 0)], Codec.NONE, None, None)
        if rolls:
            self.roll()

    @rule(records=contents, codec=codecs, producer=transactional)
    def append_in_transaction(self, records: Contents, codec: Codec, producer: int) -> None:
        if producer not in self.open:
            self.open[producer] = Transaction(producer, self.log.real.log_end_offset)
            self.transactions.append(self.open[producer])
        self._append(records, codec, producer, self.open[producer])

    @rule(records=contents, producer=transactional, is_committed=booleans, rolls=booleans)
    def transact(self, records: Contents, producer: int, is_committed: bool, rolls: bool) -> None:
        """Write a whole transaction, or the rest of one."""
        self.append_in_transaction(records, Codec.NONE, producer)
        if rolls:
            self.roll()
        self.end_transaction(producer, is_committed)

    def _append(
        self,
        records: Contents,
        codec: Codec,
        producer: int | None,
        transaction: Transaction | None,
    ) -> None:
        now_ms = self.clock.now_ms()
        text = " ".join(
            f"{key}{'~' if value is None else f'={value}'}@{now_ms + shift_ms}"
            for key, value, shift_ms in records
        )
        fields: dict[str, Any] = {"codec": codec}
        if producer is not None:
            fields |= {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer, 0),
                "is_transactional": transaction is not None,
            }
        data = self.log.build(f"[{text}]", **fields)
        info = self.log.append_batch(data)
        if producer is not None:
            self.sequences[producer] = self.sequences.get(producer, 0) + len(records)
            self.last[producer] = Appended(data, info)
        for number, (key, value, shift_ms) in enumerate(records):
            offset = info.first_offset + number
            is_append_time = info.log_append_time_ms >= 0
            self.history[offset] = Written(
                Record(
                    offset,
                    info.log_append_time_ms if is_append_time else now_ms + shift_ms,
                    key.encode(),
                    None if value is None else value.encode(),
                ),
                transaction,
            )

    @rule(producer=transactional, is_committed=booleans)
    def end_transaction(self, producer: int, is_committed: bool) -> None:
        """End it, or write the marker of one without data."""
        info = (self.log.commit if is_committed else self.log.abort)(producer=producer)
        transaction = self.open.pop(producer, None)
        if transaction is not None:
            transaction.state = State.COMMITTED if is_committed else State.ABORTED
            transaction.marker_offset = info.last_offset

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """I20: a producer that has not heard of its success is told again."""
        producer = data.draw(st.sampled_from(sorted(self.last)), label="producer")
        batch, first = self.last[producer]

        info = self.log.append_batch(batch)

        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (first.first_offset, first.last_offset)

    @rule()
    def roll(self) -> None:
        self.log.append("|")

    @rule(duration_ms=st.sampled_from([1, 499, 500, 1000]))
    def let_time_pass(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)

    # Cleaning

    @rule(rolls=booleans)
    def plan(self, rolls: bool) -> None:
        """Plan now, and run it whenever."""
        if rolls:
            self.roll()
        self.planned = self._plan()

    @precondition(lambda self: self.planned is not None)
    @rule(engine=engines)
    def run_plan(self, engine: str) -> None:
        assert self.planned is not None
        planned, self.planned = self.planned, None
        self._run(planned, engine)

    @rule(engine=engines, waits=booleans, settles=usually)
    def let_settle_and_clean(self, engine: str, waits: bool, settles: bool) -> None:
        """Clean as much as there can be to clean."""
        if settles:
            for number, producer in enumerate(sorted(self.open)):
                self.end_transaction(producer, is_committed=number > 0)
        self.roll()
        if waits:
            self.clock.advance_ms(1_000)
        self.clean(engine)

    @rule(engine=engines)
    def clean(self, engine: str) -> None:
        planned = self._plan()
        if planned is not None:
            self._run(planned, engine)

    @rule(engine=engines, data=st.data())
    def clean_up_to_a_cut(self, engine: str, data: st.DataObject) -> None:
        """I10: wherever a pass ends, it does no harm."""
        self.roll()
        start, end = self.log.real.log_start_offset, self.log.real.log_end_offset
        self.log.real.update_high_watermark(data.draw(st.integers(start, end), label="cut"))
        planned = self._plan()
        self.log.real.update_high_watermark(end)
        if planned is not None:
            self._run(planned, engine)

    @rule(engine=engines)
    def clean_again(self, engine: str) -> None:
        """I10: a second pass at the same time changes no record of a user."""
        self.roll()
        self.clean(engine)
        before = [(s.header.delete_horizon_ms, s.records) for s in self._data_batches()]
        if not self.log.real.config.delete_retention_ms:
            return  # What was marked a moment ago is due already.
        self.clean(engine)
        after = [(s.header.delete_horizon_ms, s.records) for s in self._data_batches()]
        assert after == before

    def _plan(self) -> Planned | None:
        assessment = self.cleaner.assess(self.log)
        if not assessment.is_eligible:
            return None
        plan = self.cleaner.plan(self.log)
        check_plan(self.log.real, plan, self.clock.now_ms())
        return Planned(plan, self.pass_count)

    def _run(self, planned: Planned, engine: str) -> None:
        plan = planned.plan
        try:
            check_sources(self.log.real, plan)
        except CleaningAbortedError:
            assert self.pass_count > planned.pass_count, "nothing has changed since the plan"
            return
        results = {name: each.run(plan) for name, each in self.engines.items()}
        check_same_bytes(self.log.directory, results)
        for name, result in results.items():
            if name != engine:
                discard_pass(self.log.fs, self.log.real, result)
        before = self._batches()
        young = self._young_bytes(plan.end_offset)
        self.cleaner.commit(self.log, plan, results[engine])
        self.pass_count += 1
        assert self.cleaner.checkpoint(self.log) == plan.end_offset
        assert self._young_bytes(plan.end_offset) == young, "I8"
        CheckedPass(
            self.log.real, plan, results[engine], self.history, before, self._batches()
        ).check()
        self._check_log()

    # Starting again

    @rule(is_clean=booleans)
    def reopen(self, is_clean: bool) -> None:
        before = self._batches()
        if is_clean:
            self.log.restart()
        else:
            self.log.recover()
        assert self._batches() == before
        self._check_log()

    # What must hold after a pass and after a start

    def _check_log(self) -> None:
        check_segments(self.log.real)
        batches = self._batches()
        self._check_producers(batches)
        self._check_aborted(batches)

    def _check_producers(self, batches: Sequence[Stored]) -> None:
        """I20: whoever has nothing but the batches knows the same about every producer."""
        state = ProducerState(self.log.real.partition)
        for stored in batches:
            state.replay(stored.header, stored.marker)
        self._check_producer_state(state)

    def _check_producer_state(self, state: ProducerState) -> None:
        for producer, sequence in self.sequences.items():
            assert state.entries[producer].epoch == 0
            assert state.entries[producer].last_sequence == sequence - 1
        assert {entry.producer_id for entry in open_transactions(state)} == self.open.keys()

    def _check_aborted(self, batches: Sequence[Stored]) -> None:
        """I20: who has a batch left is listed; who is listed has its marker in that segment."""
        log = self.log.real
        listed = {
            (txn.producer_id, txn.last_offset): segment
            for segment in log.segments
            for txn in segment.transaction_index.entries
        }
        for txn in self.transactions:
            has_batch = any(
                stored.header.producer_id == txn.producer
                and not stored.header.is_control
                and txn.first_offset <= stored.header.base_offset < txn.marker_offset
                for stored in batches
            )
            if txn.state is State.ABORTED and has_batch:
                assert (txn.producer, txn.marker_offset) in listed
        markers = {stored.header.base_offset for stored in batches if stored.marker}
        for (_, marker_offset), segment in listed.items():
            assert marker_offset in markers
            assert log.segments.find_floor(marker_offset) is segment

    # What must hold all the time

    @invariant()
    def the_latest_committed_values_are_the_models(self) -> None:
        log = self.log.real
        undecided = [txn.first_offset for txn in self.open.values()]
        last_stable_offset = min(undecided, default=log.log_end_offset)
        assert log.last_stable_offset == last_stable_offset

        found: list[Record] = []
        offset = log.log_start_offset
        while offset < last_stable_offset:
            result = log.read(offset, FETCH_BYTES, Isolation.COMMITTED)
            for batch in without_aborted(result):
                found += [r for r in batch.iter_records() if r.offset >= offset]
            next_offsets = [batch.header.next_offset for batch in result.batches()]
            if not next_offsets:
                break
            assert next_offsets[-1] > offset, "the reader makes no progress"
            offset = next_offsets[-1]
        assert offset >= last_stable_offset or self._ends_in_a_gap(offset, last_stable_offset)

        written = [
            self.history[offset].record
            for offset in sorted(self.history)
            if offset < last_stable_offset and self.history[offset].is_committed
        ]
        assert replay(found) == replay(written)

    @invariant()
    def every_producer_can_go_on_where_it_left_off(self) -> None:
        """I20, also after a restart that had nothing but the batches."""
        self._check_producer_state(self.log.real.producer_state)

    @invariant()
    def nothing_is_left_of_a_run(self) -> None:
        assert not [path for path in self.log.directory.iterdir() if path.name.endswith(".part")]

    def _ends_in_a_gap(self, offset: int, end_offset: int) -> bool:
        """I4: only where an append begins after a gap may a reader find nothing before the end."""
        return not any(
            offset <= stored.header.last_offset < end_offset for stored in self._batches()
        )

    # Looking

    def _batches(self) -> list[Stored]:
        return read_stored(self.log.real)

    def _data_batches(self) -> list[Stored]:
        return [s for s in self._batches() if not s.header.is_control and s.records]

    def _young_bytes(self, end_offset: int) -> list[tuple[int, bytes]]:
        return [
            (segment.base_offset, segment.file.read(0, segment.size_bytes))
            for segment in self.log.real.segments
            if segment.base_offset >= end_offset
        ]


TestCompactedLog = CompactedLogMachine.TestCase
TestCompactedLog.settings = settings(stateful_step_count=30)
