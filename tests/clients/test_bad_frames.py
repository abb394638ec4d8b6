"""Frames that make no sense: the connection is closed or an error answered, the broker stays well.

They are made from real ones: bytes changed, cut off, put in, lengths that lie.
"""

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from siltstone.broker import wire
from siltstone.broker.wire import SERVED
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.clients.conftest import MakeTopic
from tests.clients.test_every_version import EVERY_VERSION, produce, topic_id_of, values_for
from tests.support.serving import RawClient, ServedBroker, frame_of

FRAMES_PER_VERSION = 60
CHANGING = (wire.DELETE_TOPICS, wire.CREATE_TOPICS, wire.CREATE_PARTITIONS)


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 7) + b"\x00" * 7,
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhi", 8, wire.PRODUCE, 0, 1),
        struct.pack(">ihhi", 8, wire.METADATA, 9, 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["negative", "empty", "short", "huge", "api", "version", "no header", "http"],
)
def test_a_frame_that_holds_no_request_closes_the_connection(raw: RawClient, head: bytes) -> None:
    raw.socket.sendall(head)

    assert raw.receive_frame() is None


def test_a_client_that_announces_much_and_sends_nothing_costs_nothing(
    served: ServedBroker,
) -> None:
    before = resident_bytes(served)
    clients = [RawClient(served.port) for _ in range(50)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", 100_000_000) + b"\x00" * 1000)
    with RawClient(served.port) as other:
        other.ask(18, 0)

    grown = resident_bytes(served) - before

    for client in clients:
        client.socket.close()
    assert grown < 50_000_000


def resident_bytes(served: ServedBroker) -> int:
    with open(f"/proc/{served.pid}/statm") as statm:  # noqa: PTH123 - no file to speak of
        return int(statm.read().split()[1]) * 4096


def test_a_broker_that_is_sent_nonsense_stays_well(
    served: ServedBroker, raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    batch = build_batch([Record(0, 1_000, b"k", b"v")])
    produce(raw, topic, batch)
    topic_id = topic_id_of(raw, topic)
    chance = random.Random(20_260_101)
    sockets_before = served.open_sockets()
    count = 0
    for api_key, version in EVERY_VERSION:
        if api_key in CHANGING:
            continue
        frame = frame_of(api_key, version, values_for(api_key, topic, topic_id))
        for spoilt in spoil(frame, chance, FRAMES_PER_VERSION):
            send(served, spoilt)
            count += 1

    assert count > 4_000
    assert produce(raw, topic, batch).error_code == 0
    assert len(raw.ask(18, 0).api_keys) == len(SERVED)
    assert "a bug" not in served.log()
    assert served.open_sockets() <= sockets_before + 1


def spoil(frame: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        data = bytearray(frame)
        match chance.randrange(4):
            case 0:
                for _ in range(chance.randrange(1, 4)):
                    # Not the length and the API: those are tried one by one.
                    data[chance.randrange(8, len(data))] = chance.randrange(256)
            case 1:
                del data[chance.randrange(12, len(data)) :]
                struct.pack_into(">i", data, 0, len(data) - 4)
            case 2:
                at = chance.randrange(12, len(data))
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
                struct.pack_into(">i", data, 0, len(data) - 4)
            case 3:
                at = chance.randrange(12, len(data))
                width = chance.choice((1, 2, 4))
                data[at : at + width] = chance.choice((b"\xff", b"\x7f", b"\x80")) * width
                struct.pack_into(">i", data, 0, len(data) - 4)
        yield bytes(data)


def send(served: ServedBroker, frame: bytes) -> None:
    """Send a frame, and wait until the broker has made something of it."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as client:
        client.sendall(frame)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
