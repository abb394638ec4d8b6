"""A connection to a broker from the side of its clients: one question after the other.

Without the messages of Kafka's protocol, which take longer to load than most answers to come.
"""

import socket
import struct
from types import TracebackType
from typing import Any, Final, Self

from siltstone.broker.command_frames import decode_answer, encode_question
from siltstone.errors import UnreachableError, UsageError

_CONNECT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 120.0
_SIZE: Final = struct.Struct(">i")


class BrokerClient:
    """A connection to one broker; closed at the end of a `with` block."""

    def __init__(self, address: str) -> None:
        self._address: Final = address
        self.correlation_id = 0  # of the next question
        host, port = parse_address(address)
        try:
            self._socket = socket.create_connection((host, port), _CONNECT_SECONDS)
        except OSError as error:
            raise UnreachableError(address, _reason(error)) from error
        self._socket.settimeout(_ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask_command(self, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a question of `silt` itself; return the answer, and the bytes that go with it."""
        return decode_answer(self.exchange(encode_question(question, self.correlation_id)))

    def exchange(self, request: bytes) -> bytes:
        """Send a frame, and return what follows the correlation id in the answer."""
        try:
            self._socket.sendall(_SIZE.pack(len(request)) + request)
            (size,) = _SIZE.unpack(self._receive(_SIZE.size))
            answer = self._receive(size)
        except OSError as error:
            raise UnreachableError(self._address, _reason(error)) from error
        self.correlation_id += 1
        return answer[_SIZE.size :]

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionResetError(None, "it has closed the connection")
            data += more
        return bytes(data)


def parse_address(text: str) -> tuple[str, int]:
    """Take HOST:PORT apart."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise UsageError(f'"{text}" has no port: write HOST:PORT')
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise UsageError(f'"{text}": {port} is no port')
    return host.strip("[]"), int(port)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
