"""DescribeLogDirs: what lies where, and how much room is left."""

import os
from collections.abc import Awaitable
from typing import Any

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request
from siltstone.log.log_directory import LogDirectory


def handle(broker: Broker, request: Request) -> Awaitable[Values]:
    """Describe every log directory; those that are offline with an error."""
    asked = request.body.topics
    wanted: set[tuple[str, int]] | None = None
    if asked is not None:
        wanted = {(topic.topic, number) for topic in asked for number in topic.partitions}
    return broker.blocking(lambda: {"results": _describe_all(broker, wanted)})


def _describe_all(broker: Broker, wanted: set[tuple[str, int]] | None) -> list[Values]:
    live = [d for d in broker.manager.directories if not d.is_offline]
    offline: list[Values] = [
        {"error_code": ErrorCode.kafka_storage_error, "log_dir": str(path.absolute()), "topics": ()}
        for path in broker.manager.offline
    ]
    return [_describe(directory, wanted) for directory in live] + offline


def _describe(directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> Values:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, log in sorted(directory.logs.copy().items()):
        if wanted is None or (partition.topic, partition.partition) in wanted:
            topics.setdefault(partition.topic, []).append(
                {
                    "partition_index": partition.partition,
                    "partition_size": log.size_bytes,
                    "offset_lag": 0,
                    "is_future_key": False,
                }
            )
    room = os.statvfs(directory.path)
    return {
        "log_dir": str(directory.path.absolute()),
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        "total_bytes": room.f_blocks * room.f_frsize,
        "usable_bytes": room.f_bavail * room.f_frsize,
    }
