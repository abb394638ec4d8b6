"""The engine in a process of its own, behind a broker that is being written to."""

import io
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from siltstone.broker.engine_process import EngineProcess, Work
from siltstone.cleaner.survey import survey_logs
from siltstone.cli.main import run
from siltstone.errors import EngineError
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.e2e.test_broker_metrics import get
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
    admin.create_topics([topic])[PARTITION.topic].result(120)
    producer = Producer(
        {"bootstrap.servers": served.bootstrap, "batch.num.messages": "100", "log_level": 0}
    )
    failed: list[object] = []
    expected = {}

    deadline = time.monotonic() + 300
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
            producer.flush(120)
        if number > RECORD_COUNT:
            time.sleep(0.001)
        assert time.monotonic() < deadline, served.log()
    assert producer.flush(120) == 0
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


def test_a_broker_compacts_when_it_is_asked_to(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServedBroker(tmp_path / "logs", {"log.cleaner.enable": "false"}) as broker:
        broker.start(["--metrics-listen", "127.0.0.1:0", "--log-format", "json"])

        def silt(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            capsysbinary.readouterr()
            exit_code = run([*arguments, "--bootstrap-server", broker.bootstrap])
            captured = capsysbinary.readouterr()
            return exit_code, captured.out.decode(), captured.err.decode()

        silt("topics", "create", "asked", "--config", "cleanup.policy=compact")
        silt("topics", "create", "plain")
        for number in range(3):
            silt("produce", "asked", "-K:", stdin=b"a:%d\nb:%d\n" % (number, number))

        refused = silt("compact", "plain")
        nothing = silt("compact", "asked")
        tried = silt("compact", "asked", "--force", "--dry-run", "--output", "json")
        done = silt("compact", "asked", "--force", "--output", "json")
        history = silt("history", "asked", "--output", "json")
        found = silt("consume", "asked", "-e", "-K:")
        verified = silt("verify", "asked", "--deep")
        metrics_port = re.search(r"metrics on \S+:(\d+)", broker.log())
        assert metrics_port is not None
        text = get(int(metrics_port[1]), "/metrics")
        messages = [json.loads(line) for line in broker.log().splitlines() if line[0] == "{"]

    assert refused[:2] == (1, "")
    assert refused[2].startswith(
        "silt: error: topic plain has cleanup.policy=delete: there is noth"
    )
    assert nothing == (0, "Nothing to clean; silt plan says why.\n", "")
    (dry,) = json.loads(tried[1])
    (cleaned,) = json.loads(done[1])
    assert (cleaned["records_read"], cleaned["records_kept"]) == (6, 2)
    changed = {"seconds", "manifest", "bytes_before", "bytes_after"}
    assert {k: dry[k] for k in dry.keys() - changed} == {
        k: cleaned[k] for k in cleaned.keys() - changed
    }
    stages = [json.loads(line)["progress"]["stage"] for line in done[2].splitlines()]
    assert stages == ["start", "commit", "done"]
    assert [pass_["manifest"] for pass_ in json.loads(history[1])] == [cleaned["manifest"]]
    assert found[1] == "a:2\nb:2\n"
    assert verified[0] == 0
    figures = {f.name: f.samples for f in text_string_to_metric_families(text)}
    for name, value in (
        ("silt_live_keys", 2),
        ("silt_live_records", 2),
        ("silt_tombstones", 0),
        ("kafka_log_logcleanermanager_uncleanable_partitions_count", 0),
        ("kafka_log_logcleanermanager_uncleanable_bytes", 0),
    ):
        (sample,) = figures[name]
        assert sample.value == value, name
    removed = {s.labels["reason"]: s.value for s in figures["silt_compaction_removed_records"]}
    assert removed["superseded"] == 4
    (summary,) = (m for m in messages if "Log cleaner cleaned log" in m["message"])
    assert (summary["level"], summary["logger"]) == ("info", "siltstone.cleaner.cleaning_pass")
