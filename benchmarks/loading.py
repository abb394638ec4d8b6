"""Open a log directory as a broker does when it starts: ours in a fresh Python, Kafka's in a JVM.

Both use up the clean-shutdown file and neither writes a new one, so each run gets a directory of
its own.

Run as a script it is that fresh Python: it opens the directory that it is given, says on one line
of JSON how long that took, and ends as a crash would.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.log.filesystem import File, FileSystem
from siltstone.log.log_manager import LogManager

_TIMEOUT_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Opened:
    """What was found in a directory, and in which time."""

    log_count: int
    record_count: int
    load_seconds: float  # of the log manager alone, the program being up
    cpu_seconds: float  # likewise
    process_seconds: float  # from the start of the process to its end


class CarelessFileSystem(FileSystem):
    """A disk on which nothing is made durable: to prepare data, never to measure."""

    def fsync(self, file: File) -> None:
        """Do nothing."""

    def fsync_dir(self, path: Path) -> None:
        """Do nothing."""


def open_in_fresh_process(directory: Path) -> Opened:
    """Open a directory with our LogManager, in a Python that has done nothing before."""
    started = time.perf_counter()
    finished = subprocess.run(
        [sys.executable, __file__, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_TIMEOUT_SECONDS,
    )
    process_seconds = time.perf_counter() - started
    return Opened(**json.loads(finished.stdout), process_seconds=process_seconds)


def main() -> None:
    started, cpu_started = time.perf_counter(), time.process_time()
    manager = LogManager([Path(sys.argv[1])])
    load_seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu_started
    logs = manager.logs.values()
    answer = {
        "log_count": len(logs),
        "record_count": sum(log.log_end_offset for log in logs),
        "load_seconds": load_seconds,
        "cpu_seconds": cpu_seconds,
    }
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
