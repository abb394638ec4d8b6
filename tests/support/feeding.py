"""Frames by the thousand to one broker: many to a connection, many connections side by side."""

import contextlib
import socket
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from siltstone.broker.wire import API_VERSIONS
from tests.support.serving import frame_of

_SIDE_BY_SIDE = 8
_PIPELINED = 50
_SLICE = 500
_SILENCE_SECONDS = 0.03  # then it waits for something: a fetch for records, say
_CORRELATION_POSITION = 8
_INT = struct.Struct(">i")


def feed(port: int, frames: Sequence[bytes]) -> None:
    """Send all frames, and return when the broker has had each of them."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        slices = [frames[at : at + _SLICE] for at in range(0, len(frames), _SLICE)]
        list(threads.map(lambda one: _feed_slice(port, one), slices))


def _feed_slice(port: int, frames: Sequence[bytes]) -> None:
    had = 0
    while had < len(frames):
        pipelined = frames[had : had + _PIPELINED]
        # Behind the last answer stands the frame that closed the connection, or that waits.
        had += min(len(pipelined), _answered(port, pipelined) + 1)


def _answered(port: int, frames: Sequence[bytes]) -> int:
    """Send frames and a sound one behind them; return how many are behind the broker for sure."""
    sound = frame_of(API_VERSIONS, 0, {})
    data = b"".join(_numbered(frame, at) for at, frame in enumerate([*frames, sound]))
    answered = 0
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.sendall(data)
        client.settimeout(_SILENCE_SECONDS)
        received = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while answered <= len(frames):
                try:
                    more = client.recv(1 << 20)
                except TimeoutError:
                    # What waits is dropped with the connection; its end shows that it was reached.
                    client.settimeout(120)
                    client.shutdown(socket.SHUT_WR)
                    continue
                if not more:
                    break
                received += more
                answered = _take_answers(received, answered)
    return answered


def _numbered(frame: bytes, number: int) -> bytes:
    head, rest = frame[:_CORRELATION_POSITION], frame[_CORRELATION_POSITION + _INT.size :]
    return head + _INT.pack(number) + rest


def _take_answers(received: bytearray, answered: int) -> int:
    """Remove whole answers; return how many frames are answered, or need no answer."""
    position = 0
    while len(received) - position >= 2 * _INT.size:
        size, number = struct.unpack_from(">ii", received, position)
        if len(received) - position < _INT.size + size:
            break
        assert number >= answered, "answers are in the order of their requests"
        answered = number + 1
        position += _INT.size + size
    del received[:position]
    return answered


def send_alone(port: int, frame: bytes) -> None:
    """Send a frame on a connection of its own, and wait until the broker has closed that."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=120) as client,
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
    ):
        client.sendall(frame)
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 20):
            pass
