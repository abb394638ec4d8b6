"""Clients that are not Python's: kcat from the system, kafkajs at its locked version from npm."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.kafka.jars import exclusive_lock

_PACKAGE: Final = Path(__file__).with_name("kafkajs")
_RUN_SECONDS: Final = 300
_INSTALL_SECONDS: Final = 300


class MissingProgramError(RuntimeError):
    """A program that these tests need is not installed."""

    def __init__(self, program: str, package: str) -> None:
        super().__init__(
            f"tests/kafka needs {program}, which is not on the PATH: "
            f"on Debian, apt-get install {package} (`make clients` does, as root)"
        )


def run_kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run kcat as a user does; raises if it fails."""
    kcat = _find("kcat", "kcat")
    return _run([kcat, "-b", bootstrap, *arguments], stdin=stdin)


def run_kafkajs(bootstrap: str, act: str, **arguments: Any) -> Any:
    """Run one act of `kafkajs/client.js`."""
    modules = _ensure_kafkajs()
    command = [_find("node", "nodejs"), str(_PACKAGE / "client.js"), bootstrap, act]
    output = _run([*command, json.dumps(arguments)], env={"NODE_PATH": str(modules)})
    return json.loads(output)


class KafkajsMember:
    """A member of a group in a process of its own, that can leave or die."""

    def __init__(self, bootstrap: str, topic: str, group: str, *, session_ms: int = 60_000) -> None:
        arguments = {"topic": topic, "group": group, "sessionTimeout": session_ms}
        self._process = subprocess.Popen(
            [
                _find("node", "nodejs"),
                str(_PACKAGE / "member.js"),
                bootstrap,
                json.dumps(arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "NODE_PATH": str(_ensure_kafkajs())},
            text=True,
        )
        self.assigned: list[int] = []
        self.read: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "assigned" in told:
                self.assigned = told["assigned"]
            else:
                self.read.append(told["read"])

    def leave(self) -> None:
        """Leave as a program does that ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_RUN_SECONDS) == 0

    def kill(self) -> None:
        """Die without a word."""
        self._process.kill()
        self._process.wait(_RUN_SECONDS)
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def _ensure_kafkajs() -> Path:
    """Install the locked version once per machine, and return where modules are."""
    version = json.loads((_PACKAGE / "package.json").read_text())["dependencies"]["kafkajs"]
    target = Path.home() / ".cache" / "siltstone" / f"kafkajs-{version}"
    modules = target / "node_modules"
    with exclusive_lock(target.with_name(target.name + ".lock")):
        if not (modules / "kafkajs" / "package.json").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(_PACKAGE / name, target)
            options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(target)]
            _run([_find("npm", "npm"), "ci", *options], seconds=_INSTALL_SECONDS)
    return modules


def _find(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise MissingProgramError(program, package)
    return found


def _run(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    seconds: float = _RUN_SECONDS,
) -> bytes:
    finished = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        timeout=seconds,
        check=False,
    )
    if finished.returncode != 0:
        said = (finished.stdout[-2000:] + finished.stderr[-4000:]).decode(errors="replace")
        raise RuntimeError(f"{' '.join(command)} ended with {finished.returncode}:\n{said}")
    return finished.stdout
