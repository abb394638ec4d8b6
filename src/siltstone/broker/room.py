"""Room for what a coordinator appends: it does so on the event loop, which must not wait for disks.

A log whose active segment is full is rolled beforehand, by a thread.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from siltstone.broker.internal_topics import is_internal
from siltstone.errors import SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from siltstone.broker.broker import Broker

T = TypeVar("T")

_MARKER_BYTES: Final = 128
_SPARE_SHARE: Final = 8  # of a segment, which a coordinator does not fill within a second


def with_room(
    broker: "Broker", partitions: Iterable[TopicPartition], write: Callable[[], T]
) -> T | Awaitable[T]:
    """Write markers, at once if all of their logs have room for one."""
    full: list[PartitionLog] = []
    for partition in partitions:
        try:
            log = broker.partitions.get(partition.topic, partition.partition).log
        except SiltstoneError:
            continue  # Whoever writes the marker learns why.
        if log.is_busy or log.is_full_for(_MARKER_BYTES):
            full.append(log)
    return _make_room(broker, full, write) if full else write()


async def _make_room(broker: "Broker", full: list[PartitionLog], write: Callable[[], T]) -> T:
    await broker.blocking(lambda: _roll_ahead(full, _MARKER_BYTES))
    return write()


def make_room_for_states(manager: LogManager) -> None:
    """Roll the logs of coordinators that are nearly full; for a timer, on a thread."""
    for partition, log in manager.logs.items():
        if is_internal(partition.topic):
            spare_bytes = log.config.segment_bytes // _SPARE_SHARE
            if log.is_full_for(spare_bytes):
                _roll_ahead([log], spare_bytes)


def _roll_ahead(logs: Iterable[PartitionLog], size_bytes: int) -> None:
    for log in logs:
        if log.is_full_for(size_bytes):
            log.roll_ahead(size_bytes)
        else:
            log.wait_until_free()
