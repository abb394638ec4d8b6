"""Our Java sources over Kafka's classes: compiled once, run as short processes or one long one."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tests.kafka.jars import ensure_jars, exclusive_lock, require_program
from tests.kafka.jvm import jar_classpath, java_command, run_java
from tests.kafka.log_ops import LogOps
from tests.kafka.markers import wait_for_markers
from tests.kafka.states import (
    Consumed,
    LoadTime,
    NewRecord,
    PartitionFiles,
    Sent,
    parse_consumed,
)

_SOURCE_PATH: Final = Path(__file__).with_name("harness")
_PACKAGE: Final = "siltstone.harness"
_TIMEOUT_SECONDS: Final = 300


@dataclass(slots=True)
class ProducerScript:
    """What Kafka's Java producers shall do, in order.

    Producers gather records until `flush`, `commit` or `close`: each such stretch becomes one batch
    per partition (unless `batch.size` is exceeded), whatever the machine's speed.
    """

    lines: list[dict[str, Any]] = field(default_factory=list)

    def producer(self, name: str = "default", **config: str) -> None:
        """Open a producer; underscores in setting names stand for dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.lines.append({"op": "producer", "producer": name, "config": settings})

    def send(
        self, topic: str, record: NewRecord, *, partition: int = 0, producer: str = "default"
    ) -> None:
        line = {"op": "send", "producer": producer, "topic": topic, "partition": partition}
        self.lines.append({**line, **record.to_json()})

    def flush(self, producer: str = "default") -> None:
        self.lines.append({"op": "flush", "producer": producer})

    def begin(self, producer: str = "default") -> None:
        self.lines.append({"op": "begin", "producer": producer})

    def commit(self, producer: str = "default") -> None:
        self.lines.append({"op": "commit", "producer": producer})

    def abort(self, producer: str = "default") -> None:
        self.lines.append({"op": "abort", "producer": producer})

    def close(self, producer: str = "default") -> None:
        self.lines.append({"op": "close", "producer": producer})

    @property
    def transactional_ids(self) -> set[str]:
        configs = [line["config"] for line in self.lines if line["op"] == "producer"]
        return {config["transactional.id"] for config in configs if "transactional.id" in config}

    @property
    def halts(self) -> bool:
        return any(line["op"] == "halt" for line in self.lines)

    def halt(self) -> None:
        """Flush and end the process without closing: an open transaction stays open."""
        self.lines.append({"op": "halt"})


class HarnessError(RuntimeError):
    """A Java process of the harness failed."""


class Harness:
    """The compiled harness. Close it: one Java process is kept for all that can share it."""

    def __init__(self, lib: Path, classes: Path) -> None:
        self.lib = lib
        self.classes = classes
        self.classpath: tuple[Path | str, ...] = (classes, jar_classpath(lib))
        self._shared: LogOps | None = None

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    @property
    def log_ops(self) -> LogOps:
        """The shared process, started when it is first needed."""
        if self._shared is None:
            self._shared = self.start_log_ops()
        return self._shared

    def start_log_ops(
        self, *, heap: str = "256m", log_level: str = "ERROR", full_speed: bool = False
    ) -> LogOps:
        """Start a process of one's own; close it, or use it in a `with`."""
        return LogOps(
            java_command(
                self.classpath,
                f"{_PACKAGE}.LogOps",
                heap=heap,
                log_level=log_level,
                full_speed=full_speed,
            )
        )

    def partition_files(self, directory: Path, *, records: bool = False) -> PartitionFiles:
        """Describe a partition directory that no one has open; it is copied first, not touched."""
        return self.log_ops.partition_files(directory, records=records)

    def produce(self, bootstrap: str, script: ProducerScript) -> tuple[Sent, ...]:
        """Run a script with Kafka's Java producer; raises if any record did not arrive.

        What it commits or aborts is decided in every partition when this returns.
        """
        if script.halts:  # in a process of its own, which is gone afterwards
            lines = "".join(json.dumps(line) + "\n" for line in script.lines)
            nodes = self._run("Produce", [bootstrap], stdin=lines)
        else:
            nodes = self.log_ops.result("produce", bootstrap=bootstrap, script=script.lines)
        failed = [node["error"] for node in nodes if "error" in node]
        if failed:
            raise HarnessError(f"{len(failed)} records did not arrive, the first: {failed[0]}")
        if script.transactional_ids:
            wait_for_markers(bootstrap, *script.transactional_ids)
        return tuple(Sent(**node) for node in nodes)

    def consume(
        self,
        bootstrap: str,
        topic: str,
        partition: int = 0,
        *,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        config: Mapping[str, str] | None = None,
    ) -> Consumed:
        """Read a partition from its beginning to its end with Kafka's Java consumer."""
        node = self.log_ops.result(
            "consume",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            config={"isolation.level": isolation, **(config or {})},
        )
        return parse_consumed(node)

    def load_time(self, log_dir: Path, *, recovery_threads: int = 1) -> LoadTime:
        """Time Kafka's LogManager over a directory of partitions.

        Run it on a copy: the clean-shutdown file is used up and not written again.
        """
        arguments = [str(log_dir), str(recovery_threads)]
        (node,) = self._run("LoadTime", arguments, heap="1g", full_speed=True)
        return LoadTime(**node)

    def _run(
        self,
        main: str,
        arguments: Sequence[str],
        *,
        stdin: str = "",
        heap: str = "256m",
        full_speed: bool = False,
    ) -> list[dict[str, Any]]:
        command = java_command(
            self.classpath, f"{_PACKAGE}.{main}", *arguments, heap=heap, full_speed=full_speed
        )
        output = run_java(command, stdin=stdin, timeout_seconds=_TIMEOUT_SECONDS)
        return [json.loads(line) for line in output.splitlines()]


def ensure_harness() -> Harness:
    """Compile the harness against the jars, unless these very sources have been compiled before."""
    lib = ensure_jars()
    sources = sorted(_SOURCE_PATH.rglob("*.java"))
    classes = lib / f"harness-{_digest(sources)}"
    if not classes.exists():
        with exclusive_lock(lib.with_name(lib.name + ".lock")):
            if not classes.exists():
                _compile(lib, sources, classes)
    return Harness(lib, classes)


def _digest(sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.relative_to(_SOURCE_PATH).as_posix().encode() + b"\0")
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _compile(lib: Path, sources: Sequence[Path], classes: Path) -> None:
    unfinished = classes.with_name(classes.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [require_program("javac"), "--release", "17", "-Xlint:all,-path"]
    command += ["-cp", jar_classpath(lib), "-d", str(unfinished), *map(str, sources)]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    if finished.returncode != 0:
        raise HarnessError(f"javac refused the harness:\n{finished.stdout}{finished.stderr}")
    unfinished.rename(classes)
