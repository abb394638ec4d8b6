"""The answers written by hand are those that kio writes, in every version."""

import io
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from siltstone.broker.answers import (
    Fetched,
    FetchedTopic,
    Produced,
    ProducedTopic,
    encode_fetched,
    encode_produced,
)
from siltstone.broker.group_answers import (
    CommittedTopic,
    HeartbeatReply,
    encode_committed,
    encode_heartbeat,
)
from siltstone.broker.messages import build
from siltstone.broker.wire import (
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    OFFSET_COMMIT,
    PRODUCE,
    SERVED,
    Payload,
)
from siltstone.log.filesystem import FileSystem
from siltstone.log.segment import FileSlice
from siltstone.log.transaction_index import AbortedTxn

ID = uuid.UUID(int=7)


def versions_of(api_key: int) -> range:
    return range(SERVED[api_key].first, SERVED[api_key].last + 1)


def written_by_kio(api_key: int, version: int, values: dict[str, Any]) -> bytes:
    response_type = load_response_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(response_type)(buffer, build(response_type, values))
    return buffer.getvalue()


def joined(payload: Payload) -> bytes:
    data = b"".join(c.read() if isinstance(c, FileSlice) else c for c in payload.chunks)
    assert len(data) == payload.size_bytes
    return data


@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_a_produce_answer_is_the_one_that_kio_writes(version: int) -> None:
    topics = [
        ProducedTopic(
            "größe",
            ID,
            [
                Produced(0, 0, 12, -1, 3),
                Produced(300, 87, error_message="no key", record_errors=[(4, "no"), (5, None)]),
            ],
        ),
        ProducedTopic("empty", None, []),
    ]

    data = joined(encode_produced(topics, version))

    values = {
        "responses": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_responses": [
                    {
                        "index": one.partition,
                        "error_code": ErrorCode(one.error_code),
                        "base_offset": one.base_offset,
                        "log_append_time": one.log_append_time_ms,
                        "log_start_offset": one.log_start_offset,
                        "record_errors": [
                            {"batch_index": index, "batch_index_error_message": message}
                            for index, message in one.record_errors
                        ],
                        "error_message": one.error_message,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in topics
        ]
    }
    assert data == written_by_kio(PRODUCE, version, values)


@pytest.mark.parametrize("version", versions_of(FETCH))
def test_a_fetch_answer_is_the_one_that_kio_writes(version: int, tmp_path: Path) -> None:
    path = tmp_path / "00.log"
    path.write_bytes(bytes(range(200)) * 2)
    records = FileSlice(FileSystem().open(path), 10, 300)
    aborted = [AbortedTxn(5, 1, 9, 10), AbortedTxn(6, 2, 8, 10)]
    topics = [
        FetchedTopic(
            "a" * 130,
            ID,
            [
                Fetched(0, 0, 9, 8, 1, None, records),
                Fetched(1, 0, 9, 8, 1, aborted, records),
                Fetched(2, 1, aborted=()),
                Fetched(3, 0, 9, 8, 1, diverging=(2, 77) if version >= 12 else None),
            ],
        )
    ]

    data = joined(encode_fetched(topics, version, error_code=0, session_id=99))

    values = {
        "session_id": 99,
        "responses": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": one.partition,
                        "error_code": ErrorCode(one.error_code),
                        "high_watermark": one.high_watermark,
                        "last_stable_offset": one.last_stable_offset,
                        "log_start_offset": one.log_start_offset,
                        "aborted_transactions": None
                        if one.aborted is None
                        else [
                            {"producer_id": txn.producer_id, "first_offset": txn.first_offset}
                            for txn in one.aborted
                        ],
                        "diverging_epoch": {"epoch": -1, "end_offset": -1}
                        if one.diverging is None
                        else {"epoch": one.diverging[0], "end_offset": one.diverging[1]},
                        "records": b"" if one.records is None else one.records.read(),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in topics
        ],
    }
    assert data == written_by_kio(FETCH, version, values)


@pytest.mark.parametrize("version", versions_of(OFFSET_COMMIT))
def test_commits_are_answered_as_kio_would(version: int) -> None:
    topics = [
        CommittedTopic("t" * 200, ID, [(0, 0), (7, 25)]),
        CommittedTopic("u", None, [(number, 0) for number in range(200)]),
    ]

    data = joined(encode_committed(topics, version))

    values = {
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition_index": index, "error_code": ErrorCode(code)}
                    for index, code in topic.codes
                ],
            }
            for topic in topics
        ]
    }
    assert data == written_by_kio(OFFSET_COMMIT, version, values)


@pytest.mark.parametrize("version", versions_of(CONSUMER_GROUP_HEARTBEAT))
@pytest.mark.parametrize(
    "reply",
    [
        HeartbeatReply(25, "group g has no member m"),
        HeartbeatReply(member_id="m", epoch=7, interval_ms=5000),
        HeartbeatReply(member_id="m", epoch=7, interval_ms=5000, assignment={}),
        HeartbeatReply(member_id="m", epoch=7, interval_ms=5000, assignment={ID: range(200)}),
    ],
)
def test_heartbeats_are_answered_as_kio_would(version: int, reply: HeartbeatReply) -> None:
    data = joined(encode_heartbeat(reply))

    values = {
        "error_code": ErrorCode(reply.error_code),
        "error_message": reply.error_message,
        "member_id": reply.member_id,
        "member_epoch": reply.epoch,
        "heartbeat_interval": reply.interval_ms,
        "assignment": None
        if reply.assignment is None
        else {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": tuple(numbers)}
                for topic_id, numbers in reply.assignment.items()
            ]
        },
    }
    assert data == written_by_kio(CONSUMER_GROUP_HEARTBEAT, version, values)
