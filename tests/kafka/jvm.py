"""How every Java process of these tests is started and ended."""

import atexit
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from tests.kafka.jars import require_program

_LOG4J_PATH: Final = Path(__file__).with_name("log4j2.properties")

# Short-lived processes on few cores: no second compiler tier, no parallel collector.
_FLAGS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={_LOG4J_PATH}",
)


# As kafka-run-class.sh and kafka-server-start.sh start a broker that nobody has tuned.
_SERVER_FLAGS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={_LOG4J_PATH}",
)


def java_command(
    classpath: Sequence[Path | str],
    main_class: str,
    *arguments: str,
    heap: str = "256m",
    log_level: str = "WARN",
    full_speed: bool = False,
    as_server: bool = False,
) -> list[str]:
    """Build a command line; `full_speed` leaves both compilers on, for measurements.

    `as_server` is for measurements of a broker, with the flags that Kafka's own script gives it.
    """
    flags = [flag for flag in _FLAGS if not (full_speed and "TieredStopAtLevel" in flag)]
    if as_server:
        flags = [*_SERVER_FLAGS, f"-Xms{heap}"]
    return [
        require_program("java"),
        f"-Xmx{heap}",
        *flags,
        f"-Dkafka.log.level={log_level}",
        "-cp",
        os.pathsep.join(str(entry) for entry in classpath),
        main_class,
        *arguments,
    ]


class JavaError(Exception):
    """A Java program ended with a failure; the message holds what it said."""


def run_java(command: Sequence[str], *, stdin: str = "", timeout_seconds: float) -> str:
    """Run a program to its end and give its standard output; raise JavaError if it fails."""
    finished = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
    )
    if finished.returncode != 0:
        program = " ".join(command[command.index("-cp") + 2 :])
        raise JavaError(
            f"{program} ended with status {finished.returncode}:\n"
            f"{finished.stdout[-4000:]}{finished.stderr[-4000:]}"
        )
    return finished.stdout


def jar_classpath(lib: Path) -> str:
    """Give the class path entry that stands for all jars of a directory."""
    return str(lib / "*")


class JavaProcess:
    """A Java process that does not outlive us: it is ended at exit if nobody did before."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.DEVNULL,
        stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    ) -> None:
        # Its own session: a Ctrl-C in the terminal is for us to handle, not for Kafka.
        self.popen = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        atexit.register(self.kill)

    def is_running(self) -> bool:
        return self.popen.poll() is None

    def terminate(self, timeout_seconds: float) -> int:
        """Ask it to end and wait; kill it and raise if it does not."""
        if self.is_running():
            self.popen.send_signal(signal.SIGTERM)
        try:
            status = self.popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._forget()
        return status

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self.is_running():
            self.popen.kill()
        self.popen.wait()
        self._forget()

    def _forget(self) -> None:
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):  # What was not flushed has no reader any more.
                    stream.close()
        atexit.unregister(self.kill)
