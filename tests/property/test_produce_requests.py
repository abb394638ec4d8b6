"""Produce requests as they are read by hand, against kio."""

import random
import uuid
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from kio.index import load_request_schema
from kio.serial import entity_reader

from siltstone.broker.frame_check import check_frame
from siltstone.broker.produce_requests import read_produce
from siltstone.broker.wire import PRODUCE, SERVED
from siltstone.errors import DecodeError
from tests.support.serving import frame_of

VERSIONS = st.integers(SERVED[PRODUCE].first, SERVED[PRODUCE].last)
PARTITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "index": st.integers(-(2**31), 2**31 - 1),
            "records": st.none() | st.binary(max_size=300),
        }
    ),
    max_size=4,
)
TOPICS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.text(max_size=200),
            "topic_id": st.none() | st.uuids().filter(lambda i: i.int != 0),
            "partition_data": PARTITIONS,
        }
    ),
    max_size=4,
)
REQUESTS = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | st.text(max_size=200),
        "acks": st.integers(-(2**15), 2**15 - 1),
        "timeout": st.integers(0, 2**31 - 1),
        "topic_data": TOPICS,
    }
)


def by_hand(frame: memoryview, version: int) -> object:
    client_id, body = read_produce(frame, version)
    return (
        client_id,
        body.transactional_id,
        body.acks,
        [
            (
                topic.topic_id if version >= 13 else topic.name,
                [(part.number, part.records) for part in topic.partition_data],
            )
            for topic in body.topic_data
        ],
    )


def by_kio(frame: memoryview, version: int) -> object:
    request_type = load_request_schema(PRODUCE, version)
    header, position = entity_reader(request_type.__header_schema__)(frame, 0)
    check_frame(request_type, frame, position)
    body: Any
    body, _ = entity_reader(request_type)(frame, position)
    return (
        header.client_id,
        body.transactional_id,
        body.acks,
        [
            (
                topic.topic_id if version >= 13 else topic.name,
                [(part.index, part.records) for part in topic.partition_data],
            )
            for topic in body.topic_data
        ],
    )


def outcome(read: Any, frame: memoryview, version: int) -> object:
    try:
        return read(frame, version)
    except Exception:  # noqa: BLE001 - whatever kio says
        return "refused"


@given(REQUESTS, VERSIONS)
def test_a_request_is_read_as_by_kio(values: dict[str, Any], version: int) -> None:
    frame = memoryview(frame_of(PRODUCE, version, values))[4:]

    assert by_hand(frame, version) == by_kio(frame, version)


@given(REQUESTS, VERSIONS, st.integers(0, 2**32))
def test_a_damaged_request_is_refused_or_read_as_by_kio(
    values: dict[str, Any], version: int, seed: int
) -> None:
    chance = random.Random(seed)
    spoilt = bytearray(frame_of(PRODUCE, version, values)[4:])
    for _ in range(chance.randrange(1, 4)):
        spoilt[chance.randrange(8, len(spoilt))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
    if chance.random() < 0.3:
        del spoilt[chance.randrange(8, len(spoilt)) :]
    frame = memoryview(bytes(spoilt))

    assert outcome(by_hand, frame, version) == outcome(by_kio, frame, version)


@pytest.mark.parametrize("version", range(SERVED[PRODUCE].first, SERVED[PRODUCE].last + 1))
def test_a_request_that_ends_too_early_is_refused_wherever_it_ends(version: int) -> None:
    part = {"index": 3, "records": bytes(200)}
    topic = {"name": "orders", "topic_id": uuid.UUID(int=5), "partition_data": [part]}
    values = {"transactional_id": "x", "acks": -1, "timeout": 1, "topic_data": [topic]}
    frame = memoryview(frame_of(PRODUCE, version, values))[4:]

    for end in range(8, len(frame)):
        with pytest.raises(DecodeError):
            read_produce(frame[:end], version)
