"""The state after a replay, against one that has looked at every batch."""

from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, reject

from siltstone.errors import InvalidTxnStateError
from siltstone.ids import TopicPartition
from siltstone.log.producer_state import CompletedTxn, ProducerState
from siltstone.log.replay import replay_chunk
from siltstone.records.batch import iter_batches
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from siltstone.records.scan import walk

PARTITION = TopicPartition("orders", 3)
PATH = Path("orders-3/00000000000000000000.log")
KINDS = st.sampled_from(["plain", "transactional", "commit", "abort", "no producer"])
# Few producers and long runs, so that there is something to leave out.
RUNS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 1), KINDS, st.integers(1, 9)), max_size=12
)


def make_chunk(runs: list[tuple[int, int, str, int]]) -> bytes:
    chunk = bytearray()
    offset = 0
    for producer_id, epoch, kind, count in runs:
        for _ in range(count):
            if kind in ("commit", "abort"):
                control_type = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
                chunk += build_marker(
                    control_type,
                    offset=offset,
                    timestamp_ms=1000 + offset,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    coordinator_epoch=0,
                )
            else:
                has_producer = kind != "no producer"
                chunk += build_batch(
                    [Record(offset, 1000 + offset, b"k", b"v")],
                    producer_id=producer_id if has_producer else -1,
                    producer_epoch=epoch if has_producer else -1,
                    base_sequence=offset if has_producer else -1,
                    is_transactional=kind == "transactional",
                )
            offset += 1
    return bytes(chunk)


def replay_everything(chunk: bytes, state: ProducerState) -> list[CompletedTxn]:
    completed: list[CompletedTxn] = []
    for _, batch in iter_batches(chunk):
        completed += state.replay(batch.header, batch.marker())
    return completed


@given(RUNS, RUNS)
def test_the_batches_left_out_of_a_replay_would_have_left_no_trace(
    before: list[tuple[int, int, str, int]], runs: list[tuple[int, int, str, int]]
) -> None:
    first, chunk = make_chunk(before), make_chunk(runs)
    expected, found = ProducerState(PARTITION), ProducerState(PARTITION)
    try:
        for state in (expected, found):
            replay_everything(first, state)
    except InvalidTxnStateError:
        reject()

    try:
        expected_txns: list[CompletedTxn] | str = replay_everything(chunk, expected)
    except InvalidTxnStateError as error:
        expected_txns = str(error)
    try:
        found_txns: list[CompletedTxn] | str = []
        if chunk:
            batches = walk(chunk).batches
            found_txns = list(replay_chunk(memoryview(chunk), batches, found, PATH, 0))
    except InvalidTxnStateError as error:
        found_txns = str(error)

    assert found_txns == expected_txns
    if not isinstance(found_txns, str):
        assert found.entries == expected.entries
        assert found.first_unstable_offset == expected.first_unstable_offset
        if chunk:
            assert found.map_end_offset == expected.map_end_offset
