"""Many requests at once over one connection: answered in order, whatever comes behind them."""

import struct

import pytest

from siltstone.broker import wire
from siltstone.broker.messages import Values
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.clients.conftest import MakeTopic
from tests.support.serving import RawClient, frame_of

COUNT = 300
METADATA_VALUES = {"topics": None, "allow_auto_topic_creation": False}


def receive_numbers(client: RawClient, count: int) -> list[int]:
    """Receive so many answers, and return their correlation ids."""
    answers = [client.receive_frame() for _ in range(count)]
    return [struct.unpack(">i", data[:4])[0] for data in answers if data is not None]


def test_answers_come_in_the_order_of_the_requests(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    batch = build_batch([Record(0, 1, b"k", bytes(1000))])
    produce = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 9000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    }
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 5_000}
    fetch = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 5_000,
        "topics": [{"topic": topic, "partitions": [part]}],
        "forgotten_topics_data": (),
    }
    kinds: list[tuple[int, int, Values]] = [
        (wire.PRODUCE, 9, produce),
        (wire.FETCH, 11, fetch),
        (wire.METADATA, 4, METADATA_VALUES),
    ]
    frames = [
        frame_of(api_key, version, values, number)
        for number in range(COUNT)
        for api_key, version, values in (kinds[number % 3],)
    ]

    raw.socket.sendall(b"".join(frames))

    assert receive_numbers(raw, COUNT) == list(range(COUNT))


@pytest.mark.parametrize("bad", [struct.pack(">i", -1), struct.pack(">ihhi", 8, 999, 0, 1)])
def test_what_comes_before_a_bad_frame_is_answered(raw: RawClient, bad: bytes) -> None:
    frames = [frame_of(wire.METADATA, 4, METADATA_VALUES, number) for number in range(COUNT)]

    raw.socket.sendall(b"".join(frames) + bad)

    assert receive_numbers(raw, COUNT) == list(range(COUNT))
    assert raw.receive_frame() is None
