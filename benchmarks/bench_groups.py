"""Groups: rebalances, commits, and how fast offsets are read back after a restart.

Question: how long does a rebalance of 100 members of the classic protocol take, from the first join
to the last sync, and how many commits of 10 partitions does one connection get through in a second,
next to a real Kafka with the same frames? And how many offsets a second are read back from
`__consumer_offsets`, in batches of 1 and of 50, against 500,000 a second?

Workload: raw frames from one process, a connection for each member. Kafka has a heap of 1 GiB, both
have one partition of `__consumer_offsets`; the first generation is not measured, as it waits for
members. Nobody calls fsync on either side.
Reading back is a million offsets of 2,000 groups in one partition, as `silt serve` does it.

Command: python benchmarks/bench_groups.py [--quick]
"""

import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_broker import AnyBroker, cpu_seconds, create_topic, note
from benchmarks.harness import (
    Case,
    Options,
    Report,
    Side,
    Work,
    WrongAnswerError,
    parse_options,
    work_directory,
)
from benchmarks.kafka_rival import find_kafka
from siltstone.broker import wire
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
from tests.support.serving import RawClient, ServedBroker

_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    # So that all members are in the first generation already.
    "group.initial.rebalance.delay.ms": "1000",
}
_MEMBERS: Final = 100
_PARTITIONS: Final = 10
_JOIN_VERSION: Final = 9
_PER_GROUP: Final = 500
_LIMIT_US: Final = 2.0  # half a million in a second


class Bench:
    """One broker under groups."""

    def __init__(self, broker: AnyBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._number = 0

    @property
    def _port(self) -> int:
        return int(self._broker.bootstrap.rsplit(":", 1)[1])

    def _new_group(self, raw: RawClient) -> str:
        self._number += 1
        name = f"bench-{self._number}"
        for _ in range(100):
            found = raw.ask(wire.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[name])
            if found.coordinators[0].error_code == 0:
                return name
            time.sleep(0.1)
        raise WrongAnswerError(f"nobody coordinates {name}")

    def rebalance(self, rounds: int) -> Work:
        """Bring all members into one generation after the other."""
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(self._port)) for _ in range(_MEMBERS)]
            group = self._new_group(clients[0])
            members = [self._join(group, c, "").member_id for c in clients]
            self._generation(group, clients, members)
            cpu, started = cpu_seconds(self._broker.pid), time.perf_counter()
            for _ in range(rounds):
                self._generation(group, clients, members)
            seconds = time.perf_counter() - started
            cpu = cpu_seconds(self._broker.pid) - cpu
        return Work(seconds, 0, rounds * _MEMBERS, rounds, details={"cpu_seconds": cpu})

    def _join(self, group: str, client: RawClient, member_id: str) -> Any:
        self._send_join(group, client, member_id)
        return client.receive(wire.JOIN_GROUP, _JOIN_VERSION)

    def _send_join(self, group: str, client: RawClient, member_id: str) -> None:
        client.send(
            wire.JOIN_GROUP,
            _JOIN_VERSION,
            {
                "group_id": group,
                "session_timeout": 60_000,
                "rebalance_timeout": 60_000,
                "member_id": member_id,
                "protocol_type": "consumer",
                # Another word each time: a member that says the same again changes nothing.
                "protocols": [{"name": "range", "metadata": time.perf_counter_ns().to_bytes(8)}],
            },
        )

    def _generation(self, group: str, clients: list[RawClient], members: list[str]) -> None:
        for client, member_id in zip(clients, members, strict=True):
            self._send_join(group, client, member_id)
        joined = [client.receive(wire.JOIN_GROUP, _JOIN_VERSION) for client in clients]
        answers = {(a.error_code, a.generation_id) for a in joined}
        if len(answers) != 1:
            raise WrongAnswerError(f"members of {group} are in different generations: {answers}")
        for client, member_id, answer in zip(clients, members, joined, strict=True):
            shares = [{"member_id": m.member_id, "assignment": b"x" * 50} for m in answer.members]
            client.send(
                wire.SYNC_GROUP,
                5,
                {
                    "group_id": group,
                    "generation_id": answer.generation_id,
                    "member_id": member_id,
                    "assignments": shares,
                },
            )
        for client in clients:
            answer = client.receive(wire.SYNC_GROUP, 5)
            if answer.assignment != b"x" * 50:
                raise WrongAnswerError(f"a member of {group} got {answer}")

    def commit(self, count: int) -> Work:
        """Commit 10 offsets at a time, one request after the other, and look at the last."""
        with RawClient(self._port) as client:
            group = self._new_group(client)
            for number in range(count + 1):
                if number == 1:
                    cpu, started = cpu_seconds(self._broker.pid), time.perf_counter()
                parts = [
                    {
                        "partition_index": index,
                        "committed_offset": number,
                        "committed_metadata": "",
                    }
                    for index in range(_PARTITIONS)
                ]
                client.ask(
                    wire.OFFSET_COMMIT,
                    8,
                    group_id=group,
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    topics=[{"name": self._topic, "partitions": parts}],
                )
            seconds = time.perf_counter() - started
            cpu = cpu_seconds(self._broker.pid) - cpu
            asked = [{"group_id": group, "topics": None}]
            (answer,) = client.ask(wire.OFFSET_FETCH, 8, groups=asked).groups
        found = [p.committed_offset for p in answer.topics[0].partitions]
        if found != [count] * _PARTITIONS:
            raise WrongAnswerError(f"offsets {found} after {count} commits")
        return Work(seconds, 0, count * _PARTITIONS, count, details={"cpu_seconds": cpu})


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
    count = options.scaled(1_000_000)
    with LogManager([directory / "logs"]) as manager:
        for per_batch in (1, 50):
            log = make_log(manager, f"offsets-{per_batch}", count, per_batch)
            report.measure(
                Case(
                    name=f"offsets read back, {per_batch} in a batch",
                    ours=Side("silt", partial(load, log)),
                    limits={"us_per_offset": _LIMIT_US},
                    size_bytes=log.size_bytes,
                    record_count=count,
                )
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
        ours.start()
        kafka.start()
        shape = {"members": _MEMBERS, "rounds": rounds, "commits": commits}
        report = Report("groups", __doc__ or "", options, directory, shape, rival.versions)
        sides = [Bench(b, create_topic(b, "groups", _PARTITIONS)) for b in (ours, kafka)]
        for name, operation, count, records in (
            ("rebalance", "rebalance", rounds, rounds * _MEMBERS),
            ("commit", "commit", commits, commits * _PARTITIONS),
        ):
            result = report.measure(
                Case(
                    name=f"{operation}s",
                    ours=Side("silt", partial(getattr(sides[0], name), count)),
                    reference=Side("kafka", partial(getattr(sides[1], name), count)),
                    goal_ratio=1.0,
                    size_bytes=0,
                    record_count=records,
                    operation_name=operation,
                ),
                3,
            )
            note(report, f"{operation}s", result)
        measure_loading(report, options, directory)
        report.write()


if __name__ == "__main__":
    main()
