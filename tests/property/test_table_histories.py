"""In any order of writes, transactions, passes and restarts, a table is the dict of its history.

The model is a list of what was acknowledged, for each of several partitions. It is held against
every face of a table: one that was opened before the first record, and one that is opened now
(I25); past states, exact or refused (I26); changes on top of an earlier state; and a follower,
which must miss nothing while passes take records away under its hands.
"""

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import siltstone
from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.key_indexing.after_pass import index_after_pass
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.errors import NotExactError
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.partitioner import java_partition
from siltstone.records.record import Record
from siltstone.table.request import View, ViewRequest
from siltstone.table.scanning import read_table
from siltstone.table.snapshot import open_snapshot
from siltstone.table.views import count_keys
from tests.support.clock import ManualClock
from tests.support.make_log import HastyDisk

PARTITIONS = 3
KEYS = [b"key-%d" % number for number in range(9)]
PRODUCER = 7

keys = st.sampled_from(KEYS)
values = st.one_of(st.none(), st.sampled_from([b"", b"v", b"a longer value"]))
contents = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
numbers = st.integers(0, PARTITIONS - 1)

State = dict[bytes, bytes]


@dataclass
class Written:
    """A record of the model."""

    offset: int
    key: bytes
    value: bytes | None
    is_committed: bool


@dataclass
class Moment:
    """A state that once was, and up to which offset of each partition."""

    state: State
    ends: dict[int, int]


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.path = Path(self._directory.name) / "data"
        self.clock = ManualClock()
        self.fs = HastyDisk()
        self.manager = LogManager([self.path], fs=self.fs, clock=self.clock)
        self.history: defaultdict[int, list[Written]] = defaultdict(list)
        self.open: dict[int, int] = {}  # partition: offset of its open transaction
        self.sequences: defaultdict[int, int] = defaultdict(int)
        self.moments: list[Moment] = []
        self.followed: State = {}
        self.positions: dict[int, int] = {}

    @initialize(segment_bytes=st.sampled_from([300, 900, 20_000]))
    def create(self, segment_bytes: int) -> None:
        config = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
        self.manager.create_topic("t", PARTITIONS, {**config, "file.delete.delay.ms": "0"})
        self.table = siltstone.open(self.path).table("t")

    # What happens to the log

    @rule(content=contents, codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
    def write(self, content: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        for number, records in self._by_partition(content).items():
            self._append(number, records, is_committed=True, codec=codec)

    @rule(content=contents)
    def write_in_transaction(self, content: list[tuple[bytes, bytes | None]]) -> None:
        for number, records in self._by_partition(content).items():
            sequence = self.sequences[number]
            self.sequences[number] += len(records)
            first = self._append(
                number,
                records,
                is_committed=False,
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            self.open.setdefault(number, first)

    @precondition(lambda self: self.open)
    @rule(commits=st.booleans())
    def end_transaction(self, commits: bool) -> None:
        number, first = sorted(self.open.items())[0]
        del self.open[number]
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        marker = build_marker(
            kind,
            offset=0,
            timestamp_ms=self.clock.now_ms(),
            producer_id=PRODUCER,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        log = self._log(number)
        log.append(marker, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.log_end_offset)
        mine = [written for written in self.history[number] if written.offset >= first]
        for written in mine:
            written.is_committed = written.is_committed or commits

    @rule(number=numbers, rolls=st.booleans(), indexes=st.booleans())
    def clean(self, number: int, rolls: bool, indexes: bool) -> None:
        log = self._log(number)
        if rolls:
            log.roll()
        checkpoints = CleanerCheckpoints(self.fs, self.path)
        now_ms = self.clock.now_ms()
        assessment, _ = assess_log(log, checkpoints.find(log.partition), now_ms)
        if assessment.first_uncleanable_offset <= log.segments.first.base_offset:
            return
        runner = PassRunner(self.fs, self.clock, LocalEngine(), checkpoints)
        done = runner.run(log, plan_pass(log, assessment, now_ms))
        if indexes:
            index_after_pass(self.fs, log, done.plan, done.result)
        log.delete_due_files()

    @rule()
    def restart(self) -> None:
        self.manager.close()
        self.manager = LogManager([self.path], fs=self.fs, clock=self.clock)
        for number in range(PARTITIONS):
            log = self._log(number)
            log.update_high_watermark(log.log_end_offset)

    # What is seen of it

    @invariant()
    def every_face_shows_the_last_committed_values(self) -> None:
        if not hasattr(self, "table"):
            return
        expected = self._state()
        fresh = siltstone.open(self.path).table("t")

        for table in (self.table, fresh):
            restored: State = {}
            table.restore_into(restored)
            assert restored == dict(table.items()) == table.get_many(KEYS) == expected
            assert {key for key in KEYS if key in table} == expected.keys()
        counts = [
            count_keys(open_snapshot(LogReader([self.path]), TopicPartition("t", n)), ViewRequest())
            for n in range(PARTITIONS)
        ]
        assert sum(count.live_keys for count, _ in counts) == len(expected)

    @rule()
    def remember(self) -> None:
        self.moments.append(Moment(self._state(), self._ends()))

    @precondition(lambda self: self.moments)
    @rule(data=st.data())
    def look_back(self, data: Any) -> None:
        moment = data.draw(st.sampled_from(self.moments))
        reader = LogReader([self.path])
        found = self._read_as_of(reader, moment.ends)
        if isinstance(found, NotExactError):
            assert any(end < found.first_exact_offset for end in moment.ends.values())
        else:
            assert found == moment.state

        # No tombstone has expired, so the changes since then lead from that state to this one.
        state = dict(moment.state)
        for number, end in moment.ends.items():
            request = ViewRequest(view=View.CHANGES, start_offset=end)
            changes = read_table(reader, "t", request, [number]).to_reader().read_all()
            _apply(state, changes.select(["key", "value"]).to_pylist())
        assert state == self._state()

    @rule()
    def follow(self) -> None:
        for change in self.table.follow(self.positions, waits=False):
            _apply(self.followed, [{"key": change.key, "value": change.value}])
            self.positions[change.partition] = change.offset + 1

        assert self.followed == self._state()

    def teardown(self) -> None:
        self.manager.close()
        self._directory.cleanup()

    # The model

    def _state(self) -> State:
        state: State = {}
        for number, written in self.history.items():
            for one in written:
                if one.offset < self.open.get(number, one.offset + 1) and one.is_committed:
                    _apply(state, [{"key": one.key, "value": one.value}])
        return state

    def _read_as_of(self, reader: LogReader, ends: dict[int, int]) -> State | NotExactError:
        try:
            view = read_table(reader, "t", None, range(PARTITIONS), ends)
        except NotExactError as refusal:
            return refusal
        rows = view.to_reader().read_all().select(["key", "value"]).to_pylist()
        return {row["key"]: row["value"] for row in rows}

    def _ends(self) -> dict[int, int]:
        return {
            number: self.open.get(number, self._log(number).log_end_offset)
            for number in range(PARTITIONS)
        }

    def _by_partition(
        self, content: list[tuple[bytes, bytes | None]]
    ) -> dict[int, list[tuple[bytes, bytes | None]]]:
        found: defaultdict[int, list[tuple[bytes, bytes | None]]] = defaultdict(list)
        for key, value in content:
            found[java_partition(key, PARTITIONS)].append((key, value))
        return found

    def _append(
        self,
        number: int,
        content: list[tuple[bytes, bytes | None]],
        *,
        is_committed: bool,
        **fields: Any,
    ) -> int:
        log = self._log(number)
        records = [
            Record(at, self.clock.now_ms(), key, value) for at, (key, value) in enumerate(content)
        ]
        first = log.append(build_batch(records, **fields)).first_offset
        log.update_high_watermark(log.log_end_offset)
        for at, (key, value) in enumerate(content):
            self.history[number].append(Written(first + at, key, value, is_committed))
        return first

    def _log(self, number: int) -> PartitionLog:
        return self.manager.get_log(TopicPartition("t", number))


def _apply(state: State, changes: list[dict[str, Any]]) -> None:
    for change in changes:
        if change["value"] is None:
            state.pop(change["key"], None)
        else:
            state[change["key"]] = change["value"]


TestTableHistories = TableMachine.TestCase
TestTableHistories.settings = settings(max_examples=25, stateful_step_count=20)
