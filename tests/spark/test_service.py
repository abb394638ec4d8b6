"""The engine in a process of its own, behind a broker that is being written to."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from siltstone.broker.engine_process import EngineProcess, Work
from siltstone.cleaner.survey import survey_logs
from siltstone.errors import EngineError
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.log_checks import fetch_all
from tests.support.serving import ServedBroker

pytestmark = pytest.mark.spark

PARTITION = TopicPartition("settling", 0)
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "100000",
    "min.cleanable.dirty.ratio": "0.01",
}
KEY_COUNT = 50
RECORD_COUNT = 20_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "logs", {"log.cleaner.backoff.ms": "200"}) as broker:
        yield broker.start()


def test_a_broker_cleans_what_it_serves_while_it_is_written_to(served: ServedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    topic = NewTopic(PARTITION.topic, num_partitions=1, replication_factor=1, config=SETTINGS)
    admin.create_topics([topic])[PARTITION.topic].result(30)
    producer = Producer(
        {"bootstrap.servers": served.bootstrap, "batch.num.messages": "100", "log_level": 0}
    )
    failed: list[object] = []
    expected = {}

    deadline = time.monotonic() + 90
    number = 0
    while number < RECORD_COUNT or "Log cleaner cleaned log" not in served.log():
        key, value = b"%d" % (number % KEY_COUNT), b"value %d" % number
        producer.produce(
            PARTITION.topic,
            key=key,
            value=value,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        expected[key] = value
        number += 1
        if number % 1000 == 0:
            producer.flush(30)
        if number > RECORD_COUNT:
            time.sleep(0.001)
        assert time.monotonic() < deadline, served.log()
    assert producer.flush(30) == 0
    assert failed == []
    assert served.stop() == 0

    log = LogReader([served.directory]).get_log(PARTITION)
    records = [r for batch in fetch_all(log, 1 << 20) for r in batch.iter_records()]
    assert len(records) < number
    assert {record.key: record.value for record in records} == expected
    assert log.log_end_offset == number


def test_plans_of_an_engine_that_died_fail_and_the_next_ones_start_it_anew(
    tmp_path: Path,
) -> None:
    with LogManager([tmp_path / "logs"]) as manager:
        manager.create_topic("t", 1, {**SETTINGS, "segment.bytes": "400"})
        log = manager.get_log(TopicPartition("t", 0))
        for number in range(20):
            log.append(build_batch([Record(0, 1_000, b"k", b"v%d" % number)]))
        log.update_high_watermark(log.log_end_offset)
        plans = survey_logs(manager, [TopicPartition("t", 0)], 2_000).plans()
        engine = EngineProcess([sys.executable, "-c", "raise SystemExit(3)"])

        (outcome,) = engine.run_all(Work(plans, None))
        (again,) = engine.run_all(Work(plans, None))

        for ended in (outcome, again):
            assert isinstance(ended.error, EngineError)
            assert "status 3" in str(ended.error)
        engine.close()
