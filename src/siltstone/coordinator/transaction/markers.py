"""Markers: the last batch of a transaction in each of its partitions."""

from collections.abc import Callable
from typing import Final, NamedTuple

from siltstone.clock import Clock
from siltstone.coordinator.state_topic import CONSUMER_OFFSETS, OwnedLogs
from siltstone.coordinator.transaction.state import Producer
from siltstone.ids import TopicPartition
from siltstone.log.origin import AppendOrigin
from siltstone.records.builder import build_marker
from siltstone.records.control import ControlType

# Called with a partition of the offsets topic, a producer id, and whether it commits.
OffsetsEnd = Callable[[int, int, bool], None]


class Ending(NamedTuple):
    """How a transaction ends, and who says so."""

    producer: Producer
    commits: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerWriter:
    """Appends markers, and tells the groups of the offsets that count from then on, or never."""

    def __init__(self, logs: OwnedLogs, clock: Clock, on_offsets_end: OffsetsEnd) -> None:
        self._logs: Final = logs
        self._clock: Final = clock
        self._on_offsets_end: Final = on_offsets_end

    def write(self, partition: TopicPartition, ending: Ending) -> None:
        """Append a marker; it may be read when this returns. Once more does no harm."""
        owned = self._logs.get_partition(partition.topic, partition.partition)
        batch = build_marker(
            ControlType.COMMIT if ending.commits else ControlType.ABORT,
            offset=0,
            timestamp_ms=self._clock.now_ms(),
            producer_id=ending.producer.producer_id,
            producer_epoch=ending.producer.epoch,
            coordinator_epoch=ending.coordinator_epoch,
        )
        info = owned.log.append(
            batch,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=ending.transaction_version,
        )
        owned.appended(info.size_bytes)
        if partition.topic == CONSUMER_OFFSETS:
            self._on_offsets_end(partition.partition, ending.producer.producer_id, ending.commits)
