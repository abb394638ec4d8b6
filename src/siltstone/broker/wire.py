"""Frames and messages: what is served, in which versions, and how it is read and written."""

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from siltstone.broker.command_frames import COMMAND, decode_question
from siltstone.broker.frame_check import check_frame, skipper
from siltstone.broker.messages import Values, build
from siltstone.broker.produce_requests import read_produce
from siltstone.errors import RequestError
from siltstone.log.segment import FileSlice

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
TXN_OFFSET_COMMIT: Final = 28
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
INCREMENTAL_ALTER_CONFIGS: Final = 44
OFFSET_DELETE: Final = 47
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
DESCRIBE_TOPIC_PARTITIONS: Final = 75


class Versions(NamedTuple):
    """The lowest and the highest version of an API that is served."""

    first: int
    last: int


SERVED: Final[Mapping[int, Versions]] = MappingProxyType(
    {
        PRODUCE: Versions(3, 13),
        FETCH: Versions(4, 18),
        LIST_OFFSETS: Versions(1, 11),
        METADATA: Versions(0, 13),
        OFFSET_COMMIT: Versions(2, 10),
        OFFSET_FETCH: Versions(1, 10),
        FIND_COORDINATOR: Versions(0, 6),
        JOIN_GROUP: Versions(0, 9),
        HEARTBEAT: Versions(0, 4),
        LEAVE_GROUP: Versions(0, 5),
        SYNC_GROUP: Versions(0, 5),
        DESCRIBE_GROUPS: Versions(0, 6),
        LIST_GROUPS: Versions(0, 5),
        API_VERSIONS: Versions(0, 4),
        CREATE_TOPICS: Versions(2, 7),
        DELETE_TOPICS: Versions(1, 6),
        DELETE_RECORDS: Versions(0, 2),
        INIT_PRODUCER_ID: Versions(0, 5),
        OFFSET_FOR_LEADER_EPOCH: Versions(2, 4),
        TXN_OFFSET_COMMIT: Versions(0, 5),
        ADD_PARTITIONS_TO_TXN: Versions(0, 5),
        ADD_OFFSETS_TO_TXN: Versions(0, 4),
        END_TXN: Versions(0, 5),
        WRITE_TXN_MARKERS: Versions(1, 2),
        DESCRIBE_CONFIGS: Versions(1, 4),
        ALTER_CONFIGS: Versions(0, 2),
        DESCRIBE_LOG_DIRS: Versions(1, 4),
        CREATE_PARTITIONS: Versions(0, 3),
        DELETE_GROUPS: Versions(0, 2),
        INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
        OFFSET_DELETE: Versions(0, 0),
        DESCRIBE_CLUSTER: Versions(0, 2),
        DESCRIBE_PRODUCERS: Versions(0, 0),
        DESCRIBE_TRANSACTIONS: Versions(0, 0),
        LIST_TRANSACTIONS: Versions(0, 2),
        CONSUMER_GROUP_HEARTBEAT: Versions(0, 1),
        CONSUMER_GROUP_DESCRIBE: Versions(0, 1),
        DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0),
    }
)

_HEAD: Final = struct.Struct(">hhi")  # API key, version, correlation id
MIN_FRAME_BYTES: Final = _HEAD.size
_ANSWER_HEAD: Final = struct.Struct(">ii")  # size, correlation id


class BadFrameError(RequestError):
    """A frame that cannot be answered: the connection has to go."""


class Request(NamedTuple):
    """One request, decoded."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any  # a message of kio, of that version, or one like it
    local_host: str  # the address of ours that the client reached
    client_host: str = ""  # the address of the client

    def __str__(self) -> str:
        return f"API {self.api_key} v{self.version} of client {self.client_id}"


@dataclass(frozen=True, slots=True)
class Payload:
    """The body of an answer that was written by hand; files in it go from disk to socket."""

    chunks: list[bytes | FileSlice]
    size_bytes: int


class _Codec(NamedTuple):
    request_type: Any
    read_header: Any
    read_body: Any
    response_type: Any
    write_body: Any
    has_tagged_header: bool


@cache
def _codec(api_key: int, version: int) -> _Codec:
    request_type = load_request_schema(api_key, version)
    response_type = load_response_schema(api_key, version)
    skipper(request_type)
    return _Codec(
        request_type,
        entity_reader(request_type.__header_schema__),
        entity_reader(request_type),
        response_type,
        entity_writer(response_type),
        response_type.__header_schema__.__version__ >= 1,
    )


def preload(all_versions: bool) -> None:
    """Load the schemas that clients of today use, or all: the first request need not wait."""
    for api_key, versions in SERVED.items():
        for version in range(versions.first if all_versions else versions.last, versions.last + 1):
            _codec(api_key, version)


def decode(frame: memoryview, local_host: str, client_host: str = "") -> Request:
    """Decode a frame without its size; raise BadFrameError if it makes no sense."""
    if len(frame) < MIN_FRAME_BYTES:
        raise BadFrameError(f"a frame of {len(frame)} bytes holds no request")
    api_key, version, correlation_id = _HEAD.unpack_from(frame)
    if api_key == COMMAND:
        question = decode_question(frame)
        return Request(api_key, version, correlation_id, None, question, local_host)
    served = SERVED.get(api_key)
    if served is None:
        raise BadFrameError(f"API {api_key} is not served")
    if not served.first <= version <= served.last:
        if api_key == API_VERSIONS:
            # Its answer says what is served, so it must come in a version that all can read.
            return Request(api_key, version, correlation_id, None, None, local_host)
        raise BadFrameError(
            f"API {api_key} is served in versions {served.first} to {served.last}, not {version}"
        )
    try:
        if api_key == PRODUCE:
            client_id, produced = read_produce(frame, version)
            return Request(
                api_key, version, correlation_id, client_id, produced, local_host, client_host
            )
        codec = _codec(api_key, version)
        header, size = codec.read_header(frame, 0)
        check_frame(codec.request_type, frame, size)
        # What follows is ignored, as Kafka does: librdkafka sends fields that are gone.
        body, _ = codec.read_body(frame, size)
    except Exception as error:
        raise BadFrameError(f"API {api_key} v{version} cannot be decoded: {error}") from error
    return Request(
        api_key, version, correlation_id, header.client_id, body, local_host, client_host
    )


def encode(request: Request, answer: Values | Payload) -> list[bytes | FileSlice]:
    """Return the frame of an answer, in chunks to be sent one after the other."""
    version = request.version
    if isinstance(answer, Payload):
        first, *rest = answer.chunks
        head = _head(request, answer.size_bytes)
        # Together, where it can be: an answer of one chunk holds no file.
        return [head, first, *rest] if isinstance(first, FileSlice) else [head + first, *rest]
    if request.api_key == API_VERSIONS and request.body is None:
        version = 0
    codec = _codec(request.api_key, version)
    body = io.BytesIO()
    codec.write_body(body, build(codec.response_type, answer))
    data = body.getvalue()
    return [_head(request._replace(version=version), len(data)) + data]


def _head(request: Request, body_bytes: int) -> bytes:
    # A client that asks for versions does not know yet which header the answer has: the old one.
    is_tagged = (
        request.api_key not in (API_VERSIONS, COMMAND)
        and _codec(request.api_key, request.version).has_tagged_header
    )
    head = _ANSWER_HEAD.pack(body_bytes + 4 + is_tagged, request.correlation_id)
    return head + b"\x00" if is_tagged else head
