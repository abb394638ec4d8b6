"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, or was at a time."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import code_of
from siltstone.broker.leadership import check_leader_epoch, find_epoch_end
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request
from siltstone.log.partition_log import PartitionLog

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_READ_COMMITTED: Final = 1
_NOTHING: Final[Values] = {"timestamp": -1, "offset": -1, "leader_epoch": -1}


def handle(broker: Broker, request: Request) -> Values | Awaitable[Values]:
    """Answer at once for the ends of a log; a time has to be looked up on disk."""
    is_by_time = any(
        part.timestamp >= 0 or part.timestamp == MAX_TIMESTAMP
        for topic in request.body.topics
        for part in topic.partitions
    )
    work = _collect(broker, request)
    return broker.blocking(work) if is_by_time else work()


def _collect(broker: Broker, request: Request) -> Callable[[], Values]:
    """Find the logs now, on the event loop; look into them when called."""
    is_committed = getattr(request.body, "isolation_level", 0) == _READ_COMMITTED
    topics: list[tuple[str, list[tuple[Any, PartitionLog | Exception]]]] = []
    for topic in request.body.topics:
        logs: list[tuple[Any, PartitionLog | Exception]] = []
        for part in topic.partitions:
            try:
                log = broker.partitions.get(topic.name, part.partition_index).log
                check_leader_epoch(log, getattr(part, "current_leader_epoch", -1))
                logs.append((part, log))
            except Exception as error:  # noqa: BLE001 - one partition must not stop the others
                logs.append((part, error))
        topics.append((topic.name, logs))
    return lambda: {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        **_find(log, part.timestamp, is_committed),
                    }
                    for part, log in logs
                ],
            }
            for name, logs in topics
        ]
    }


def _find(log: PartitionLog | Exception, timestamp: int, is_committed: bool) -> Values:
    try:
        if isinstance(log, Exception):
            raise log
        return _find_offset(log, timestamp, is_committed)
    except Exception as error:  # noqa: BLE001 - one partition must not stop the others
        return {"error_code": code_of(error, "list offsets"), **_NOTHING}


def _find_offset(log: PartitionLog, timestamp: int, is_committed: bool) -> Values:
    end_offset = log.last_stable_offset if is_committed else log.high_watermark
    if timestamp == LATEST:
        return {"timestamp": -1, "offset": end_offset, "leader_epoch": log.latest_epoch}
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _at(log, -1, log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    found = (
        log.find_max_timestamp()
        if timestamp == MAX_TIMESTAMP
        else log.find_offset_by_timestamp(timestamp)
    )
    if found is None or found.offset >= end_offset:
        return _NOTHING
    return _at(log, found.timestamp_ms, found.offset)


def _at(log: PartitionLog, timestamp_ms: int, offset: int) -> Values:
    epoch = log.leader_epochs.find_epoch_at(offset)
    return {
        "timestamp": timestamp_ms,
        "offset": offset,
        "leader_epoch": -1 if epoch is None else epoch,
    }


def handle_leader_epoch(broker: Broker, request: Request) -> Values:
    """Say where epochs ended, for those who want to know where their history left ours."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_find_end(broker, topic.topic, part) for part in topic.partitions],
            }
            for topic in request.body.topics
        ]
    }


def _find_end(broker: Broker, topic: str, part: Any) -> Values:
    try:
        log = broker.partitions.get(topic, part.partition).log
        check_leader_epoch(log, part.current_leader_epoch)
        end = find_epoch_end(log, part.leader_epoch)
    except Exception as error:  # noqa: BLE001 - one partition must not stop the others
        code = code_of(error, f"epoch end of {topic}-{part.partition}")
        return {"error_code": code, "partition": part.partition}
    return {"partition": part.partition, "leader_epoch": end.epoch, "end_offset": end.end_offset}
