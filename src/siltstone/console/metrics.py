"""The figures of a broker for Prometheus: Kafka's stems where it has them, ours per partition."""

from collections.abc import Callable, Iterator
from typing import Final

from kio.schema.index import api_key_map
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from siltstone.broker.command_frames import COMMAND
from siltstone.broker.metrics import BUCKETS
from siltstone.broker.pass_figures import LastPass
from siltstone.broker.process import Running
from siltstone.ids import TopicPartition

_PARTITION: Final = ("topic", "partition")
_OURS: Final = {COMMAND: "silt_command"}


class BrokerCollector(Collector):
    """Reads the broker's own numbers whenever somebody asks; keeps none."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def collect(self) -> Iterator[Metric]:
        """Yield all figures as they are now."""
        yield from self._requests()
        yield from self._server()
        yield from self._logs()
        yield from self._cleaner()
        yield from self._passes()
        yield from self._uncleanable()

    def _requests(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "kafka_network_requestmetrics_totaltime_seconds",
            "From a request to its answer, waits included.",
            labels=["request"],
        )
        for api_key, figures in sorted(self._running.requests.apis.items()):
            total = 0
            buckets = []
            for bound, count in zip((*BUCKETS, "+Inf"), figures.buckets, strict=True):
                total += count
                buckets.append((str(bound), total))
            latency.add_metric(
                [_OURS.get(api_key) or api_key_map[api_key]], buckets, figures.seconds
            )
        yield latency

    def _server(self) -> Iterator[Metric]:
        running = self._running
        yield GaugeMetricFamily(
            "kafka_server_socket_server_connection_count",
            "Open connections.",
            len(running.server.connections),
        )
        yield GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait.",
            len(running.broker.purgatory),
        )
        yield GaugeMetricFamily(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "Fetch sessions.",
            len(running.broker.sessions),
        )
        yield GaugeMetricFamily(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories whose disk refused.",
            len(running.broker.manager.offline),
        )

    def _logs(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("kafka_log_log_size", "Bytes of a log.", labels=_PARTITION)
        end = GaugeMetricFamily(
            "kafka_log_log_logendoffset", "The next offset to be appended.", labels=_PARTITION
        )
        start = GaugeMetricFamily(
            "kafka_log_log_logstartoffset", "The lowest offset that is served.", labels=_PARTITION
        )
        segments = GaugeMetricFamily(
            "kafka_log_log_numlogsegments", "Segments of a log.", labels=_PARTITION
        )
        for partition, log in sorted(self._running.broker.manager.logs.items()):
            labels = [partition.topic, str(partition.partition)]
            size.add_metric(labels, log.size_bytes)
            segments.add_metric(labels, len(log.segments))
            end.add_metric(labels, log.log_end_offset)
            start.add_metric(labels, log.log_start_offset)
        yield from (size, end, start, segments)

    def _cleaner(self) -> Iterator[Metric]:
        cleaner = self._running.cleaner
        now_ms = self._running.broker.clock.now_ms()
        dirty = GaugeMetricFamily(
            "silt_compaction_dirty_bytes", "Bytes that a pass may clean.", labels=_PARTITION
        )
        ratio = GaugeMetricFamily(
            "silt_compaction_dirty_ratio", "Their share of the log.", labels=_PARTITION
        )
        first = GaugeMetricFamily(
            "silt_compaction_first_dirty_offset", "Where they begin.", labels=_PARTITION
        )
        delay = GaugeMetricFamily(
            "silt_compaction_delay_seconds",
            "How long a pass is overdue by max.compaction.lag.ms.",
            labels=_PARTITION,
        )
        assessments = sorted(cleaner.assessments.items())
        for partition, assessment in assessments:
            labels = [partition.topic, str(partition.partition)]
            dirty.add_metric(labels, assessment.dirty_bytes)
            ratio.add_metric(labels, assessment.dirty_ratio)
            first.add_metric(labels, assessment.first_dirty_offset)
            delay.add_metric(labels, assessment.compaction_delay_ms / 1000)
        yield from (dirty, ratio, first, delay)
        yield GaugeMetricFamily(
            "kafka_log_logcleanermanager_max_dirty_percent",
            "The highest dirty ratio.",
            max((100 * a.dirty_ratio for _, a in assessments), default=0),
        )
        yield GaugeMetricFamily(
            "kafka_log_logcleanermanager_time_since_last_run_ms",
            "How long ago the cleaner last looked.",
            now_ms - cleaner.last_run_ms if cleaner.last_run_ms else 0,
        )
        yield GaugeMetricFamily(
            "kafka_log_logcleaner_max_compaction_delay_secs",
            "The longest that a pass is overdue.",
            max((a.compaction_delay_ms / 1000 for _, a in assessments), default=0),
        )
        yield GaugeMetricFamily(
            "kafka_log_logcleaner_deadthreadcount",
            "Cleaners that have died; above 0 is an alarm.",
            0 if cleaner.is_alive else 1,
        )

    def _passes(self) -> Iterator[Metric]:
        passes = CounterMetricFamily(
            "silt_compaction_passes", "Passes by result.", labels=(*_PARTITION, "result")
        )
        removed = CounterMetricFamily(
            "silt_compaction_removed_bytes", "Bytes that passes have removed.", labels=_PARTITION
        )
        records = CounterMetricFamily(
            "silt_compaction_removed_records",
            "Records that passes have removed, by reason.",
            labels=(*_PARTITION, "reason"),
        )
        figures = sorted(self._running.cleaner.figures.copy().items())
        for partition, figure in figures:
            labels = [partition.topic, str(partition.partition)]
            passes.add_metric([*labels, "committed"], figure.pass_count)
            passes.add_metric([*labels, "failed"], figure.failure_count)
            removed.add_metric(labels, figure.removed_bytes)
            for reason, count in sorted(figure.removed_records.items()):
                records.add_metric([*labels, reason], count)
        yield from (passes, removed, records)
        lasts = [(p, f.last) for p, f in figures if f.last is not None]
        yield GaugeMetricFamily(
            "kafka_log_logcleaner_max_clean_time_secs",
            "The longest last pass over a log.",
            max((last.seconds for _, last in lasts), default=0),
        )
        read = sum(last.bytes_read for _, last in lasts)
        yield GaugeMetricFamily(
            "kafka_log_logcleaner_cleaner_recopy_percent",
            "Bytes that the last passes wrote, of those that they read.",
            100 * sum(last.bytes_written for _, last in lasts) / read if read else 0,
        )
        yield GaugeMetricFamily(
            "kafka_log_logcleaner_max_buffer_utilization_percent",
            "Always 0: the keys of a pass have no buffer of a fixed size that could be full.",
            0,
        )
        yield from self._last_passes(lasts)

    def _last_passes(self, lasts: list[tuple[TopicPartition, LastPass]]) -> Iterator[Metric]:
        """Tell what is in the cleaned part of each log, as of its last pass."""
        now_ms = self._running.broker.clock.now_ms()
        rows: tuple[tuple[str, str, Callable[[LastPass], float | None]], ...] = (
            ("silt_live_records", "Records in the clean part.", lambda x: x.live_records),
            ("silt_live_keys", "Keys with a value in the clean part.", lambda x: x.live_keys),
            ("silt_tombstones", "Tombstones in the clean part.", lambda x: x.tombstones),
            (
                "silt_tombstone_oldest_age_seconds",
                "How long the oldest tombstone or marker waits to go.",
                lambda x: _seconds_since(x.oldest_tombstone_ms, now_ms),
            ),
            (
                "silt_compaction_last_pass_age_seconds",
                "How long ago the last pass was committed.",
                lambda x: _seconds_since(x.committed_ms, now_ms),
            ),
            ("silt_compaction_last_pass_seconds", "How long it took.", lambda x: x.seconds),
        )
        for name, text, value_of in rows:
            gauge = GaugeMetricFamily(name, text, labels=_PARTITION)
            for partition, last in lasts:
                value = value_of(last)
                if value is not None:
                    gauge.add_metric([partition.topic, str(partition.partition)], value)
            yield gauge

    def _uncleanable(self) -> Iterator[Metric]:
        cleaner = self._running.cleaner
        counts = GaugeMetricFamily(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "Logs that could not be cleaned.",
            labels=["log_directory"],
        )
        sizes = GaugeMetricFamily(
            "kafka_log_logcleanermanager_uncleanable_bytes",
            "Their bytes that a pass would clean.",
            labels=["log_directory"],
        )
        reasons = GaugeMetricFamily(
            "silt_compaction_uncleanable",
            "Failures in a row of a log that cannot be cleaned, and why.",
            labels=(*_PARTITION, "reason"),
        )
        uncleanable = sorted(cleaner.uncleanable.copy().items())
        assessments = cleaner.assessments
        for directory in self._running.broker.manager.directories:
            here = [p for p, _ in uncleanable if p in directory.logs or p in directory.damaged]
            known = [assessments[p].dirty_bytes for p in here if p in assessments]
            counts.add_metric([str(directory.path)], len(here))
            sizes.add_metric([str(directory.path)], sum(known))
        for partition, one in uncleanable:
            labels = [partition.topic, str(partition.partition), one.reason]
            reasons.add_metric(labels, one.failure_count)
        yield from (counts, sizes, reasons)


def _seconds_since(time_ms: int | None, now_ms: int) -> float | None:
    return None if time_ms is None else max(now_ms - time_ms, 0) / 1000


def make_registry(running: Running) -> CollectorRegistry:
    """Return what `/metrics` shows."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(running))
    return registry
