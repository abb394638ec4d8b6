"""The life of a broker's process: starts, stops, kills, wrong settings, disks that go away."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode

from siltstone.broker.wire import CREATE_TOPICS, DELETE_TOPICS, FETCH, METADATA, PRODUCE
from siltstone.cli.main import run
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.log_checks import fetch_all
from tests.support.serving import RawClient, ServedBroker
from tests.support.waiting import wait_until

FETCH_VERSION = 12


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "logs") as made:
        yield made


def create(client: RawClient, name: str, partitions: int = 1, **config: str) -> int:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": (),
        "configs": [{"name": k.replace("_", "."), "value": v} for k, v in config.items()],
    }
    answer = client.ask(CREATE_TOPICS, 5, topics=[topic], timeout=1000, validate_only=False)
    code: int = answer.topics[0].error_code
    return code


def append(client: RawClient, topic: str, value: bytes, partition: int = 0) -> tuple[int, int]:
    """Append one record, and return the error code and the offset."""
    records = build_batch([Record(0, 1_000, b"k", value)])
    part = {"index": partition, "records": records}
    answer = client.ask(
        PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )
    done = answer.responses[0].partition_responses[0]
    return done.error_code, done.base_offset


def values(directory: Path, topic: str, partition: int = 0) -> list[bytes | None]:
    log = LogReader([directory]).get_log(TopicPartition(topic, partition))
    return [r.value for batch in fetch_all(log, 1 << 20) for r in batch.iter_records()]


def test_a_broker_that_is_stopped_answers_what_was_asked_and_leaves_clean_files(
    broker: ServedBroker,
) -> None:
    broker.start()
    with RawClient(broker.port) as client, RawClient(broker.port) as waiting:
        create(client, "t")
        append(client, "t", b"v")
        wanted = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1000}
        fetch = {
            "replica_id": -1,
            "max_wait": 60_000,
            "min_bytes": 1,
            "max_bytes": 1000,
            "topics": [{"topic": "t", "partitions": [wanted]}],
            "forgotten_topics_data": (),
        }
        waiting.send(FETCH, FETCH_VERSION, fetch)
        os.kill(broker.pid, signal.SIGTERM)

        answer = waiting.receive(FETCH, FETCH_VERSION)

        assert answer.responses[0].partitions[0].records == b""
        assert waiting.receive_frame() is None
    assert broker.stop() == 0
    assert (broker.directory / ".kafka_cleanshutdown").exists()
    broker.start()
    with RawClient(broker.port) as client:
        assert append(client, "t", b"x") == (0, 1)


def test_no_acknowledged_record_is_lost_or_doubled_by_kills(broker: ServedBroker) -> None:
    broker.settings["log.flush.interval.messages"] = "1"
    broker.settings["log.segment.bytes"] = "20000"
    broker.start()
    acknowledged: list[bytes] = []
    # One idempotent producer through all kills: what it repeats must not be there twice.
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 5,
            "log_level": 0,
            "message.timeout.ms": 300_000,
        }
    )

    def note(error: object, message: object) -> None:
        assert error is None
        acknowledged.append(message.value())  # type: ignore[attr-defined]

    sent = 0
    for _ in range(3):
        target = len(acknowledged) + 300
        while len(acknowledged) < target:
            producer.produce("t", b"value %d" % sent, key=b"k", partition=0, on_delivery=note)
            sent += 1
            producer.poll(0)
            if sent - len(acknowledged) > 200:
                producer.poll(0.05)
        broker.kill()
        broker.start()
    assert producer.flush(120) == 0
    assert broker.stop() == 0

    found = values(broker.directory, "t")
    assert found == [b"value %d" % number for number in range(sent)]
    assert sorted(acknowledged) == sorted(v for v in found if v is not None)


def test_a_directory_that_another_process_owns_is_refused(broker: ServedBroker) -> None:
    broker.start()

    second = run_serve("--log-dir", str(broker.directory), "--listen", "127.0.0.1:0")

    assert second.returncode == 1
    assert f"is in use by process {broker.pid}" in second.stderr


def run_serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "siltstone", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("log.retention.hour=1", "unknown setting log.retention.hour: did you mean"),
        ("num.partitions=0", "num.partitions must be at least 1, got 0"),
        ("log.retention.hours=x", "log.retention.hours must be a whole number, got x"),
        ("log.segment.bytes=1", "segment.bytes must be at least 14, got 1"),
        ("listeners=SSL://a:1", "must be PLAINTEXT"),
    ],
)
def test_a_wrong_setting_is_named_before_anything_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pair: str, message: str
) -> None:
    directory = tmp_path / "logs"

    exit_code = run(["serve", "--log-dir", str(directory), "--set", pair])

    assert exit_code == 2
    assert message in capsys.readouterr().err
    assert not directory.exists()


def test_settings_come_from_a_file_in_kafkas_form_and_the_command_line_wins(
    tmp_path: Path, broker: ServedBroker
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# Kafka's own\nprocess.roles=broker,controller\nnode.id=7\n"
        "num.partitions=5\nlog.retention.hours=2\nlog.cleanup.policy=compact\n"
    )
    broker.settings = {"num.partitions": "3"}
    broker.start(["--config", str(file)])
    with RawClient(broker.port) as client:
        topic = {"topic_id": None, "name": "automatic"}
        answer = client.ask(
            METADATA,
            12,
            topics=[topic],
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
        resource = {
            "resource_type": 2,
            "resource_name": "automatic",
            "configuration_keys": ["retention.ms", "cleanup.policy"],
        }
        configs = client.ask(32, 4, resources=[resource], include_synonyms=True).results[0].configs

    assert answer.brokers[0].node_id == 7
    assert len(answer.topics[0].partitions) == 3
    assert {(c.name, c.value, c.config_source) for c in configs} == {
        ("retention.ms", "7200000", 4),
        ("cleanup.policy", "compact", 4),
    }


def test_settings_of_the_broker_change_without_a_restart_and_last(broker: ServedBroker) -> None:
    broker.start()
    change = {"name": "log.retention.ms", "config_operation": 0, "value": "77"}
    resource = {"resource_type": 4, "resource_name": "0", "configs": [change]}

    def retention() -> tuple[str, int]:
        asked = {
            "resource_type": 2,
            "resource_name": "t",
            "configuration_keys": ["retention.ms"],
        }
        with RawClient(broker.port) as client:
            (found,) = client.ask(32, 4, resources=[asked]).results[0].configs
        return found.value, found.config_source

    with RawClient(broker.port) as client:
        create(client, "t")
        answer = client.ask(44, 1, resources=[resource], validate_only=False)
        assert answer.responses[0].error_code == ErrorCode.none
        change |= {"name": "socket.request.max.bytes", "value": "1000"}
        refused = client.ask(44, 1, resources=[resource], validate_only=False)
        assert refused.responses[0].error_code == ErrorCode.invalid_config
    assert retention() == ("77", 2)

    broker.stop()
    broker.start()

    assert retention() == ("77", 2)


def test_retention_deletes_old_records_while_the_broker_runs(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "50"}
    with ServedBroker(tmp_path / "logs", settings) as broker:
        broker.start()
        with RawClient(broker.port) as client:
            create(client, "t", retention_ms="1000", segment_bytes="100")
            for number in range(5):  # with timestamps from the beginning of time
                append(client, "t", b"v%d" % number)

            def log_start() -> int:
                part = {"partition_index": 0, "timestamp": -2}
                topics = [{"name": "t", "partitions": [part]}]
                answer = client.ask(2, 7, replica_id=-1, isolation_level=0, topics=topics)
                return int(answer.topics[0].partitions[0].offset)

            wait_until(lambda: log_start() == 5)


def test_what_was_deleted_leaves_the_disk_after_its_delay(tmp_path: Path) -> None:
    settings = {"log.segment.delete.delay.ms": "100"}
    with ServedBroker(tmp_path / "logs", settings) as broker:
        broker.start()
        with RawClient(broker.port) as client:
            create(client, "t", partitions=2)
            client.ask(DELETE_TOPICS, 5, topic_names=["t"], timeout=1000)
            wait_until(lambda: not list(broker.directory.glob("t-*")))


def test_a_directory_that_goes_bad_goes_offline_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with ServedBroker(first, {"log.segment.bytes": "300"}) as broker:
        broker.start(["--log-dir", str(second)])
        with RawClient(broker.port) as client:
            create(client, "t", partitions=2)
            places = {
                number: path
                for number in range(2)
                for path in (first, second)
                if (path / f"t-{number}").exists()
            }
            bad, good = places[0], places[1]
            assert bad != good
            append(client, "t", b"before", 0)
            # The next segment cannot be made where there is a directory of its name.
            (bad / "t-0" / "00000000000000000003.log").mkdir()
            codes = [append(client, "t", b"x" * 100, 0)[0] for _ in range(5)]
            after = append(client, "t", b"still here", 1)

            assert ErrorCode.kafka_storage_error in codes
            assert codes[-1] == ErrorCode.kafka_storage_error
            assert after == (0, 0)
            dirs = client.ask(35, 4, topics=None).results
            assert {d.error_code for d in dirs if d.log_dir.endswith(bad.name)} == {
                ErrorCode.kafka_storage_error
            }
            assert "is offline" in broker.log()
