"""The listening socket: takes connections in, keeps their number and their memory in bounds."""

import asyncio
import logging
import socket
from collections import Counter
from typing import Final

from siltstone.broker.broker import Broker, Endpoint
from siltstone.broker.connection import Connection
from siltstone.broker.dispatch import Dispatcher
from siltstone.broker.listeners import Listener
from siltstone.errors import StorageError

logger = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 10.0
_BREATH_SECONDS: Final = 0.5


class Server:
    """Accepts clients and hands their requests to the dispatcher."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._listening: socket.socket | None = None
        self._per_ip: Counter[str] = Counter()
        self._grown_bytes = 0
        self._has_starved = False
        self._favoured: Connection | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.connections: dict[Connection, None] = {}

    # Limits of the connections

    @property
    def max_request_bytes(self) -> int:
        """The largest request that is taken."""
        return self._broker.server_config.broker.socket_request_max_bytes

    def may_grow(self, connection: Connection, size_bytes: int) -> bool:
        """Say whether a connection may take so much more memory for a request; counts it.

        One may go over the limit: or those that have half of a request each would wait for each
        other for ever.
        """
        config = self._broker.server_config.broker
        limit = config.queued_max_request_bytes
        if limit < 0:
            limit = 4 * config.socket_request_max_bytes
        if self._grown_bytes + size_bytes > limit:
            if self._favoured not in (None, connection):
                self._has_starved = True
                return False
            self._favoured = connection
        self._grown_bytes += size_bytes
        return True

    def shrunk(self, connection: Connection, size_bytes: int) -> None:
        """Learn that a connection has given back memory; those that waited for it go on."""
        if self._favoured is connection:
            self._favoured = None
        self._grown_bytes -= size_bytes
        self._resume()

    def may_serve(self) -> bool:
        """Say whether another request may be taken, or too many wait for the disk already."""
        if self._broker.blocked_count < self._broker.server_config.broker.queued_max_requests:
            return True
        self._has_starved = True
        return False

    def served(self) -> None:
        """Learn that a request that had to wait is over."""
        self._resume()

    def _resume(self) -> None:
        if self._has_starved:
            self._has_starved = False
            loop = asyncio.get_running_loop()
            for connection in list(self.connections):
                loop.call_soon(connection.process)

    # Life

    def listen(self, listener: Listener) -> Endpoint:
        """Begin to accept, and return where."""
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((listener.host, listener.port))
            listening.listen(self._broker.server_config.broker.socket_listen_backlog_size)
        except OSError as error:
            listening.close()
            raise StorageError(
                f"cannot listen on {listener.host}:{listener.port}: {error.strerror}"
            ) from error
        listening.setblocking(False)
        self._listening = listening
        self._accept()
        self._sweep()
        return Endpoint(listener.host, listening.getsockname()[1])

    async def close(self) -> None:
        """Accept nobody, answer what was asked, and close every connection."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.drain()
        deadline = asyncio.get_running_loop().time() + _DRAIN_SECONDS
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()

    def _on_acceptable(self) -> None:
        assert self._listening is not None
        # As many as wait, but not for ever: the others have their turn too.
        for _ in range(100):
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                logger.error("cannot accept a connection: %s", error.strerror)
                self._stop_accepting()
                return
            self._take_in(sock, str(address[0]))

    def _stop_accepting(self) -> None:
        """Leave those who wait alone for a moment: without file handles we would try for ever."""
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening.fileno())
        loop.call_later(_BREATH_SECONDS, self._accept)

    def _accept(self) -> None:
        if self._listening is not None and self._listening.fileno() >= 0:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._listening.fileno(), self._on_acceptable)

    def _take_in(self, sock: socket.socket, ip: str) -> None:
        config = self._broker.server_config.broker
        if (
            len(self.connections) >= config.max_connections
            or self._per_ip[ip] >= config.max_connections_per_ip
        ):
            logger.warning("%s: too many connections: this one is closed", ip)
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if config.socket_send_buffer_bytes > 0:
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes
                )
            if config.socket_receive_buffer_bytes > 0:
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes
                )
            connection = Connection(sock, self._dispatcher.serve, self, self._forget)
        except OSError:
            sock.close()  # The client is gone already.
            return
        self._per_ip[ip] += 1
        self.connections[connection] = None

    def _forget(self, connection: Connection) -> None:
        del self.connections[connection]
        ip = str(connection.peer[0])
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def _sweep(self) -> None:
        """Close the connections that were silent for too long."""
        loop = asyncio.get_running_loop()
        idle_ms = self._broker.server_config.broker.connections_max_idle_ms
        if idle_ms >= 0:
            oldest = loop.time() - idle_ms / 1000
            for connection in list(self.connections):
                # A request that waits is no silence of the client's; an answer not taken is.
                if connection.used_at < oldest and not connection.is_waiting:
                    connection.close()
        self._sweeper = loop.call_later(
            min(_SWEEP_SECONDS, max(idle_ms, 100) / 2000) if idle_ms >= 0 else _SWEEP_SECONDS,
            self._sweep,
        )
