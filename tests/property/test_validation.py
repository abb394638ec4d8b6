"""The short way of a usual batch, against the way that every batch can take."""

import random
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from siltstone.errors import SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.origin import AppendOrigin
from siltstone.log.validation import BatchValidator, ValidBatch
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from tests.support.mutations import mutate_batch

PARTITION = TopicPartition("orders", 3)
NOW_MS = 1_700_000_000_000
CONFIGS = st.sampled_from(
    [
        LogConfig.parse(settings)
        for settings in (
            {},
            {"cleanup.policy": "compact"},
            {"max.message.bytes": "150"},
            {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
            {"message.timestamp.type": "LogAppendTime"},
            {"compression.type": "uncompressed"},
            {"compression.type": "lz4"},
        )
    ]
)
RECORDS = st.lists(
    st.tuples(st.integers(-1500, 1500), st.none() | st.binary(max_size=9), st.none() | st.binary()),
    min_size=1,
    max_size=5,
)


def outcome(check: Any, data: bytes) -> object:
    try:
        valid: ValidBatch = check(
            data, AppendOrigin.CLIENT, base_offset=42, leader_epoch=7, now_ms=NOW_MS
        )
    except SiltstoneError as error:
        return type(error), str(error)
    return valid._replace(buffers=(b"".join(valid.buffers),))


@given(
    CONFIGS,
    RECORDS,
    st.sampled_from([-1, 4711]),
    st.booleans(),
    st.sampled_from(Codec),
    st.none() | st.integers(0, 2**32),
)
def test_a_usual_batch_is_stamped_as_if_it_had_been_examined(
    config: LogConfig,
    contents: list[tuple[int, bytes | None, bytes | None]],
    producer_id: int,
    is_transactional: bool,
    codec: Codec,
    mutation: int | None,
) -> None:
    has_producer = producer_id >= 0
    data = build_batch(
        [
            Record(number, NOW_MS + delay_ms, key, value)
            for number, (delay_ms, key, value) in enumerate(contents)
        ],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=3 if has_producer else -1,
        base_sequence=5 if has_producer else -1,
        is_transactional=is_transactional and has_producer,
    )
    if mutation is not None:
        data = mutate_batch(random.Random(mutation), data)
    validator = BatchValidator(PARTITION, config)

    assert outcome(validator.validate, data) == outcome(validator.examine, data)
