"""A real Kafka: one node in KRaft mode, on loopback ports that are free."""

import re
import secrets
import shutil
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.harness import Harness
from tests.kafka.jvm import JavaProcess, java_command
from tests.support.ports import choose_port, is_free

_START_TIMEOUT_SECONDS: Final = 180
_STOP_TIMEOUT_SECONDS: Final = 180
_REQUEST_TIMEOUT_SECONDS: Final = 120
_START_ATTEMPTS: Final = 3  # a port that was free may be taken before Kafka has it

# What one node needs to serve transactions and groups, and to be quick about it.
_DEFAULTS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # The target of a group is there when a heartbeat is answered, not some time later.
    "group.consumer.assignment.interval.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    # The cleaner's map is allocated at start; the default of 128 MiB does not fit the small heap.
    "log.cleaner.dedupe.buffer.size": "4194304",
    # Internal: retention, flush and checkpoint tasks begin after this instead of after 30 s.
    "log.initial.task.delay.ms": "500",
    # Tests write records of the year 1970 and of 2020; they shall not expire meanwhile.
    "log.retention.ms": "-1",
    # A machine that stands still for a moment shall cost no partition its leader.
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "500",
}
# A killed broker counts as alive for as long as its session, and cannot come back before that.
_AFTER_A_KILL: Final[Mapping[str, str]] = {"broker.session.timeout.ms": "3000"}


_COMPLAINT: Final = re.compile(r"\S+ (WARN|ERROR|FATAL) ")
_HARMLESS: Final = re.compile(
    r"QuorumController .*Performing controller activation"
    r"|NetworkClient .*Attempting to close NetworkClient that has already been closed"
    r"|EventPerformanceMonitor .*Exceptionally slow controller event"  # so was the machine
)


class BrokerError(RuntimeError):
    """Kafka did not start, stop or answer; the end of its log is in the message."""


class KafkaBroker:
    """One Kafka that can be stopped, killed and started again on the same directory.

    Partitions live in `log_dir` (the first of `log_dirs`); Kafka's metadata log lives apart from
    them in `metadata_dir`, so that a whole log directory can be exchanged while Kafka is down.

    Small segments: topics cannot ask for `segment.bytes` below 1 MiB since Kafka 4.1. Kafka's tests
    use the internal setting `internal.segment.bytes`, and a topic accepts it: `create_topic`
    translates. Note that Kafka stores it as the topic's own setting.
    """

    def __init__(
        self,
        harness: Harness,
        directory: Path,
        *,
        properties: Mapping[str, str] | None = None,
        log_dir_count: int = 1,
        heap: str = "512m",
        log_level: str = "INFO",
        full_speed: bool = False,
    ) -> None:
        self.directory = directory
        self.log_dirs = tuple(
            directory / ("data" if number == 0 else f"data{number + 1}")
            for number in range(log_dir_count)
        )
        self.metadata_dir = directory / "metadata"
        self.server_log_path = directory / "server.log"
        self.properties: dict[str, str] = dict(properties or {})
        self.start_seconds = 0.0
        self._harness = harness
        self._heap = heap
        self._log_level = log_level
        self._full_speed = full_speed
        self._port, self._controller_port = 0, 0
        self._started_at = 0  # position in the server log
        self._process: JavaProcess | None = None
        self._was_killed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def log_dir(self) -> Path:
        """Where partition directories are."""
        return self.log_dirs[0]

    @property
    def bootstrap(self) -> str:
        """What clients connect to; may change when Kafka is started again."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.popen.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """Find the directory of a partition in whichever log directory it is."""
        name = f"{topic}-{partition}"
        for log_dir in self.log_dirs:
            if (log_dir / name).is_dir():
                return log_dir / name
        raise FileNotFoundError(f"no directory {name} under {self.directory}")

    def format(self) -> None:
        """Prepare fresh directories, as `kafka-storage format` does."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._choose_ports()
        self._write_properties()
        command = java_command(
            self._harness.classpath,
            "kafka.tools.StorageTool",
            *("format", "-t", _random_uuid(), "-c", str(self._properties_path)),
        )
        finished = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_START_TIMEOUT_SECONDS,
            check=False,
        )
        if finished.returncode != 0:
            raise BrokerError(f"format failed:\n{finished.stdout}{finished.stderr}")

    def start(self) -> None:
        """Start and wait until it answers; formats first if that has not been done."""
        if self.is_running:
            raise BrokerError("Kafka is running already")
        if not self.metadata_dir.exists():
            self.format()
        began = time.monotonic()
        for attempt in range(_START_ATTEMPTS):
            ports = (self._port, self._controller_port)
            if attempt > 0 or not all(port and is_free(port) for port in ports):
                self._choose_ports()
            self._write_properties()
            self._started_at = self._server_log_size()
            self._spawn()
            if self._wait_until_ready():
                self.start_seconds = time.monotonic() - began
                return
        raise BrokerError(f"no free port in {_START_ATTEMPTS} attempts:\n{self.log_tail()}")

    def stop(self) -> None:
        """Shut down in an orderly way (SIGTERM), so that the clean-shutdown file is written."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            status = process.terminate(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise BrokerError(f"Kafka did not stop:\n{self.log_tail()}") from None
        self._was_killed = False
        if status not in (0, 143):  # 143: by SIGTERM, its shutdown hook having run
            raise BrokerError(f"Kafka ended with status {status}:\n{self.log_tail()}")

    def kill(self) -> None:
        """End it with SIGKILL; nothing is flushed, closed or checkpointed."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            self._was_killed = True

    def restart(self, *, clean: bool = True, properties: Mapping[str, str] | None = None) -> None:
        """Stop or kill, then start on the same directory, with changed settings if given."""
        if clean:
            self.stop()
        else:
            self.kill()
        self.properties.update(properties or {})
        self.start()

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str | int] | None = None
    ) -> str:
        """Create a topic and give its id once every partition has its directory."""
        settings = {key: str(value) for key, value in (config or {}).items()}
        segment_bytes = settings.get("segment.bytes")
        if segment_bytes is not None and int(segment_bytes) < 1024 * 1024:
            settings["internal.segment.bytes"] = settings.pop("segment.bytes")
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self._admin()  # kept: without it the client's threads end before the answer
        created = admin.create_topics([topic], request_timeout=_REQUEST_TIMEOUT_SECONDS)
        created[name].result(timeout=_REQUEST_TIMEOUT_SECONDS)
        self._wait_for(
            lambda: all(self._has_partition(name, number) for number in range(partitions)),
            f"the directories of {name}",
        )
        return self.topic_id(name)

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        deleted = admin.delete_topics([name], request_timeout=_REQUEST_TIMEOUT_SECONDS)
        deleted[name].result(timeout=_REQUEST_TIMEOUT_SECONDS)

    def topic_id(self, name: str) -> str:
        """Give the id as it stands in `partition.metadata`."""
        return read_topic_id(self.partition_dir(name))

    def adopt_partition(self, source: Path, topic: str, partition: int = 0) -> Path:
        """Put the files of another partition directory in place of a partition's, Kafka being down.

        Kafka knows the topic by its id, so `partition.metadata` keeps the one it has; with another
        id it would take the directory for a stray.
        """
        if self.is_running:
            raise BrokerError("stop Kafka before exchanging a partition's files")
        target = self.partition_dir(topic, partition)
        metadata = (target / "partition.metadata").read_bytes()
        shutil.rmtree(target)
        shutil.copytree(source, target)
        (target / "partition.metadata").write_bytes(metadata)
        return target

    def server_log(self) -> str:
        """Give everything Kafka has logged since it was first started."""
        if not self.server_log_path.exists():
            return ""
        return self.server_log_path.read_text(errors="replace")

    def log_tail(self, line_count: int = 40) -> str:
        return "\n".join(self.server_log().splitlines()[-line_count:])

    def complaints(self) -> list[str]:
        """Give the warnings and errors since the last start that have to do with its logs."""
        lines = self._server_log_from(self._started_at).splitlines()
        return [line for line in lines if _COMPLAINT.match(line) and not _HARMLESS.search(line)]

    def load_milliseconds(self) -> int:
        """Give the time of the last "Loaded N logs in Xms" that Kafka reported."""
        found = re.findall(r"Loaded \d+ logs in (\d+)ms", self.server_log())
        if not found:
            raise BrokerError(f"Kafka has not loaded its logs:\n{self.log_tail()}")
        return int(found[-1])

    @property
    def _properties_path(self) -> Path:
        return self.directory / "server.properties"

    def _spawn(self) -> None:
        command = java_command(
            self._harness.classpath,
            # kafka.Kafka, which ends when this process does, however that comes about.
            "siltstone.harness.Leash",
            str(self._properties_path),
            heap=self._heap,
            log_level=self._log_level,
            full_speed=self._full_speed,
            as_server=self._full_speed,
        )
        with self.server_log_path.open("ab") as server_log:
            self._process = JavaProcess(
                command, stdin=subprocess.PIPE, stdout=server_log, stderr=server_log
            )

    def _choose_ports(self) -> None:
        self._port, self._controller_port = choose_port(), choose_port()

    def _write_properties(self) -> None:
        settings = {
            **_DEFAULTS,
            **(_AFTER_A_KILL if self._was_killed else {}),
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "metadata.log.dir": str(self.metadata_dir),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},"
            f"CONTROLLER://127.0.0.1:{self._controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            **self.properties,
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._properties_path.write_text(text)

    def _wait_until_ready(self) -> bool:
        """Wait for an answer; False means that the port was taken meanwhile."""
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if "Kafka Server started" in self._server_log_from(self._started_at):
                return True
            if not self._process.is_running():
                self.kill()
                if "Address already in use" in self._server_log_from(self._started_at):
                    return False
                raise BrokerError(f"Kafka ended while starting:\n{self.log_tail()}")
            time.sleep(0.05)
        self.kill()
        raise BrokerError(
            f"Kafka was not ready after {_START_TIMEOUT_SECONDS} s:\n{self.log_tail()}"
        )

    def _server_log_size(self) -> int:
        return self.server_log_path.stat().st_size if self.server_log_path.exists() else 0

    def _server_log_from(self, position: int) -> str:
        with self.server_log_path.open("rb") as server_log:
            server_log.seek(position)
            return server_log.read().decode(errors="replace")

    def _admin(self) -> AdminClient:
        if not self.is_running:
            raise BrokerError(f"Kafka is not running:\n{self.log_tail()}")
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def _has_partition(self, topic: str, partition: int) -> bool:
        return any(
            (log_dir / f"{topic}-{partition}" / "partition.metadata").exists()
            for log_dir in self.log_dirs
        )

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _REQUEST_TIMEOUT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise BrokerError(f"waited in vain for {what}:\n{self.log_tail()}")
            time.sleep(0.02)


def read_topic_id(partition_dir: Path) -> str:
    """Read the topic id from a partition's metadata file."""
    text = (partition_dir / "partition.metadata").read_text()
    return dict(line.split(": ", 1) for line in text.splitlines())["topic_id"]


def _random_uuid() -> str:
    # Kafka's tools take a value that begins with a dash for an option.
    return "K" + urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]
