"""What a fetch returns, when it waits, and what a session leaves out; asked in raw frames."""

import threading
import time
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker.wire import FETCH
from siltstone.records.batch import iter_batches
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.clients.conftest import MakeTopic
from tests.clients.test_every_version import produce
from tests.support.serving import RawClient, ServedBroker
from tests.support.waiting import wait_until

VERSION = 12


def batch(*values: bytes) -> bytes:
    return build_batch([Record(i, 1_000 + i, b"k", v) for i, v in enumerate(values)])


def want(partition: int, offset: int, max_bytes: int = 1 << 20, epoch: int = -1) -> dict[str, Any]:
    return {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
        "current_leader_epoch": epoch,
    }


def fetch(raw: RawClient, topic: str, *wanted: dict[str, Any], **values: Any) -> Any:
    return raw.ask(FETCH, VERSION, **request(topic, *wanted, **values))


def request(topic: str, *wanted: dict[str, Any], **values: Any) -> dict[str, Any]:
    topics = [{"topic": topic, "partitions": wanted}] if wanted else ()
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": topics,
        "forgotten_topics_data": (),
        **values,
    }


def partitions(answer: Any) -> dict[int, Any]:
    return {p.partition_index: p for topic in answer.responses for p in topic.partitions}


def offsets(records: bytes) -> list[int]:
    return [found.header.base_offset for _, found in iter_batches(records)]


def test_the_first_batch_comes_whole_and_the_rest_as_far_as_it_fits(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    size = len(batch(b"x" * 1000))
    for _ in range(4):
        produce(raw, topic, batch(b"x" * 1000))

    small = partitions(fetch(raw, topic, want(0, 1, max_bytes=10)))[0]
    some = partitions(fetch(raw, topic, want(0, 1, max_bytes=2 * size + 10)))[0]

    assert offsets(small.records) == [1]
    assert offsets(some.records) == [1, 2]


def test_the_limit_of_the_request_is_shared_by_its_partitions(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    produce(raw, topic, batch(b"x" * 1000))
    part = {"index": 1, "records": batch(b"y" * 1000)}
    raw.ask(
        0,
        9,
        transactional_id=None,
        acks=1,
        timeout=30_000,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )

    found = partitions(fetch(raw, topic, want(0, 0), want(1, 0), max_bytes=100))

    assert offsets(found[0].records) == [0]
    assert found[1].records == b""
    assert found[1].high_watermark == 1


def test_a_fetch_that_waits_is_answered_by_an_append(
    served: ServedBroker, raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with RawClient(served.port) as other:
        other.send(FETCH, VERSION, request(topic, want(0, 0), max_wait=30_000))
        produce(raw, topic, batch(b"news"))

        answer = other.receive(FETCH, VERSION)

    assert offsets(partitions(answer)[0].records) == [0]


def test_a_fetch_waits_until_there_are_enough_bytes(
    served: ServedBroker, raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    size = len(batch(b"x" * 100))
    with RawClient(served.port) as other:
        other.send(FETCH, VERSION, request(topic, want(0, 0), max_wait=30_000, min_bytes=3 * size))
        for _ in range(3):
            produce(raw, topic, batch(b"x" * 100))

        answer = other.receive(FETCH, VERSION)

    assert offsets(partitions(answer)[0].records) == [0, 1, 2]


def test_a_fetch_that_waits_in_vain_is_answered_empty(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    started = time.monotonic()

    answer = fetch(raw, topic, want(0, 0), max_wait=100)

    assert partitions(answer)[0].records == b""
    assert time.monotonic() - started >= 0.1


def test_a_fetch_that_waits_for_a_topic_learns_of_its_end(
    served: ServedBroker, raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with RawClient(served.port) as other:
        other.send(FETCH, VERSION, request(topic, want(0, 0), max_wait=30_000))
        deleted = raw.ask(20, 5, topic_names=[topic], timeout=30_000)

        answer = other.receive(FETCH, VERSION)

    assert deleted.responses[0].error_code == ErrorCode.none
    assert partitions(answer)[0].error_code == ErrorCode.unknown_topic_or_partition


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(
    served: ServedBroker, raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    before = served.open_sockets()
    clients = [RawClient(served.port) for _ in range(20)]
    for client in clients:
        client.send(FETCH, VERSION, request(topic, want(0, 0), max_wait=60_000))
    for client in clients:
        client.socket.close()

    produce(raw, topic, batch(b"news"))

    wait_until(lambda: served.open_sockets() <= before)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (want(0, 5), ErrorCode.offset_out_of_range),
        (want(0, -1), ErrorCode.offset_out_of_range),
        (want(7, 0), ErrorCode.unknown_topic_or_partition),
        (want(0, 0, epoch=9), ErrorCode.unknown_leader_epoch),
    ],
)
def test_a_fetch_that_cannot_be_is_refused_at_once(
    raw: RawClient, make_topic: MakeTopic, wanted: dict[str, Any], code: ErrorCode
) -> None:
    topic = make_topic()
    produce(raw, topic, batch(b"x"))

    answer = fetch(raw, topic, wanted, max_wait=30_000)

    (found,) = partitions(answer).values()
    assert found.error_code == code
    assert not found.records


def test_a_session_tells_only_what_is_new(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    produce(raw, topic, batch(b"x"))

    first = fetch(raw, topic, want(0, 0), want(1, 0), want(2, 0), session_epoch=0)
    again = fetch(raw, topic, want(0, 1), session_id=first.session_id, session_epoch=1)
    produce(raw, topic, batch(b"y"))
    news = fetch(raw, topic, session_id=first.session_id, session_epoch=2)

    assert first.session_id > 0
    assert sorted(partitions(first)) == [0, 1, 2]
    assert again.session_id == first.session_id
    assert partitions(again) == {}
    assert offsets(partitions(news)[0].records) == [1]
    assert sorted(partitions(news)) == [0]


def test_a_partition_that_a_session_forgets_is_not_served(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    first = fetch(raw, topic, want(0, 0), session_epoch=0)
    produce(raw, topic, batch(b"y"))

    answer = fetch(
        raw,
        topic,
        session_id=first.session_id,
        session_epoch=1,
        forgotten_topics_data=[{"topic": topic, "partitions": [0]}],
    )

    assert answer.error_code == ErrorCode.none
    assert partitions(answer) == {}


def test_a_session_that_is_not_there_or_lost_a_request_is_refused(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    first = fetch(raw, topic, want(0, 0), session_epoch=0)

    skipped = fetch(raw, topic, session_id=first.session_id, session_epoch=2)
    unknown = fetch(raw, topic, session_id=first.session_id ^ 1, session_epoch=1)
    closed = fetch(raw, topic, want(0, 0), session_id=first.session_id, session_epoch=-1)
    gone = fetch(raw, topic, session_id=first.session_id, session_epoch=1)

    assert skipped.error_code == ErrorCode.invalid_fetch_session_epoch
    assert unknown.error_code == ErrorCode.fetch_session_id_not_found
    assert closed.error_code == ErrorCode.none
    assert closed.session_id == 0
    assert gone.error_code == ErrorCode.fetch_session_id_not_found


def test_a_large_answer_goes_to_a_slow_reader_whole(
    served: ServedBroker, raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    stored = []
    for number in range(40):
        data = batch(bytes([number]) * 500_000)
        stored.append(data)
        assert produce(raw, topic, data).error_code == ErrorCode.none
    with RawClient(served.port) as slow:
        slow.send(FETCH, VERSION, request(topic, want(0, 0, max_bytes=1 << 25), max_bytes=1 << 25))
        thread = threading.Timer(0.05, lambda: produce(raw, topic, batch(b"meanwhile")))
        thread.start()
        thread.join()

        answer = slow.receive(FETCH, VERSION)

    records = partitions(answer)[0].records
    found = list(iter_batches(records))
    assert len(found) == 40
    for number, (_, one) in enumerate(found):
        one.check_crc()
        assert one.header.base_offset == number
