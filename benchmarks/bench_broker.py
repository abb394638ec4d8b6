"""Broker: what Kafka's clients get from ours, and what it costs the machine.

Question: how fast do Kafka's own ProducerPerformance and ConsumerPerformance go against `silt
serve`, next to the same against a real Kafka with the same arguments; how much CPU time and memory
does the broker's process take for it; how long does a single record take; where is the ceiling with
a client that costs next to nothing; and what does a pass beside it take from the producers?

Workload: 400 MB of 1 kB records and 300 MB of 100 B records into a new topic, 1 or 12 partitions,
none or lz4, acks all or 1; one topic of each size read from its start to its end; single records at
2,000 a second without lingering, the first 3 seconds apart; frames made beforehand, over one
connection. Both brokers run all the time, have produced some before the first row, and are used in
turns. Kafka has the flags of its own start script (G1, a heap of 1 GiB from the start) and its own
numbers of threads. Seconds are the tool's own. Nobody calls fsync on either side. The passes beside
the producer are dry runs over 3 M keyed records, one after the other, as long as it produces; Spark
shares the cores with it.

Command: python benchmarks/bench_broker.py [--quick] [--rows TEXT[;TEXT...]]
"""

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.broker_load import BrokerLoad, Produce
from benchmarks.harness import Case, CaseResult, Report, Side, Work, parse_options, work_directory
from benchmarks.kafka_rival import find_kafka
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.kafka.broker import KafkaBroker
from tests.kafka.tools import KafkaTools
from tests.support.serving import ServedBroker

_ROUNDS: Final = 3
_SINGLE_RATE: Final = 2000
# What the tests' Kafka has less of, to start quickly.
_KAFKA_DEFAULTS: Final = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.cleaner.dedupe.buffer.size": "134217728",
}
# Of ours to Kafka's: no more than this.
_COST_GOALS: Final = {"cpu_seconds": 0.5, "resident_bytes": 0.25}
_LATENCY_GOALS: Final = {**_COST_GOALS, "p99_ms": 1.0}
_COSTS: Final = ("cpu_seconds", "resident_bytes", "p50_ms", "p99_ms")


class Rows:
    """Measures one row after the other, and writes each down as soon as it is there."""

    def __init__(self, report: Report, ours: BrokerLoad, kafka: BrokerLoad) -> None:
        self._report = report
        self._ours = ours
        self._kafka = kafka

    def produce(self, workload: Produce, goal_ratio: float) -> None:
        """Measure Kafka's producer."""
        self._compare(
            workload.name,
            lambda load: load.produce(workload),
            goal_ratio=goal_ratio,
            size_bytes=workload.size_bytes,
            record_count=workload.record_count,
            touch_bytes=workload.size_bytes,
        )

    def consume(self, workload: Produce, goal_ratio: float) -> None:
        """Measure readers of one topic: a light one, and Kafka's."""
        name = f"fetch {workload.record_bytes} B, 1 partition"
        rows = {
            f"{name}, light client": (BrokerLoad.consume, 1.0),
            f"{name}, ConsumerPerformance": (BrokerLoad.consume_by_tool, goal_ratio),
        }
        if not any(self._report.options.wants_row(row) for row in rows):
            return
        topics = {load: load.fill(workload) for load in (self._ours, self._kafka)}
        for row, (read, goal) in rows.items():
            self._compare(
                row,
                lambda load, read=read: read(load, topics[load], workload),  # type: ignore[misc]
                goal_ratio=goal,
                size_bytes=workload.size_bytes,
                record_count=workload.record_count,
            )

    def single_records(self, record_count: int) -> None:
        """Measure how long a record takes when they come one by one."""
        single = Produce(record_count, 100)
        warm_up_count = record_count * 3 // 10
        self._compare(
            "single records, 2,000 a second",
            lambda load: load.produce_singly(single, _SINGLE_RATE, warm_up_count),
            goal_ratio=None,
            cost_goals=_LATENCY_GOALS,
            size_bytes=single.size_bytes,
            record_count=single.record_count,
        )

    def frames(self, name: str, count: int, records: int, record_bytes: int) -> None:
        """Measure with frames that were made beforehand."""
        batch = build_batch([Record(n, 1, None, bytes(record_bytes)) for n in range(records)])
        self._compare(
            f"frames: {name}",
            lambda load: load.produce_frames(count, records, record_bytes),
            goal_ratio=1.0,
            size_bytes=count * len(batch),
            record_count=count * records,
            touch_bytes=count * len(batch),
            operation_name="request",
        )

    def beside_passes(self, workload: Produce, batch_count: int) -> None:
        """Measure what is left for a producer while one pass after the other runs."""
        name = f"{workload.name}, beside passes"
        if not self._report.options.wants_row(name):
            return
        topic = self._ours.fill_keyed(batch_count)
        self._report.measure(
            Case(
                name=name,
                ours=Side(
                    "silt, beside passes",
                    partial(self._ours.produce_beside_passes, workload, topic),
                    _nothing,
                ),
                reference=Side("silt", partial(self._ours.produce, workload), _nothing),
                goal_ratio=0.8,
                size_bytes=workload.size_bytes,
                record_count=workload.record_count,
                touch_bytes=workload.size_bytes,
            ),
            _ROUNDS,
        )

    def _compare(
        self,
        name: str,
        run: Callable[[BrokerLoad], Work],
        *,
        cost_goals: Mapping[str, float] = _COST_GOALS,
        **numbers: Any,
    ) -> None:
        """Measure a row on both brokers, if it is wanted, and what it costs them."""
        case = Case(
            name=name,
            ours=Side("silt", partial(run, self._ours), _nothing),
            reference=Side("kafka", partial(run, self._kafka), _nothing),
            **numbers,
        )
        note_costs(self._report, self._report.maybe_measure(case, _ROUNDS), cost_goals)


def _nothing() -> None:
    """Stand for a warm-up: both brokers were warmed before the first row."""


def note_costs(report: Report, result: CaseResult | None, goals: Mapping[str, float]) -> None:
    """Write down what a row cost both sides, if it was measured."""
    if result is None:
        return
    costs = compare_costs(result, goals)
    report.notes.setdefault("costs", {})[result.name] = costs
    for cost, values in costs.items():
        print(f"  {cost}: {format_cost(values)}", flush=True)
    report.write()


def compare_costs(result: CaseResult, goals: Mapping[str, float]) -> dict[str, Any]:
    """Hold the medians of what both sides took against each other, ours over Kafka's."""
    found: dict[str, Any] = {}
    for name in _COSTS:
        sides: dict[str, list[float]] = {"silt": [], "kafka": []}
        for run in result.runs:
            if run.round and name in run.details:
                sides[run.side].append(run.details[name])
        if not all(sides.values()):
            continue
        ours, theirs = (statistics.median(values) for values in sides.values())
        found[name] = {"silt": ours, "kafka": theirs, "ratio": ours / theirs if theirs else None}
        if name in goals:
            is_reached = ours <= goals[name] * theirs
            found[name] |= {"goal_ratio": goals[name], "is_reached": is_reached}
    return found


def format_cost(values: Mapping[str, Any]) -> str:
    """Say in one line how a cost compares."""
    text = f"silt {values['silt']:.4g}, kafka {values['kafka']:.4g}"
    if values["ratio"] is not None:
        text += f", ratio {values['ratio']:.2f}"
    if "goal_ratio" in values:
        reached = "reached" if values["is_reached"] else "MISSED"
        text += f"; goal <= {values['goal_ratio']:g}x {reached}"
    return text


def main() -> None:
    options = parse_options(__doc__)
    rival = find_kafka()
    if rival is None:
        return
    tools = KafkaTools(rival.harness)
    large = Produce(options.scaled(400_000), 1000)
    small = Produce(options.scaled(3_000_000), 100)
    rows_of: list[tuple[Produce, float]] = [
        (replace(workload, **change), goal)
        for workload, goal in ((large, 1.0), (small, 1.2))
        for change in ({}, {"partitions": 12}, {"codec": "lz4"}, {"acks": "1"})
    ]
    with (
        work_directory(options) as directory,
        ServedBroker(directory / "silt") as ours,
        KafkaBroker(
            rival.harness,
            directory / "kafka",
            heap="1g",
            full_speed=True,
            properties=_KAFKA_DEFAULTS,
        ) as kafka,
    ):
        ours.start()
        kafka.start()
        loads = [BrokerLoad(ours, tools), BrokerLoad(kafka, tools)]
        report = Report(
            "broker",
            __doc__ or "",
            options,
            directory,
            {"workloads": [workload.name for workload, _ in rows_of]},
            rival.versions,
        )
        for load in loads:
            load.produce(replace(large, record_count=options.scaled(200_000)))
            load.produce(replace(small, record_count=options.scaled(1_000_000), partitions=12))
        rows = Rows(report, *loads)
        for workload, goal in rows_of:
            rows.produce(workload, goal)
        rows.consume(large, 1.2)
        rows.consume(small, 1.0)
        rows.single_records(options.scaled(20_000))
        rows.frames("128 KiB batches", options.scaled(3_000), 128, 1000)
        rows.frames("one record", options.scaled(20_000), 1, 100)
        rows.beside_passes(large, options.scaled(3_000))


if __name__ == "__main__":
    main()
