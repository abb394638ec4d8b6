"""An archive of the classes that Spark loads before its first task: Java's class-data sharing.

With it the JVM maps classes into memory instead of reading and checking each, and starts in less
than half of the time. It takes a run of Spark to make one, so it is made once per machine, in the
background, after a run that had to do without; `python -m siltstone.spark.class_archive` makes it
now. Java itself refuses one that does not fit, and goes on without.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from siltstone.errors import EngineError
from siltstone.spark.driver_jvm import JAVA_OPTIONS, find_jars, find_java

_DIGEST_LETTERS: Final = 32
_LOWEST_PRIORITY: Final = 19


def archive_path() -> Path:
    """Name the archive that fits this Java, these jars and these options."""
    digest = hashlib.sha256("\0".join(JAVA_OPTIONS).encode())
    for path in (find_java().resolve(), *sorted(find_jars().glob("*.jar"))):
        stat = path.stat()
        digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "siltstone" / f"spark-{digest.hexdigest()[:_DIGEST_LETTERS]}.jsa"


def use_options(path: Path) -> tuple[str, ...]:
    """Return how to tell Java about an archive, if it is there."""
    return (f"-XX:SharedArchiveFile={path}",) if path.exists() else ()


def make_soon(path: Path) -> None:
    """Let a process in the background make an archive; whoever asks does not wait for it."""
    if not path.exists():
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--in-background"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def make(path: Path) -> None:
    """Make an archive, unless it is there or another process makes it just now."""
    # Only here: the archive's users import this module, and need it before anything slow.
    from siltstone.spark.rehearsal import rehearse  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if path.exists():
            return
        unfinished.unlink(missing_ok=True)
        rehearse((f"-XX:ArchiveClassesAtExit={unfinished}",))
        if not unfinished.exists():
            raise EngineError(f"{find_java()} made no class archive")
        unfinished.replace(path)


if __name__ == "__main__":
    if "--in-background" in sys.argv:
        os.nice(_LOWEST_PRIORITY)
    make(archive_path())
