"""Snapshots: Kafka's bytes, what survives a reload, and damaged files."""

from pathlib import Path

import pytest

from siltstone.errors import CoordinatorFencedError, CorruptCheckpointError
from siltstone.log.producer_entry import BatchMetadata, ProducerEntry
from siltstone.log.producer_snapshot import read_snapshot, write_snapshot
from siltstone.log.producer_state import CompletedTxn, ProducerState
from siltstone.records.batch import read_batch
from siltstone.records.control import ControlType, Marker
from siltstone.records.crc32c import crc32c
from tests.support.producers import ABORT, COMMIT, COORDINATOR, append, data, end

SNAPSHOT_PATH = Path("orders-3/00000000000000000005.snapshot")
DAY_MS = 86_400_000
MARKER_MS = 1_600_000_000_009

# A transactional batch of producer 7 at offset 3, its ABORT marker at offset 4, and the snapshot
# that Kafka took after the two.
TXN_BATCH = bytes.fromhex(
    "00000000000000030000003b000000000265a97a1000100000000000000174876e800700000174876e8007"
    "00000000000000070003000000000000000112000000046b33027800"
)
ABORT_BATCH = bytes.fromhex(
    "0000000000000004000000420000000002c1f0dcf000300000000000000174876e800900000174876e8009"
    "00000000000000070003ffffffff000000012000000008000000000c00000000000500"
)
SNAPSHOT = bytes.fromhex(
    "00012538216200000001000000000000000700030000000000000000000000030000000000000174876e8009"
    "00000005ffffffffffffffff"
)
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")


def reloaded(state: ProducerState, now_ms: int = 0) -> ProducerState:
    other = ProducerState(state.partition)
    other.load_snapshot(SNAPSHOT_PATH, state.write_snapshot(), now_ms, DAY_MS)
    return other


def test_a_snapshot_has_kafkas_bytes(state: ProducerState) -> None:
    completed: list[CompletedTxn] = []
    for raw in (TXN_BATCH, ABORT_BATCH):
        batch = read_batch(raw)
        completed += state.replay(batch.header, batch.marker())

    assert state.write_snapshot() == SNAPSHOT
    assert completed == [CompletedTxn(7, 3, 4, True, 5)]
    assert state.map_end_offset == 5


def test_a_snapshot_without_producers_has_kafkas_bytes(state: ProducerState) -> None:
    assert state.write_snapshot() == EMPTY_SNAPSHOT


def test_kafkas_snapshot_is_read() -> None:
    assert read_snapshot(SNAPSHOT_PATH, SNAPSHOT) == [
        ProducerEntry(7, 3, 5, MARKER_MS, None, (BatchMetadata(0, 3, 0, MARKER_MS),))
    ]
    assert read_snapshot(SNAPSHOT_PATH, EMPTY_SNAPSHOT) == []


def test_producers_are_written_in_the_order_of_their_ids() -> None:
    entries = [ProducerEntry(n) for n in (300, 2, 40)]

    written = write_snapshot(entries)

    assert [entry.producer_id for entry in read_snapshot(SNAPSHOT_PATH, written)] == [
        2,
        40,
        300,
    ]


def test_only_the_last_batch_is_kept_and_the_open_transaction(state: ProducerState) -> None:
    append(state, data(0, sequence=0, transactional=True))
    append(state, data(1, sequence=1, transactional=True))

    other = reloaded(state)

    assert other.entries[1] == ProducerEntry(1, 0, -1, 0, 0, (BatchMetadata(1, 1, 0, 0),))
    assert other.first_unstable_offset == 0
    append(other, data(2, sequence=2, transactional=True))
    assert append(other, end(3), ABORT, origin=COORDINATOR) == (CompletedTxn(1, 0, 3, True, 4),)


def test_a_finished_transaction_is_finished_after_a_reload(state: ProducerState) -> None:
    append(state, data(0, sequence=0, transactional=True))
    append(state, end(1, timestamp_ms=8), ABORT, origin=COORDINATOR)

    other = reloaded(state)

    assert other.entries[1] == ProducerEntry(1, 0, 0, 8, None, (BatchMetadata(0, 0, 0, 8),))
    assert other.first_unstable_offset is None


def test_a_marker_alone_is_kept(state: ProducerState) -> None:
    append(state, end(0, timestamp_ms=8), ABORT, origin=COORDINATOR)

    assert reloaded(state).entries[1] == ProducerEntry(1, 0, 0, 8, None, ())


def test_open_transactions_are_in_order_after_a_reload(state: ProducerState) -> None:
    append(state, data(10, producer=9, transactional=True))
    append(state, data(20, producer=4, transactional=True))

    other = reloaded(state)

    assert other.first_undecided_offset == 10
    (completed,) = append(other, end(30, producer=4), ABORT, origin=COORDINATOR)
    assert completed.last_stable_offset == 10


def test_a_snapshot_replaces_all_that_was_known(state: ProducerState) -> None:
    append(state, data(0, producer=1, transactional=True))
    snapshot = state.write_snapshot()
    append(state, end(1, producer=1), COMMIT, origin=COORDINATOR)
    append(state, data(2, producer=2))
    state.update_map_end_offset(3)

    state.load_snapshot(SNAPSHOT_PATH, snapshot, 0, DAY_MS)

    assert list(state.entries) == [1]
    assert (state.first_undecided_offset, state.first_unstable_offset) == (0, 0)
    state.on_high_watermark_updated(100)
    assert state.first_unstable_offset == 0
    assert state.map_end_offset == 3


def test_expired_producers_are_not_loaded(state: ProducerState) -> None:
    append(state, data(0, producer=1, timestamp_ms=1_000))
    append(state, data(1, producer=2, timestamp_ms=1_001))
    append(state, data(2, producer=3, timestamp_ms=1_000, transactional=True))

    other = reloaded(state, now_ms=DAY_MS + 1_000)

    assert list(other.entries) == [2, 3]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"", "0 bytes are too few for a snapshot"),
        (SNAPSHOT[:9], "9 bytes are too few for a snapshot"),
        (SNAPSHOT[:28], f"snapshot says CRC 0x25382162, bytes give {crc32c(SNAPSHOT[6:28]):#010x}"),
        (b"\0\0" + SNAPSHOT[2:], "unknown snapshot version 0"),
        (b"\0\2" + SNAPSHOT[2:], "unknown snapshot version 2"),
        (bytes(37) + SNAPSHOT[37:], "unknown snapshot version 0"),
        (
            SNAPSHOT + bytes(1),
            f"snapshot says CRC 0x25382162, bytes give {crc32c(SNAPSHOT[6:] + bytes(1)):#010x}",
        ),
    ],
    ids=["empty", "no count", "cut", "version 0", "version 2", "zeros", "tail"],
)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(
    state: ProducerState, damaged: bytes, reason: str
) -> None:
    append(state, data(0))
    before = state.active_producers()

    with pytest.raises(CorruptCheckpointError) as error:
        state.load_snapshot(SNAPSHOT_PATH, damaged, 0, DAY_MS)

    assert str(error.value) == f"orders-3/00000000000000000005.snapshot: {reason}"
    assert state.entries == before


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_signed_snapshot_with_a_wrong_count_is_refused(count: int) -> None:
    body = count.to_bytes(4, "big", signed=True) + SNAPSHOT[10:]
    signed = SNAPSHOT[:2] + crc32c(body).to_bytes(4, "big") + body

    with pytest.raises(CorruptCheckpointError, match=f"says {count} producers, has room for 1"):
        read_snapshot(SNAPSHOT_PATH, signed)


def test_after_a_reload_only_the_last_batch_is_found_again(state: ProducerState) -> None:
    append(state, data(0, sequence=0))
    append(state, data(1, sequence=1))

    other = reloaded(state)

    assert other.find_duplicate(data(0, sequence=0)) is None
    assert other.find_duplicate(data(0, sequence=1)) == BatchMetadata(1, 1, 0, 0)


def test_an_older_coordinator_is_fenced_after_a_reload(state: ProducerState) -> None:
    append(state, data(99, transactional=True))
    append(state, end(100), Marker(ControlType.COMMIT, 1), origin=COORDINATOR)

    with pytest.raises(CoordinatorFencedError):
        reloaded(state).prepare(end(101), COORDINATOR, Marker(ControlType.COMMIT, 0))
