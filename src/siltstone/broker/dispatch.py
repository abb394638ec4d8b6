"""From a frame to the handler of its API, and from the handler's answer to a frame."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.command_frames import COMMAND
from siltstone.broker.connection import Connection, Frame, Waiting
from siltstone.broker.error_codes import code_of, describe
from siltstone.broker.handlers import (
    api_versions,
    cluster,
    commands,
    configs,
    consumer_groups,
    create_topics,
    fetch,
    find_coordinator,
    group_members,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    records,
    topics,
    transactions,
)
from siltstone.broker.messages import Values
from siltstone.broker.metrics import RequestMetrics
from siltstone.broker.wire import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    BadFrameError,
    Payload,
    Request,
    decode,
    encode,
)

logger = logging.getLogger(__name__)

Answer: TypeAlias = Values | Payload | None
Handler: TypeAlias = Callable[[Broker, Request], "Answer | Awaitable[Answer]"]

HANDLERS: Final[Mapping[int, Handler]] = {
    PRODUCE: produce.handle,
    FETCH: fetch.handle,
    LIST_OFFSETS: list_offsets.handle,
    METADATA: metadata.handle,
    OFFSET_COMMIT: offsets.handle_commit,
    OFFSET_FETCH: offsets.handle_fetch,
    FIND_COORDINATOR: find_coordinator.handle,
    JOIN_GROUP: group_members.handle_join,
    HEARTBEAT: group_members.handle_heartbeat,
    LEAVE_GROUP: group_members.handle_leave,
    SYNC_GROUP: group_members.handle_sync,
    DESCRIBE_GROUPS: groups.handle_describe,
    LIST_GROUPS: groups.handle_list,
    API_VERSIONS: api_versions.handle,
    CREATE_TOPICS: create_topics.handle,
    DELETE_TOPICS: topics.handle_delete,
    DELETE_RECORDS: records.handle_delete,
    INIT_PRODUCER_ID: producers.handle_init,
    OFFSET_FOR_LEADER_EPOCH: list_offsets.handle_leader_epoch,
    TXN_OFFSET_COMMIT: offsets.handle_txn_commit,
    ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions,
    ADD_OFFSETS_TO_TXN: transactions.handle_add_offsets,
    END_TXN: transactions.handle_end,
    WRITE_TXN_MARKERS: transactions.handle_write_markers,
    DESCRIBE_CONFIGS: configs.handle_describe,
    ALTER_CONFIGS: configs.handle_alter,
    DESCRIBE_LOG_DIRS: log_dirs.handle,
    CREATE_PARTITIONS: topics.handle_create_partitions,
    DELETE_GROUPS: groups.handle_delete,
    INCREMENTAL_ALTER_CONFIGS: configs.handle_incremental_alter,
    OFFSET_DELETE: offsets.handle_delete,
    DESCRIBE_CLUSTER: cluster.handle,
    DESCRIBE_PRODUCERS: producers.handle_describe,
    DESCRIBE_TRANSACTIONS: transactions.handle_describe,
    LIST_TRANSACTIONS: transactions.handle_list,
    CONSUMER_GROUP_HEARTBEAT: consumer_groups.handle_heartbeat,
    CONSUMER_GROUP_DESCRIBE: consumer_groups.handle_describe,
    DESCRIBE_TOPIC_PARTITIONS: metadata.handle_topic_partitions,
    COMMAND: commands.handle,
}


# Who waits for others, for as long as they like, and may be forgotten with the client.
_FORGOTTEN: Final = frozenset((FETCH, JOIN_GROUP, SYNC_GROUP, COMMAND))


class Dispatcher:
    """Serves the frames of all connections."""

    def __init__(self, broker: Broker, metrics: RequestMetrics) -> None:
        self._broker = broker
        self._metrics = metrics
        self._running: set[asyncio.Future[Answer]] = set()

    def serve(self, frame: memoryview, connection: Connection) -> Frame | Waiting | None:
        """Answer at once where nothing has to be waited for; else return what to wait for."""
        request = decode(frame, connection.local_host, connection.peer_host)
        started = self._metrics.begin()
        try:
            answer = HANDLERS[request.api_key](self._broker, request)
            if answer is None or isinstance(answer, (Payload, Mapping)):
                self._metrics.end(request.api_key, started)
                return _encode(request, answer)
        except BadFrameError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge: one request must not end the others
            self._metrics.end(request.api_key, started)
            return _encode_failure(request, error)
        if request.api_key not in _FORGOTTEN:
            answer = self._carry_out(answer)
        return self._wait(request, answer, started)

    def _carry_out(self, waiting: Awaitable[Answer]) -> Awaitable[Answer]:
        """Go on with a request that has begun to change something, also without its client."""
        task = asyncio.ensure_future(waiting)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return asyncio.shield(task)

    async def _wait(
        self, request: Request, waiting: Awaitable[Answer], started: float
    ) -> Frame | None:
        try:
            return _encode(request, await waiting)
        except BadFrameError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge, as above
            return _encode_failure(request, error)
        finally:
            self._metrics.end(request.api_key, started)


def _encode(request: Request, answer: Answer) -> Frame | None:
    return None if answer is None else encode(request, answer)


def _encode_failure(request: Request, error: Exception) -> Frame:
    """Answer a request that failed as a whole; what failed in part says so itself."""
    code = code_of(error, request)
    if code is ErrorCode.unknown_server_error:
        logger.error("%s: %s", request, error)
    try:
        return encode(request, {"error_code": code, "error_message": describe(error)})
    except KeyError:
        # Its answer has no place for an error of the whole.
        raise BadFrameError(f"{request} failed: {error}") from error
