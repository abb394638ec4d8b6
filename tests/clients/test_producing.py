"""What a leader takes and what it refuses, and with which code; asked in raw frames."""

import re
import struct
import time
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker.wire import PRODUCE
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from tests.clients.conftest import MakeTopic
from tests.clients.test_every_version import produce
from tests.support.serving import RawClient, frame_of

RECORD = Record(0, 1_000, b"k", b"v")
BATCH = build_batch([RECORD])


def changed(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.invalid_record),
        (BATCH[:10], ErrorCode.invalid_record),
        (changed(BATCH, 17, b"\x00\x00\x00\x00"), ErrorCode.corrupt_message),
        (changed(BATCH, 8, struct.pack(">i", 13)), ErrorCode.corrupt_message),
        (changed(BATCH, 16, b"\x03"), ErrorCode.corrupt_message),
        (changed(BATCH, 16, b"\x01"), ErrorCode.invalid_record),
        (BATCH + BATCH, ErrorCode.invalid_record),
        (build_batch([RECORD], base_offset=0, last_offset_delta=5), ErrorCode.invalid_record),
        (changed(BATCH, 0, struct.pack(">q", 7)), ErrorCode.invalid_record),
        (
            build_batch(
                [RECORD], producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
            ),
            ErrorCode.transactional_id_authorization_failed,
        ),
        (
            build_batch([RECORD._replace(timestamp_ms=int(time.time() * 1000) + 10**8)]),
            ErrorCode.invalid_timestamp,
        ),
        (build_batch([RECORD._replace(value=b"x" * 2_000_000)]), ErrorCode.message_too_large),
    ],
    ids=[
        "empty",
        "short",
        "crc",
        "length",
        "magic 3",
        "magic 1",
        "two batches",
        "count",
        "base offset",
        "transactional",
        "future",
        "large",
    ],
)
def test_a_batch_that_must_not_be_appended_is_refused_and_leaves_no_trace(
    raw: RawClient, make_topic: MakeTopic, records: bytes | None, code: ErrorCode
) -> None:
    topic = make_topic()

    refused = produce(raw, topic, records)

    assert refused.error_code == code
    assert refused.base_offset == -1
    assert produce(raw, topic, BATCH).base_offset == 0


def test_a_partition_without_records_is_refused(raw: RawClient, make_topic: MakeTopic) -> None:
    assert produce(raw, make_topic(), None).error_code == ErrorCode.invalid_record


def test_the_record_without_a_key_is_named_by_a_compacted_topic(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(cleanup_policy="compact")
    records = [RECORD, Record(1, 1_000, None, b"v")]

    refused = produce(raw, topic, build_batch(records))

    assert refused.error_code == ErrorCode.invalid_record
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert re.search("without (a )?key", refused.error_message)


def test_zstd_needs_a_client_that_knows_it(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    records = build_batch([RECORD], codec=Codec.ZSTD)

    old = produce(raw, topic, records, version=6)
    new = produce(raw, topic, records, version=7)

    assert old.error_code == ErrorCode.unsupported_compression_type
    assert new.error_code == ErrorCode.none


def test_acks_must_make_sense(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()

    assert produce(raw, topic, BATCH, acks=2).error_code == ErrorCode.invalid_required_acks
    assert produce(raw, topic, BATCH, acks=1).error_code == ErrorCode.none


def test_no_more_replicas_are_wanted_than_there_are(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(min_insync_replicas="2")

    assert produce(raw, topic, BATCH, acks=-1).error_code == ErrorCode.none


def test_a_producer_without_acks_gets_no_answer_and_loses_its_connection_by_a_failure(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    def body(records: bytes) -> dict[str, Any]:
        part = {"index": 0, "records": records}
        return {
            "transactional_id": None,
            "acks": 0,
            "timeout": 30_000,
            "topic_data": [{"name": topic, "partition_data": [part]}],
        }

    raw.socket.sendall(frame_of(PRODUCE, 9, body(BATCH), correlation_id=1))
    assert produce(raw, topic, BATCH).base_offset == 1
    raw.socket.sendall(frame_of(PRODUCE, 9, body(BATCH[:-1]), correlation_id=1))

    assert raw.receive_frame() is None


def test_a_repeated_batch_gets_its_first_answer_and_a_gap_is_refused(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    def numbered(sequence: int, epoch: int = 3) -> bytes:
        return build_batch([RECORD], producer_id=77, producer_epoch=epoch, base_sequence=sequence)

    answers = [produce(raw, topic, numbered(number)) for number in (0, 1, 0, 1, 3)]
    fenced = produce(raw, topic, numbered(2, epoch=2))

    assert [a.base_offset for a in answers] == [0, 1, 0, 1, -1]
    assert answers[-1].error_code == ErrorCode.out_of_order_sequence_number
    assert fenced.error_code == ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
def test_a_topic_with_its_own_codec_stores_every_batch_with_it(
    raw: RawClient, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(compression_type=codec)
    assert produce(raw, topic, build_batch([RECORD], codec=Codec.LZ4)).error_code == 0

    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    answer = raw.ask(
        1,
        12,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[{"topic": topic, "partitions": [wanted]}],
        forgotten_topics_data=(),
    )

    stored = answer.responses[0].partitions[0].records
    expected = {"gzip": Codec.GZIP, "zstd": Codec.ZSTD, "uncompressed": Codec.NONE}[codec]
    assert stored[22] & 7 == expected.value
