"""Kafka's own command line tools, run as the classes they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kafka.harness import Harness
from tests.kafka.jvm import java_command, run_java

_TIMEOUT_SECONDS: Final = 300

DUMP_LOG_SEGMENTS: Final = "org.apache.kafka.tools.DumpLogSegments"
GET_OFFSET_SHELL: Final = "org.apache.kafka.tools.GetOffsetShell"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
PRODUCER_PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE: Final = "org.apache.kafka.tools.ConsumerPerformance"
DELETE_RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
TOPIC_COMMAND: Final = "org.apache.kafka.tools.TopicCommand"


class ToolError(RuntimeError):
    """A tool ended with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What the dump tool prints, and what it complains about."""

    output: str
    complaints: tuple[str, ...]


class KafkaTools:
    """The tools of one set of jars."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    def run(
        self,
        main_class: str,
        *arguments: str,
        stdin: str = "",
        heap: str = "256m",
        full_speed: bool = False,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> str:
        """Run a tool in a process of its own and give its standard output; raises if it fails."""
        command = java_command(
            self._harness.classpath, main_class, *arguments, heap=heap, full_speed=full_speed
        )
        return run_java(command, stdin=stdin, timeout_seconds=timeout_seconds)

    def dump_log(self, *files: Path, options: Sequence[str] = ()) -> Dump:
        """Dump segments, indexes or snapshots, with every batch and record printed."""
        return self._dump("--deep-iteration", "--print-data-log", *options, files=files)

    def verify_indexes(self, *files: Path) -> tuple[str, ...]:
        """Check indexes against the segments next to them and give the complaints.

        Expect false alarms for cleaned segments: the tool wants the offset of an entry to be the
        last offset of the very batch that the entry points to.
        """
        return self._dump("--verify-index-only", files=files).complaints

    def get_offsets(self, bootstrap: str, topic: str, *, time: str = "latest") -> dict[int, int]:
        """Ask for offsets: `time` is latest, earliest, max-timestamp or milliseconds."""
        output = self.run(
            GET_OFFSET_SHELL, "--bootstrap-server", bootstrap, "--topic", topic, "--time", time
        )
        rows = (line.rsplit(":", 2) for line in output.splitlines() if line)
        return {int(partition): int(offset) for _, partition, offset in rows}

    def console_consume(self, bootstrap: str, topic: str, *, options: Sequence[str] = ()) -> str:
        """Read a topic from the beginning until nothing has come for a while."""
        return self.run(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
            *("--timeout-ms", "3000"),
            *options,
        )

    def produce_performance(
        self,
        bootstrap: str,
        topic: str,
        *,
        record_count: int,
        record_bytes: int,
        properties: Sequence[str] = (),
    ) -> str:
        return self.run(
            PRODUCER_PERFORMANCE,
            *("--topic", topic, "--num-records", str(record_count)),
            *("--record-size", str(record_bytes), "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={bootstrap}", *properties),
            heap="512m",
            full_speed=True,
        )

    def _dump(self, *options: str, files: Sequence[Path]) -> Dump:
        # In the shared process: a hundred dumps take no longer than the start of one JVM.
        arguments = ["--files", ",".join(map(str, files)), *options]
        fields = {"class": DUMP_LOG_SEGMENTS, "args": arguments}
        result = self._harness.log_ops.result("tool", **fields)
        if result["status"] != 0:
            raise ToolError(f"dump of {arguments} failed:\n{result['stdout']}{result['stderr']}")
        # What the tool finds wrong it writes to standard error, and succeeds.
        return Dump(output=result["stdout"], complaints=tuple(result["stderr"].splitlines()))
