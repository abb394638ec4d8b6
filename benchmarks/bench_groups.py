"""Groups: rebalances, commits, and how fast offsets are read back after a restart.

Question: how long does a rebalance of 100 members take, of the classic protocol from the first join
to the last sync, of the consumer protocol from a change of one member to the heartbeat after which
all have what they are to have; and how many commits of 10 partitions does one connection get
through in a second, next to a real Kafka with the same frames? And how many offsets a second are
read back from `__consumer_offsets`, in batches of 1 and of 50, against 500,000 a second?

Workload: raw frames from one process, a connection for each member. Kafka has a heap of 1 GiB, both
have one partition of `__consumer_offsets`; the first generation, or epoch, is not measured, as it
waits for members. In the consumer protocol one of 100 members stops to read the topic of 200
partitions, and begins again in the next round; both share out at once
(`group.consumer.assignment.interval.ms=0`), and members send their heartbeats one after the other.
Nobody calls fsync on either side.
Reading back is a million offsets of 2,000 groups in one partition, as `silt serve` does it; where
each is a batch of its own, 200,000 of 400 groups, as writing so many takes a minute.

Command: python benchmarks/bench_groups.py [--quick]
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_broker import note_costs
from benchmarks.broker_load import AnyBroker, create_topic
from benchmarks.group_members import MEMBER_COUNT, Bench
from benchmarks.harness import (
    Case,
    Options,
    Report,
    Side,
    Work,
    parse_options,
    work_directory,
)
from benchmarks.kafka_rival import find_kafka
from siltstone.coordinator.group.loading import load_partition
from siltstone.coordinator.group.offsets import OffsetStore
from siltstone.coordinator.group.records import (
    OffsetKey,
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import ensure_harness
from tests.support.serving import ServedBroker

_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
_COMMITTED_PARTITIONS: Final = 10
_SHARED_PARTITIONS: Final = 2 * MEMBER_COUNT
_ROUNDS: Final = 3
_PER_GROUP: Final = 500
_LIMIT_US: Final = 2.0  # half a million in a second


def make_log(manager: LogManager, topic: str, count: int, per_batch: int) -> PartitionLog:
    """Fill a log with offsets."""
    manager.create_topic(topic, 1, {"cleanup.policy": "compact"})
    log = manager.get_log(TopicPartition(topic, 0))
    value = encode_offset_value(OffsetValue(123_456, 3, "", 1_700_000_000_000))
    for first in range(0, count, per_batch):
        numbers = range(first, min(first + per_batch, count))
        keys = [OffsetKey(f"g-{n // _PER_GROUP}", "orders", n % _PER_GROUP) for n in numbers]
        log.append(
            build_batch([Record(i, 1, encode_offset_key(k), value) for i, k in enumerate(keys)])
        )
    return log


def load(log: PartitionLog) -> Work:
    store = OffsetStore()
    started = time.perf_counter()
    others = sum(1 for _ in load_partition(log, store))
    seconds = time.perf_counter() - started
    details = {"us_per_offset": seconds / len(store) * 1e6}
    return Work(seconds, log.size_bytes, len(store) - others, details=details)


def measure_loading(report: Report, options: Options, directory: Path) -> None:
    with LogManager([directory / "logs"]) as manager:
        for per_batch, full_count in ((50, 1_000_000), (1, 200_000)):
            count = options.scaled(full_count)
            name = f"offsets read back, {per_batch} in a batch"
            if not options.wants_row(name):
                continue
            log = make_log(manager, f"offsets-{per_batch}", count, per_batch)
            report.measure(
                Case(
                    name=name,
                    ours=Side("silt", partial(load, log)),
                    limits={"us_per_offset": _LIMIT_US},
                    size_bytes=log.size_bytes,
                    record_count=count,
                ),
                _ROUNDS,
            )


def make_bench(broker: AnyBroker) -> Bench:
    return Bench(
        broker,
        committed_topic=create_topic(broker, "committed", _COMMITTED_PARTITIONS),
        committed_partitions=_COMMITTED_PARTITIONS,
        shared_topic=create_topic(broker, "shared", _SHARED_PARTITIONS),
        shared_partitions=_SHARED_PARTITIONS,
    )


def main() -> None:
    options = parse_options(__doc__)
    rival = find_kafka()
    if rival is None:
        return
    rounds, commits = options.scaled(10), options.scaled(2000)
    harness = ensure_harness()
    with (
        work_directory(options) as directory,
        ServedBroker(directory / "silt", _SETTINGS) as ours,
        KafkaBroker(
            harness, directory / "kafka", properties=_SETTINGS, heap="1g", full_speed=True
        ) as kafka,
    ):
        shape = {"members": MEMBER_COUNT, "rounds": rounds, "commits": commits}
        report = Report("groups", __doc__ or "", options, directory, shape, rival.versions)
        ours.start()
        kafka.start()
        sides = make_bench(ours), make_bench(kafka)
        for name, operation, count, records in (
            ("classic", "rebalance", rounds, rounds * MEMBER_COUNT),
            ("consumer", "rebalance", rounds, rounds * MEMBER_COUNT),
            ("commit", "commit", commits, commits * _COMMITTED_PARTITIONS),
        ):
            row = f"{operation}s" if name == operation else f"{operation}s, {name} protocol"
            result = report.maybe_measure(
                Case(
                    name=row,
                    ours=Side("silt", partial(getattr(sides[0], name), count)),
                    reference=Side("kafka", partial(getattr(sides[1], name), count)),
                    goal_ratio=1.0,
                    size_bytes=0,
                    record_count=records,
                    operation_name=operation,
                ),
                _ROUNDS,
            )
            note_costs(report, result, {})
        ours.stop()
        kafka.stop()
        measure_loading(report, options, directory)
        report.write()


if __name__ == "__main__":
    main()
