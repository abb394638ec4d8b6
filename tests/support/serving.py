"""A `silt serve` of a test's own, and a client that speaks raw frames to it."""

import contextlib
import io
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from siltstone.broker.messages import Values, build
from tests.support.ports import choose_port

_START_SECONDS = 120
_START_ATTEMPTS = 3  # a port that was free may be taken meanwhile
_STOP_SECONDS = 120
_ANSWER_SECONDS = 120


class ServedBroker:
    """The process of a broker; started by `start`, killed at the end of a `with` block."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        module: str = "siltstone",
    ) -> None:
        self.directory = directory
        self._module = module
        self.log_path = directory.parent / f"{directory.name}.log"
        self.settings = {"log.initial.task.delay.ms": "0", **(settings or {})}
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, arguments: Sequence[str] = ()) -> Self:
        """Start it, on the port that it had before if there was one."""
        if self.port:
            self._start(arguments)
            return self
        for _ in range(_START_ATTEMPTS):
            self.port = choose_port()
            try:
                self._start(arguments)
            except RuntimeError:
                if "cannot listen on" not in self.log():  # Somebody else was faster.
                    raise
            else:
                return self
        raise RuntimeError(f"no free port in {_START_ATTEMPTS} attempts:\n{self.log()}")

    def _start(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", self._module, "serve", "--log-dir", str(self.directory)]
        command += ["--listen", f"127.0.0.1:{self.port}", *arguments]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        self.log_path.write_bytes(b"")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if f"serving on 127.0.0.1:{self.port}" in self.log():
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"the broker did not start:\n{self.log()}")

    def log(self) -> str:
        """Return what it has said since it was started."""
        return self.log_path.read_text(errors="replace")

    def stop(self) -> int:
        """End it with SIGTERM, and return its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        return process.wait(_STOP_SECONDS)

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait(_STOP_SECONDS)

    def open_files(self) -> list[str]:
        """Return what its file handles are for: paths, and sockets as `socket:[inode]`."""
        found = []
        for path in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(path.readlink()))
        return found

    def open_sockets(self) -> int:
        """Return how many connections it has, and where it listens."""
        return sum(target.startswith("socket:") for target in self.open_files())

    def resident_bytes(self) -> int:
        """Return how much memory it has."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * resource.getpagesize()


class RawClient:
    """Sends any request, also a wrong one, and decodes the answer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def ask(self, api_key: int, version: int, **values: Any) -> Any:
        """Send a request and return the answer."""
        self.send(api_key, version, values)
        return self.receive(api_key, version)

    def send(self, api_key: int, version: int, values: Values) -> None:
        self._correlation_id += 1
        self.socket.sendall(frame_of(api_key, version, values, self._correlation_id))

    def receive(self, api_key: int, version: int) -> Any:
        data = self.receive_frame()
        assert data is not None, "the connection was closed"
        assert struct.unpack(">i", data[:4]) == (self._correlation_id,)
        response_type = load_response_schema(api_key, version)
        is_tagged = api_key != 18 and response_type.__header_schema__.__version__ >= 1
        answer, size = entity_reader(response_type)(data, 5 if is_tagged else 4)
        assert size + 4 + is_tagged == len(data)
        return answer

    def receive_frame(self) -> bytes | None:
        """Return the next frame; None if the connection was closed."""
        head = self._receive(4)
        return None if head is None else self._receive(struct.unpack(">i", head)[0])

    def _receive(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            data += more
        return data


def frame_of(api_key: int, version: int, values: Values, correlation_id: int = 1) -> bytes:
    """Return a request as it goes over the wire."""
    request_type = load_request_schema(api_key, version)
    header_type = request_type.__header_schema__
    header = {
        "request_api_key": api_key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": "test",
    }
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, build(header_type, header))
    entity_writer(request_type)(buffer, build(request_type, values))
    data = buffer.getvalue()
    return struct.pack(">i", len(data)) + data
