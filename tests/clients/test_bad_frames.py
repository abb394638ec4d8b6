"""Frames that make no sense: the connection is closed or an error answered, the broker stays well.

They are made from real ones: bytes changed, cut off, put in, lengths that lie.
"""

import random
import struct
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from siltstone.broker.wire import SERVED
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.clients.test_every_version import (
    EVERY_VERSION,
    IN_TRANSACTION,
    begun,
    produce,
    topic_id_of,
    values_for,
    values_in_transaction,
)
from tests.support.feeding import feed, send_alone
from tests.support.log_checks import fetch_all
from tests.support.serving import RawClient, ServedBroker, frame_of
from tests.support.spoiling import claim_much, spoil, spoil_head
from tests.support.waiting import wait_until

FRAME_COUNT = 100_000
TOPIC = "spoilt"
TRANSACTED_TOPIC = "transacted"
CHANGING_TOPICS = {wire.DELETE_TOPICS: "deleted", wire.CREATE_PARTITIONS: "grown"}
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
BATCH = build_batch([Record(0, 1_000, b"k", b"v")])


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
    before = served.resident_bytes()
    clients = [RawClient(served.port) for _ in range(50)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", 100_000_000) + b"\x00" * 1000)
    with RawClient(served.port) as other:
        other.ask(18, 0)

    grown = served.resident_bytes() - before

    for client in clients:
        client.socket.close()
    assert grown < 50_000_000


def test_a_broker_that_is_sent_nonsense_stays_well(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "logs", SETTINGS) as served:
        served.start()
        with RawClient(served.port) as raw:
            sound = sound_frames(raw)
            files_before = len(strays(served))
            chance = random.Random(20_260_101)
            heads = [spoil_head(chance.choice(sound), chance) for _ in range(2_000)]
            frames = [spoilt for frame in sound for spoilt in claim_much(frame)]
            frames += [
                spoil(chance.choice(sound), chance)
                for _ in range(FRAME_COUNT - len(heads) - len(frames))
            ]
            chance.shuffle(frames)

            for frame in heads:
                send_alone(served.port, frame)
            feed(served.port, frames[: FRAME_COUNT // 5])
            memory_before = served.resident_bytes()
            feed(served.port, frames[FRAME_COUNT // 5 :])

            assert len(heads) + len(frames) == FRAME_COUNT
            assert produce(raw, TOPIC, BATCH).error_code == 0
            assert len(raw.ask(wire.API_VERSIONS, 0).api_keys) == len(SERVED)
            delete_others(raw)
        assert "a bug" not in served.log()
        assert served.resident_bytes() - memory_before < 20_000_000
        wait_for_files(served, files_before)
        assert served.stop() == 0
    log = LogReader([tmp_path / "logs"]).get_log(TopicPartition(TOPIC, 0))
    batches = list(fetch_all(log, 1 << 20))
    assert batches
    for batch in batches:
        batch.check_crc()


def sound_frames(raw: RawClient) -> list[bytes]:
    """Make topics, and return a request of every version that succeeds."""
    for topic in (TOPIC, TRANSACTED_TOPIC, *CHANGING_TOPICS.values()):
        created = {"name": topic, "num_partitions": 1, "replication_factor": 1}
        created |= {"assignments": (), "configs": ()}
        raw.ask(wire.CREATE_TOPICS, 5, topics=[created], timeout=1000, validate_only=False)
        assert produce(raw, topic, BATCH).error_code == 0
    raw.ask(wire.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[TOPIC])
    producer = begun(raw, TRANSACTED_TOPIC)
    frames = []
    for api_key, version in EVERY_VERSION:
        topic = CHANGING_TOPICS.get(api_key, TOPIC)
        if api_key in IN_TRANSACTION:
            values = values_in_transaction(api_key, TRANSACTED_TOPIC, producer)
        else:
            values = values_for(api_key, topic, topic_id_of(raw, topic))
        if api_key == wire.FETCH:
            values["max_bytes"] = 200  # The log grows, the answers need not.
        if api_key == wire.CREATE_PARTITIONS:
            values["validate_only"] = True  # Or a number gone wrong makes thousands of files.
        frames.append(frame_of(api_key, version, values))
    return frames


def delete_others(raw: RawClient) -> None:
    """Delete what was created by chance."""
    listed = raw.ask(wire.METADATA, 4, topics=None, allow_auto_topic_creation=False)
    kept = (TOPIC, TRANSACTED_TOPIC)
    names = [t.name for t in listed.topics if t.name not in kept and not t.is_internal]
    raw.ask(wire.DELETE_TOPICS, 5, topic_names=names, timeout=10_000)


def strays(served: ServedBroker) -> list[str]:
    """Return what the broker has open besides the files of its logs: what must not add up."""
    found = served.open_files()
    return [path for path in found if "/logs/" not in path or path.endswith("(deleted)")]


def wait_for_files(served: ServedBroker, count: int) -> None:
    """Wait until the broker has no more than so many open: deleted ones go after a moment."""
    wait_until(lambda: len(strays(served)) <= count)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (1, -1)])
def test_a_marker_of_nobody_is_refused(raw: RawClient, producer_id: int, epoch: int) -> None:
    topics = [{"name": "t", "partition_indexes": [0]}]
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "coordinator_epoch": 0,
        "transaction_result": True,
        "topics": topics,
    }

    answer = raw.ask(wire.WRITE_TXN_MARKERS, 1, markers=[marker])

    (part,) = answer.markers[0].topics[0].partitions
    assert part.error_code == ErrorCode.invalid_request
