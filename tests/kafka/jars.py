"""Apache Kafka's own jars, fetched with Maven once per machine.

They are kept in `~/.cache/siltstone/kafka-4.3.1`, or in the directory that SILTSTONE_KAFKA_LIB
names, which may also be one that somebody filled by hand.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
POM_PATH: Final = Path(__file__).with_name("pom.xml")

_NEEDED_JAR: Final = f"kafka_2.13-{KAFKA_VERSION}.jar"
_FETCH_TIMEOUT_SECONDS: Final = 600


class MissingToolError(RuntimeError):
    """A program that the tests against a real Kafka need is not installed."""

    def __init__(self, program: str) -> None:
        super().__init__(
            f"tests/kafka needs {program}, which is not on the PATH: "
            "on Debian, apt-get install openjdk-17-jdk-headless maven"
        )


class FetchError(RuntimeError):
    """Maven could not bring the jars."""


def lib_path() -> Path:
    """Say where the jars are or will be."""
    chosen = os.environ.get("SILTSTONE_KAFKA_LIB")
    if chosen:
        return Path(chosen).expanduser()
    return Path.home() / ".cache" / "siltstone" / f"kafka-{KAFKA_VERSION}"


def require_program(program: str) -> str:
    """Give the full path of a program, or say what to install."""
    found = shutil.which(program)
    if found is None:
        raise MissingToolError(program)
    return found


def ensure_jars() -> Path:
    """Give the directory of the jars, fetching them first if they are not there.

    The directory appears whole or not at all, so its existence is proof enough for everyone else.
    """
    lib = lib_path()
    if (lib / _NEEDED_JAR).exists():
        return lib
    with exclusive_lock(lib.with_name(lib.name + ".lock")):
        if not (lib / _NEEDED_JAR).exists():  # else another worker was faster
            _fetch(lib)
    return lib


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Keep other processes out; a lock whose holder died is free again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(lib: Path) -> None:
    maven = require_program("mvn")
    require_program("java")
    unfinished = lib.with_name(lib.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [
        maven,
        "--quiet",
        "--batch-mode",
        "--file",
        str(POM_PATH),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={unfinished}",
    ]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_SECONDS, check=False
    )
    if finished.returncode != 0 or not (unfinished / _NEEDED_JAR).exists():
        raise FetchError(
            f"Maven could not fetch Kafka {KAFKA_VERSION} (exit status {finished.returncode}):\n"
            f"{finished.stdout[-4000:]}{finished.stderr[-4000:]}"
        )
    # Replaces an empty directory; refuses to replace one that holds something else.
    unfinished.rename(lib)
