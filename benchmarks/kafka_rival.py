"""Kafka's own LogManager as the other side, by the harness of tests/kafka.

Where there is no Java, the rows against Kafka are left out, and the benchmark says so.
"""

import shutil
import time
from pathlib import Path
from typing import Final

from benchmarks.harness import Work, WrongAnswerError
from benchmarks.machine import java_version
from tests.kafka.harness import Harness, ensure_harness
from tests.kafka.jars import KAFKA_VERSION

DEFAULT_THREADS: Final = 2  # num.recovery.threads.per.data.dir, from Kafka 4.0 on


class KafkaRival:
    """Opens log directories in a fresh JVM: a heap of 1 GiB, both compilers."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.versions = {"kafka": KAFKA_VERSION, "java": java_version()}

    def load(
        self, directory: Path, log_count: int, size_bytes: int, threads: int = DEFAULT_THREADS
    ) -> Work:
        """Load all logs of a directory, with seconds as Kafka's LogManager takes them."""
        started = time.perf_counter()
        loaded = self.harness.load_time(directory, recovery_threads=threads)
        process_seconds = time.perf_counter() - started
        if loaded.logs != log_count:
            raise WrongAnswerError(f"Kafka loaded {loaded.logs} logs of {log_count}")
        details = {"process_seconds": process_seconds}
        return Work(loaded.milliseconds / 1e3, size_bytes, None, log_count, details)


def find_kafka() -> KafkaRival | None:
    """Fetch and compile what it takes; None, with a word about it, if there is no Java here."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        print(f"without Kafka: {', '.join(missing)} not found (make java)")
        return None
    return KafkaRival(ensure_harness())
