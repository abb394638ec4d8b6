"""The state against a model that recomputes everything from the list of accepted batches."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from siltstone.errors import (
    CoordinatorFencedError,
    CorruptCheckpointError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    RequestError,
)
from siltstone.ids import TopicPartition
from siltstone.log.producer_entry import BatchMetadata, ProducerEntry
from siltstone.log.producer_snapshot import read_snapshot, write_snapshot
from siltstone.log.producer_state import CompletedTxn, ProducerState
from siltstone.records.batch import BatchHeader
from siltstone.records.control import ControlType, Marker
from tests.support.producers import CLIENT, COORDINATOR, REPLICATION, data, end

PATH = Path("orders-3/00000000000000000005.snapshot")
PARTITION = TopicPartition("orders", 3)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
NEVER_MS = 2**70


@st.composite
def snapshot_entries(draw: st.DrawFn) -> ProducerEntry:
    timestamp_ms = draw(INT64)
    batch = st.builds(BatchMetadata, INT32, OFFSETS, INT32, st.just(timestamp_ms))
    return ProducerEntry(
        producer_id=draw(OFFSETS),
        epoch=draw(st.integers(-(2**15), 2**15 - 1)),
        coordinator_epoch=draw(INT32),
        last_timestamp_ms=timestamp_ms,
        current_txn_first_offset=draw(st.none() | OFFSETS),
        batches=draw(st.tuples() | st.tuples(batch)),
    )


ENTRY_LISTS = st.lists(snapshot_entries(), max_size=8, unique_by=lambda entry: entry.producer_id)


@given(ENTRY_LISTS)
def test_a_snapshot_gives_back_what_was_written(entries: list[ProducerEntry]) -> None:
    written = write_snapshot(entries)

    assert len(written) == 10 + 46 * len(entries)
    assert read_snapshot(PATH, written) == sorted(entries, key=lambda entry: entry.producer_id)


@given(ENTRY_LISTS)
def test_a_loaded_snapshot_writes_the_same_bytes(entries: list[ProducerEntry]) -> None:
    written = write_snapshot(entries)
    state = ProducerState(PARTITION)

    state.load_snapshot(PATH, written, 0, NEVER_MS)

    assert state.write_snapshot() == written
    first_offsets = [entry.current_txn_first_offset for entry in entries]
    open_offsets = [offset for offset in first_offsets if offset is not None]
    assert state.first_unstable_offset == min(open_offsets, default=None)


@given(ENTRY_LISTS, st.data())
def test_a_snapshot_with_a_changed_byte_is_refused(
    entries: list[ProducerEntry], draws: st.DataObject
) -> None:
    written = bytearray(write_snapshot(entries))
    position = draws.draw(st.integers(0, len(written) - 1))
    written[position] ^= draws.draw(st.integers(1, 255))

    with pytest.raises(CorruptCheckpointError):
        read_snapshot(PATH, written)


@given(st.binary(max_size=120))
def test_bytes_of_any_kind_give_entries_or_a_corrupt_checkpoint(raw: bytes) -> None:
    with contextlib.suppress(CorruptCheckpointError):
        read_snapshot(PATH, raw)


@dataclass
class Producer:
    """One producer of the model, as plain as can be."""

    epoch: int | None = None
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    txn_first_offset: int | None = None
    remembered: list[tuple[int, int, int, int]] = field(default_factory=list)  # sequences, offsets
    timestamps_ms: list[int] = field(default_factory=list)

    def expected_sequence(self) -> int:
        if not self.remembered:
            return 0
        last = self.remembered[-1][1]
        return 0 if last == 2**31 - 1 else last + 1


@dataclass
class Model:
    """Every rule once more, with dicts and lists and no thought of speed."""

    producers: dict[int, Producer] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # producer -> first offset
    unreplicated: set[tuple[int, int]] = field(default_factory=set)

    def refusal(
        self, header: BatchHeader, marker: Marker | None, *, checked: bool, sequenced: bool
    ) -> type[RequestError] | None:
        known = self.producers.get(header.producer_id, Producer())
        if header.is_control:
            if marker is None or not checked:
                return None
            if known.epoch is not None and header.producer_epoch < known.epoch:
                return InvalidProducerEpochError
            if marker.coordinator_epoch < known.coordinator_epoch:
                return CoordinatorFencedError
            return None
        if checked and known.epoch is not None and header.producer_epoch < known.epoch:
            return InvalidProducerEpochError
        if sequenced and known.epoch is not None:
            same = header.producer_epoch == known.epoch
            if header.base_sequence != (known.expected_sequence() if same else 0):
                return OutOfOrderSequenceError
        if known.txn_first_offset is not None and not header.is_transactional:
            return InvalidTxnStateError
        return None

    def accept(self, header: BatchHeader, marker: Marker | None) -> CompletedTxn | None:
        producer_id = header.producer_id
        producer = self.producers.setdefault(producer_id, Producer())
        if header.is_control and marker is None:
            return None
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.remembered.clear()
            producer.timestamps_ms.clear()
        producer.last_timestamp_ms = header.max_timestamp_ms
        if marker is None:
            sequences = (header.base_sequence, header.last_sequence)
            producer.remembered.append((*sequences, header.base_offset, header.last_offset))
            producer.timestamps_ms.append(header.max_timestamp_ms)
            if header.is_transactional and producer.txn_first_offset is None:
                producer.txn_first_offset = header.base_offset
                self.open[producer_id] = header.base_offset
            return None

        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset, producer.txn_first_offset = producer.txn_first_offset, None
        if first_offset is None:
            return None
        del self.open[producer_id]
        self.unreplicated.add((first_offset, header.base_offset))
        stable = min(self.open.values(), default=header.base_offset + 1)
        is_aborted = marker.control_type is ControlType.ABORT
        return CompletedTxn(producer_id, first_offset, header.base_offset, is_aborted, stable)

    def duplicate(self, header: BatchHeader) -> tuple[int, int] | None:
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for first, last, first_offset, last_offset in producer.remembered[-5:]:
            if (first, last) == (header.base_sequence, header.last_sequence) and first >= 0:
                return first_offset, last_offset
        return None

    def entries(self) -> dict[int, ProducerEntry]:
        return {
            producer_id: ProducerEntry(
                producer_id,
                -1 if producer.epoch is None else producer.epoch,
                producer.coordinator_epoch,
                producer.last_timestamp_ms,
                producer.txn_first_offset,
                tuple(
                    BatchMetadata(last, last_offset, last_offset - first_offset, timestamp_ms)
                    for (_, last, first_offset, last_offset), timestamp_ms in zip(
                        producer.remembered[-5:], producer.timestamps_ms[-5:], strict=True
                    )
                ),
            )
            for producer_id, producer in self.producers.items()
        }

    def first_unstable_offset(self) -> int | None:
        return min([*self.open.values(), *(first for first, _ in self.unreplicated)], default=None)


def next_batch(
    draws: st.DataObject, model: Model, log_end: int
) -> tuple[BatchHeader, Marker | None]:
    """Draw what a producer would mostly send next, or else nearly every batch would be refused."""
    producer_id = draws.draw(st.integers(-1, 2))
    known = model.producers.get(producer_id, Producer())
    epoch = max(0, (known.epoch or 0) + draws.draw(st.sampled_from([0] * 8 + [1, 1, -1])))
    timestamp_ms = draws.draw(st.integers(0, 100))
    if draws.draw(st.integers(0, 3)) == 0:
        control_type = draws.draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
        coordinator_epoch = max(0, known.coordinator_epoch) + draws.draw(st.integers(-1, 2))
        marker = Marker(control_type, coordinator_epoch) if draws.draw(st.integers(0, 3)) else None
        return (
            end(log_end, producer=producer_id, epoch=epoch, timestamp_ms=timestamp_ms),
            marker,
        )
    sequence = (
        known.expected_sequence()
        if draws.draw(st.integers(0, 3))
        else draws.draw(st.sampled_from([0, 1, 2, 5, 2**31 - 2, 2**31 - 1]))
    )
    in_txn = known.txn_first_offset is not None
    batch = data(
        log_end,
        producer=producer_id,
        epoch=epoch,
        sequence=sequence,
        count=draws.draw(st.integers(1, 3)),
        timestamp_ms=timestamp_ms,
        transactional=draws.draw(st.sampled_from([in_txn, in_txn, in_txn, not in_txn])),
    )
    return batch, None


@pytest.mark.timeout(900)  # A search with the nightly profile takes minutes.
@given(st.data())
def test_the_state_agrees_with_its_model(draws: st.DataObject) -> None:
    state, model = ProducerState(PARTITION), Model()
    log_end = 0
    for _ in range(draws.draw(st.integers(1, 40))):
        header, marker = next_batch(draws, model, log_end)
        producer_id = header.producer_id
        origin = draws.draw(st.sampled_from([CLIENT, CLIENT, CLIENT, COORDINATOR, REPLICATION]))
        found = state.find_duplicate(header)
        assert (found and (found.first_offset, found.last_offset)) == model.duplicate(header)
        refusal = None
        if producer_id >= 0:
            refusal = model.refusal(
                header, marker, checked=origin is not REPLICATION, sequenced=origin is CLIENT
            )
        if refusal is not None:
            with pytest.raises(refusal):
                state.prepare(header, origin, marker)
        else:
            update = state.prepare(header, origin, marker)
            assert state.entries == model.entries()
            completed = state.apply(update)
            expected = model.accept(header, marker) if producer_id >= 0 else None
            assert completed == (() if expected is None else (expected,))
            log_end = header.next_offset

        if draws.draw(st.integers(0, 4)) == 0:
            high_watermark = draws.draw(st.integers(0, log_end))
            state.on_high_watermark_updated(high_watermark)
            model.unreplicated = {txn for txn in model.unreplicated if txn[1] >= high_watermark}
        if draws.draw(st.integers(0, 9)) == 0:
            now_ms = draws.draw(st.integers(0, 150))
            state.remove_expired(now_ms, 50)
            for idle in [p for p in model.producers.values() if p.txn_first_offset is None]:
                if now_ms - idle.last_timestamp_ms >= 50:
                    model.producers = {k: p for k, p in model.producers.items() if p is not idle}

        assert state.entries == model.entries()
        assert state.first_undecided_offset == min(model.open.values(), default=None)
        assert state.first_unstable_offset == model.first_unstable_offset()
        assert state.is_empty == (not model.producers and not model.unreplicated)


@pytest.mark.timeout(900)  # As above.
@given(st.data())
def test_batches_prepared_together_end_up_where_batches_replayed_one_by_one_do(
    draws: st.DataObject,
) -> None:
    batches: list[tuple[BatchHeader, Marker | None]] = []
    in_txn: set[int] = set()
    for offset in range(draws.draw(st.integers(1, 30))):
        producer_id = draws.draw(st.integers(-1, 2))
        if producer_id >= 0 and draws.draw(st.integers(0, 3)) == 0:
            control_type = draws.draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
            batches.append((end(offset, producer=producer_id), Marker(control_type, 0)))
            in_txn.discard(producer_id)
        else:
            transactional = producer_id in in_txn or draws.draw(st.booleans())
            if transactional:
                in_txn.add(producer_id)
            header = data(offset, producer=producer_id, sequence=0, transactional=transactional)
            batches.append((header, None))
    together, one_by_one = ProducerState(PARTITION), ProducerState(PARTITION)

    completed = together.apply(together.prepare_all(batches, REPLICATION))
    replayed = [txn for header, marker in batches for txn in one_by_one.replay(header, marker)]

    assert together.entries == one_by_one.entries
    assert together.first_undecided_offset == one_by_one.first_undecided_offset
    assert together.first_unstable_offset == one_by_one.first_unstable_offset
    # Not the last stable offset: a marker of a whole append may see transactions that came later.
    assert [txn[:4] for txn in completed] == [txn[:4] for txn in replayed]
    assert all(a[4] >= b[4] for a, b in zip(completed, replayed, strict=True))
