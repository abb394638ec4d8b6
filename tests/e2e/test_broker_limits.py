"""What clients cannot do to a broker: hold more connections, memory or time than they may."""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker.wire import API_VERSIONS, FETCH, PRODUCE
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.e2e.test_broker_life import append, create
from tests.support.serving import RawClient, ServedBroker, frame_of
from tests.support.waiting import wait_until

SETTINGS = {
    "max.connections": "4",
    "socket.request.max.bytes": "3000000",
    "queued.max.request.bytes": "5000000",
}
IDLE_SECONDS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("limits") / "logs", SETTINGS) as made:
        yield made.start()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker that soon closes silent connections."""
    settings = SETTINGS | {"connections.max.idle.ms": str(IDLE_SECONDS * 1000)}
    with ServedBroker(tmp_path_factory.mktemp("impatient") / "logs", settings) as made:
        yield made.start()


def is_served(client: RawClient) -> bool:
    client.send(API_VERSIONS, 0, {})
    return client.receive_frame() is not None


def test_a_connection_too_many_is_closed_and_there_is_room_when_one_leaves(
    broker: ServedBroker,
) -> None:
    clients = [RawClient(broker.port) for _ in range(4)]
    assert [is_served(client) for client in clients] == [True] * 4
    with RawClient(broker.port) as fifth:
        assert fifth.receive_frame() is None

    def has_room() -> bool:
        with RawClient(broker.port) as next_one, contextlib.suppress(ConnectionError):
            return is_served(next_one)
        return False

    clients.pop().socket.close()
    wait_until(has_room)
    for client in clients:
        client.socket.close()


def test_a_silent_connection_is_closed_and_one_that_waits_is_not(impatient: ServedBroker) -> None:
    port = impatient.port
    with RawClient(port) as client:
        create(client, "waiting")
    with RawClient(port) as silent, RawClient(port) as waiting:
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        fetch = {
            "replica_id": -1,
            "max_wait": 2000 * IDLE_SECONDS,
            "min_bytes": 1,
            "max_bytes": 1000,
            "topics": [{"topic": "waiting", "partitions": [wanted]}],
            "forgotten_topics_data": (),
        }
        waiting.send(FETCH, 12, fetch)

        assert silent.receive_frame() is None
        assert waiting.receive(FETCH, 12).error_code == ErrorCode.none


def test_requests_that_are_sent_all_at_once_are_answered_in_order(broker: ServedBroker) -> None:
    count = 200
    with RawClient(broker.port) as client:
        create(client, "pipelined")
        frames = []
        for number in range(count):
            records = build_batch([Record(0, 1_000, b"k", b"x" * 20_000)])
            part = {"index": 0, "records": records}
            body = {
                "transactional_id": None,
                "acks": -1,
                "timeout": 1000,
                "topic_data": [{"name": "pipelined", "partition_data": [part]}],
            }
            frames.append(frame_of(PRODUCE, 9, body, correlation_id=number))
        client.socket.sendall(b"".join(frames))

        answers = [client.receive_frame() for _ in range(count)]

    numbers = [int.from_bytes((answer or b"")[:4], "big") for answer in answers]
    assert numbers == list(range(count))


def test_large_requests_that_do_not_fit_into_memory_together_wait_for_each_other(
    broker: ServedBroker,
) -> None:
    with RawClient(broker.port) as client:
        create(client, "large", max_message_bytes="3000000")
    records = build_batch([Record(0, 1_000, b"k", b"x" * 2_500_000)])
    part = {"index": 0, "records": records}
    body = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": "large", "partition_data": [part]}],
    }
    frame = frame_of(PRODUCE, 9, body)
    clients = [RawClient(broker.port) for _ in range(3)]
    for client in clients:
        client.socket.sendall(frame[:-10])  # All but the end, of everybody.

    for client in clients:
        client.socket.sendall(frame[-10:])
    answered = sum(client.receive_frame() is not None for client in clients)
    for client in clients:
        client.socket.close()

    assert answered == 3
    with RawClient(broker.port) as client:
        assert append(client, "large", b"v") == (0, 3)


UNTAKEN_BYTES = 8 * 2_000_000


def fetch_untaken(topic: str) -> dict[str, Any]:
    """Return the request for more than a socket holds."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": (),
    }


def fill_untaken(broker: ServedBroker, topic: str) -> None:
    with RawClient(broker.port) as client:
        create(client, topic, max_message_bytes="3000000")
        for _ in range(8):
            append(client, topic, b"x" * (UNTAKEN_BYTES // 8))


def sockets(broker: ServedBroker) -> set[str]:
    return {handle for handle in broker.open_files() if handle.startswith("socket:")}


def test_a_client_that_never_takes_its_answers_is_closed(impatient: ServedBroker) -> None:
    fill_untaken(impatient, "untaken")
    before = sockets(impatient)
    with RawClient(impatient.port) as deaf:
        deaf.send(FETCH, 12, fetch_untaken("untaken"))
        deaf.send(FETCH, 12, fetch_untaken("untaken"))
        wait_until(lambda: bool(sockets(impatient) - before))
        taken = sockets(impatient) - before

        # Without a single byte read here: it is the broker that lets go.
        wait_until(lambda: not taken & sockets(impatient))

        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := deaf.socket.recv(1 << 20):
                received += len(chunk)
    assert received < UNTAKEN_BYTES
    with RawClient(impatient.port) as other:
        assert is_served(other)


def test_a_client_that_takes_its_answers_slowly_gets_them_all(impatient: ServedBroker) -> None:
    fill_untaken(impatient, "slow")
    with RawClient(impatient.port) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        started = time.monotonic()
        slow.send(FETCH, 12, fetch_untaken("slow"))
        received = 0
        while received < UNTAKEN_BYTES:
            chunk = slow.socket.recv(1 << 20)
            assert chunk, "closed before the end"
            received += len(chunk)
            # All in all longer than a client may be silent.
            due = started + 1.5 * IDLE_SECONDS * received / UNTAKEN_BYTES
            time.sleep(max(0.0, due - time.monotonic()))
    assert received >= UNTAKEN_BYTES


def test_a_broker_takes_all_file_handles_and_waits_for_more_when_there_are_none(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ServedBroker(tmp_path / "logs") as broker:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
        try:
            broker.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        with RawClient(broker.port) as first:
            assert is_served(first)
            few = len(broker.open_files()) + 4
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (few, few))
            clients = [RawClient(broker.port) for _ in range(20)]
            wait_until(lambda: "cannot accept a connection" in broker.log())

            assert [is_served(first) for _ in range(100)] == [True] * 100
            for client in clients:
                client.socket.close()
            with RawClient(broker.port) as last:
                assert is_served(last)
        # Not once for every turn of the event loop.
        assert broker.log().count("cannot accept a connection") < 100
