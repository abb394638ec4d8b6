"""What is read back from the log is what was written to it, transactions and tombstones too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siltstone.coordinator.group.loading import OtherRecord, load_partition
from siltstone.coordinator.group.offsets import OffsetStore
from siltstone.coordinator.group.records import (
    OffsetKey,
    OffsetValue,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record

TOPIC = "__consumer_offsets"
KEYS = [OffsetKey(group, "t", n) for group in ("g", "größe") for n in range(2)]
PRODUCERS = (7, 8)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    with LogManager([tmp_path / "logs"]) as manager:
        manager.create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
        yield manager.get_log(TopicPartition(TOPIC, 0))


def record(key: OffsetKey, offset: int | None, at: int = 0) -> Record:
    value = None if offset is None else encode_offset_value(OffsetValue(offset, -1, "", 1))
    return Record(at, 1, encode_offset_key(key), value)


def append(log: PartitionLog, records: list[Record], producer_id: int | None = None) -> None:
    codec = Codec.LZ4 if len(records) > 2 else Codec.NONE
    if producer_id is None:
        log.append(build_batch(records, codec=codec))
        return
    batch = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append(batch, origin=AppendOrigin.COORDINATOR)


def end(log: PartitionLog, producer_id: int, kind: ControlType) -> None:
    marker = build_marker(
        kind, offset=0, timestamp_ms=1, producer_id=producer_id, producer_epoch=0,
        coordinator_epoch=0,
    )  # fmt: skip
    log.append(marker, origin=AppendOrigin.COORDINATOR)


class PlainOffsets:
    """The rule, once more and obviously: what counts is what was written last among what counts."""

    def __init__(self) -> None:
        self.committed: dict[OffsetKey, tuple[int, int]] = {}
        self.pending: dict[int, dict[OffsetKey, tuple[int, int]]] = {}
        self.number = 0

    def put(self, key: OffsetKey, offset: int | None, producer_id: int | None) -> None:
        self.number += 1
        if offset is None:
            self.committed.pop(key, None)
        elif producer_id is None:
            self.committed[key] = (self.number, offset)
        else:
            self.pending.setdefault(producer_id, {})[key] = (self.number, offset)

    def end(self, producer_id: int, kind: ControlType) -> None:
        for key, written in self.pending.pop(producer_id, {}).items():
            if kind is ControlType.COMMIT and written > self.committed.get(key, (0, 0)):
                self.committed[key] = written


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 99)), min_size=1, max_size=4),
            st.sampled_from([None, *PRODUCERS]),
        ),
        st.sampled_from(KEYS),
        st.tuples(
            st.sampled_from(PRODUCERS), st.sampled_from([ControlType.COMMIT, ControlType.ABORT])
        ),
    ),
    max_size=30,
)


@given(steps=STEPS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_offsets_are_those_of_the_plain_rule(log: PartitionLog, steps: list[object]) -> None:
    plain = PlainOffsets()
    log.truncate_fully_and_start_at(0)
    for step in steps:
        match step:
            case OffsetKey():
                # A tombstone for what no transaction writes: those are not deleted meanwhile.
                if not any(step in written for written in plain.pending.values()):
                    append(log, [record(step, None)])
                    plain.put(step, None, None)
            case (int() as producer_id, ControlType() as kind):
                if producer_id in plain.pending:
                    end(log, producer_id, kind)
                plain.end(producer_id, kind)
            case (list() as offsets, (int() | None) as producer_id):
                append(log, [record(k, o, i) for i, (k, o) in enumerate(offsets)], producer_id)
                for key, offset in offsets:
                    plain.put(key, offset, producer_id)

    store = OffsetStore()
    others = list(load_partition(log, store))

    found = {key: store.find(key) for key in KEYS}
    assert {key: value.offset for key, value in found.items() if value is not None} == {
        key: offset for key, (_, offset) in plain.committed.items()
    }
    open_keys = {key for written in plain.pending.values() for key in written}
    assert {key for key in KEYS if store.is_unstable(key)} == open_keys
    assert others == []


def test_records_of_groups_come_in_order_and_old_keys_are_understood(log: PartitionLog) -> None:
    old_key = b"\0\0" + encode_offset_key(KEYS[0])[2:]
    append(log, [Record(0, 1, encode_group_key("g"), b"first"), record(KEYS[0], 1, 1)])
    append(log, [Record(0, 1, encode_group_key("g"), None)])
    append(log, [Record(0, 1, old_key, encode_offset_value(OffsetValue(2, -1, "", 1)))])

    store = OffsetStore()
    others = list(load_partition(log, store))

    key = encode_group_key("g")
    assert others == [OtherRecord(2, key, b"first"), OtherRecord(2, key, None)]
    found = store.find(KEYS[0])
    assert found is not None
    assert found.offset == 2
