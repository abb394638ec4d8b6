"""The straight way of a usual batch into the log, against the way that every batch can take."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given, settings

from siltstone.errors import SiltstoneError
from siltstone.log.append_info import AppendInfo
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.log_checks import PARTITION, open_log


class Attempt(NamedTuple):
    """A batch that a client sends, and how long after the one before it."""

    record_count: int
    value_bytes: int
    producer_id: int
    epoch: int
    skipped: int  # sequences; below 0 some are sent again
    is_transactional: bool
    codec: Codec
    delay_ms: int
    is_damaged: bool


ATTEMPTS = st.builds(
    Attempt,
    record_count=st.integers(1, 4),
    value_bytes=st.sampled_from([0, 10, 60, 300]),
    producer_id=st.sampled_from([-1, 1, 1, 1, 2]),
    epoch=st.sampled_from([0, 0, 0, 0, 1]),
    skipped=st.sampled_from([0, 0, 0, 0, 0, -1, 3]),
    is_transactional=st.sampled_from([False, False, False, True]),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
    delay_ms=st.sampled_from([0, 1, 1, 500, 40_000]),
    is_damaged=st.sampled_from([False] * 8 + [True]),
)
SETTINGS = st.sampled_from(
    [
        {"segment.ms": 30_000},
        {"segment.bytes": 100_000},
        {"cleanup.policy": "compact", "compression.type": "lz4"},
        {"message.timestamp.type": "LogAppendTime"},
        {"flush.messages": 2},
    ]
)


def batch_of(attempt: Attempt, now_ms: int, next_sequence: int) -> bytes:
    has_producer = attempt.producer_id >= 0
    data = build_batch(
        [
            Record(number, now_ms, b"key", bytes(attempt.value_bytes))
            for number in range(attempt.record_count)
        ],
        codec=attempt.codec,
        producer_id=attempt.producer_id,
        producer_epoch=attempt.epoch if has_producer else -1,
        base_sequence=max(next_sequence + attempt.skipped, 0) if has_producer else -1,
        is_transactional=attempt.is_transactional and has_producer,
    )
    return data[:-1] + bytes([data[-1] ^ 1]) if attempt.is_damaged else data


def append(log: PartitionLog, data: bytes, *, is_quick: bool) -> AppendInfo | str:
    try:
        info = log.try_append(data) if is_quick else None
        if info is None:
            info = log.append(data)
    except SiltstoneError as error:
        return str(error)
    log.update_high_watermark(log.log_end_offset)
    return info


def state_of(log: PartitionLog) -> object:
    return (
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.producer_state.active_producers(),
        log.producer_state.map_end_offset,
        log.leader_epochs.entries,
        [
            (segment.base_offset, segment.size_bytes, segment.max_timestamp)
            for segment in log.segments
        ],
    )


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@settings(max_examples=150)
@given(SETTINGS, st.lists(ATTEMPTS, min_size=1, max_size=25))
def test_a_log_that_takes_usual_batches_quickly_is_the_same_log(
    changes: dict[str, object], attempts: list[Attempt]
) -> None:
    quick_to_roll = {"segment.bytes": 1000, "index.interval.bytes": 150, "retention.ms": -1}
    texts = {name: str(value) for name, value in {**quick_to_roll, **changes}.items()}
    config = LogConfig.parse(texts)
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as root:
        directories = [Path(root) / name / str(PARTITION) for name in ("plain", "quick")]
        for directory in directories:
            directory.mkdir(parents=True)
        plain, quick = (open_log(FileSystem(), path, config, clock) for path in directories)
        next_sequences: dict[int, int] = {}

        for attempt in attempts:
            clock.advance_ms(attempt.delay_ms)
            key = attempt.producer_id
            data = batch_of(attempt, clock.now_ms(), next_sequences.get(key, 0))
            expected = append(plain, data, is_quick=False)

            assert append(quick, data, is_quick=True) == expected
            assert state_of(quick) == state_of(plain)
            if isinstance(expected, AppendInfo) and not expected.is_duplicate:
                sent = max(next_sequences.get(key, 0) + attempt.skipped, 0)
                next_sequences[key] = sent + attempt.record_count

        plain.close()
        quick.close()
        assert files_of(directories[1]) == files_of(directories[0])


def test_most_batches_are_usual(tmp_path: Path) -> None:
    clock = ManualClock()
    config = LogConfig()
    directory = tmp_path / str(PARTITION)
    directory.mkdir()
    log = open_log(FileSystem(), directory, config, clock)
    usual = Attempt(3, 20, 1, 0, 0, False, Codec.NONE, 0, is_damaged=False)

    taken = []
    for number in range(20):
        codec = list(Codec)[number % len(Codec)]
        data = batch_of(usual._replace(codec=codec), clock.now_ms(), 3 * number)
        taken.append(log.try_append(data) is not None)
        if not taken[-1]:
            log.append(data)

    # The first one brings the epoch, the producer and the index files.
    assert taken == [False] + [True] * 19
