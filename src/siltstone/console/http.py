"""`/metrics`, `/healthz` and `/readyz`, over as much of HTTP as these need."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from siltstone.broker.listeners import Listener
from siltstone.broker.process import Running
from siltstone.console.metrics import make_registry
from siltstone.errors import StorageError

_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TEXT_TYPE: Final = "text/plain; charset=utf-8"
_MAX_HEAD_BYTES: Final = 16 << 10
_READ_SECONDS: Final = 10.0


@contextlib.asynccontextmanager
async def status_server(running: Running, listener: Listener) -> AsyncIterator[int]:
    """Answer questions about a broker for the time of a block; gives the port."""
    page = _StatusPage(running, make_registry(running))
    try:
        server = await asyncio.start_server(
            page.serve, listener.host, listener.port, limit=_MAX_HEAD_BYTES
        )
    except OSError as error:
        raise StorageError(
            f"cannot listen on {listener.host}:{listener.port}: {error.strerror}"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class _StatusPage:
    def __init__(self, running: Running, registry: CollectorRegistry) -> None:
        self._running = running
        self._registry = registry

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one question and close."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _READ_SECONDS)
            words = head.split(b"\r\n", 1)[0].split()
            path = words[1].decode("latin-1") if len(words) == 3 else ""
            writer.write(await self._answer(path.split("?")[0]))
            await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # Whoever it was did not want an answer.
        finally:
            writer.close()

    async def _answer(self, path: str) -> bytes:
        match path:
            case "/metrics":
                # Off the event loop: thousands of partitions take their time.
                body = await asyncio.to_thread(generate_latest, self._registry)
                return _response(200, body, _METRICS_TYPE)
            case "/healthz":
                return _response(200, b"ok\n", _TEXT_TYPE)
            case "/readyz":
                offline = self._running.broker.manager.offline
                if offline:
                    lines = "".join(f"{p} is offline: {reason}\n" for p, reason in offline.items())
                    return _response(503, lines.encode(), _TEXT_TYPE)
                return _response(200, b"ready\n", _TEXT_TYPE)
        return _response(404, b"/metrics, /healthz or /readyz\n", _TEXT_TYPE)


_REASONS: Final = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


def _response(status: int, body: bytes, content_type: str) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
