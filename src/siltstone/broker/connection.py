"""One client: frames in, answers out, in order, one request at a time.

The socket is ours, not a transport's: answers go from file to socket by `sendfile`, which the
loop's transports do not offer. What arrives while a request waits is left in the kernel's buffers
once ours is full, so that a client which sends faster than it is served waits by itself.
"""

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final, Protocol

from siltstone.broker.page_cache import is_cached, read_ahead
from siltstone.broker.wire import MIN_FRAME_BYTES, BadFrameError
from siltstone.log.filesystem import File
from siltstone.log.segment import FileSlice

logger = logging.getLogger(__name__)

Frame = list[bytes | FileSlice]

_SIZE: Final = struct.Struct(">i")
_INITIAL_BUFFER_BYTES: Final = 16 << 10
_BUSY_BUFFER_BYTES: Final = 256 << 10
_GATHERED_BYTES: Final = 64 << 10  # of answers, before they are sent together
_MAX_QUEUED_BYTES: Final = 8 << 20
_MAX_SENDFILE_BYTES: Final = 1 << 20  # then the others have their turn
_MAX_GATHERED: Final = 256  # chunks in one call; the kernel takes four times as many


class Limits(Protocol):
    """What connections share."""

    @property
    def max_request_bytes(self) -> int:
        """The largest request that is taken."""
        ...

    def may_grow(self, connection: "Connection", size_bytes: int) -> bool:
        """Say whether a connection may take so much more memory for a request; counts it."""
        ...

    def shrunk(self, connection: "Connection", size_bytes: int) -> None:
        """Learn that a connection has given back memory."""
        ...

    def may_serve(self) -> bool:
        """Say whether another request may be taken now; if not, `process` is called later."""
        ...

    def served(self) -> None:
        """Learn that a request that had to wait is over."""
        ...


Waiting = Coroutine[Any, Any, "Frame | None"]
Serve = Callable[[memoryview, "Connection"], "Frame | Waiting | None"]


class Connection:
    """A socket, what has arrived on it, and what is still to be sent."""

    def __init__(
        self,
        sock: socket.socket,
        serve: Serve,
        limits: Limits,
        on_close: Callable[["Connection"], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = sock.fileno()
        self._serve = serve
        self._limits = limits
        self._on_close = on_close
        self._buffer = bytearray(_INITIAL_BUFFER_BYTES)
        self._start = 0  # of what has arrived and is not served yet
        self._end = 0
        self._queue: deque[bytes | memoryview | FileSlice] = deque()
        self._queued_bytes = 0
        self._task: asyncio.Task[Frame | None] | None = None
        self._reading_ahead: asyncio.Future[None] | None = None
        self._is_reading = False
        self._is_writing = False
        self._is_draining = False
        self._is_processing = False
        self.is_closed = False
        self.local_host: Final = str(sock.getsockname()[0])
        self.peer: Final = sock.getpeername()
        self.peer_host: Final = str(self.peer[0])
        self.used_at = self._loop.time()
        self._read()

    @property
    def is_idle(self) -> bool:
        """Whether the client waits for nothing."""
        return self._task is None and not self._queue

    @property
    def is_waiting(self) -> bool:
        """Whether it is us that the client waits for, and not the client that takes no answer."""
        return self._task is not None or (not self._is_reading and not self._queue)

    def drain(self) -> None:
        """Serve nothing new; close once everything is answered."""
        self._is_draining = True
        if self.is_idle:
            self.close()

    def close(self) -> None:
        """Let go of everything; nobody waits for an answer any more."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        if self._task is not None:
            self._task.cancel()
        self._queue.clear()
        self._sock.close()
        self._shrink(0)
        self._on_close(self)

    # In

    def _read(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        if self._end == len(self._buffer) and not self._make_room():
            self._stop_reading()
            return
        try:
            with memoryview(self._buffer) as view:
                count = self._sock.recv_into(view[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self._end += count
        self.used_at = self._loop.time()
        self.process()

    def _make_room(self) -> bool:
        """Find room behind what has arrived; False if there is none now."""
        if self._start:
            rest = self._buffer[self._start : self._end]
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
            return True
        if self._task is not None or self._queued_bytes > _MAX_QUEUED_BYTES:
            return False
        size = len(self._buffer)
        grown = max(2 * size, _BUSY_BUFFER_BYTES)
        if grown > _BUSY_BUFFER_BYTES and not self._limits.may_grow(self, grown - size):
            return False
        self._buffer.extend(bytes(grown - size))
        return True

    def _shrink(self, size: int) -> None:
        """Give back the memory of a large request."""
        if len(self._buffer) > _BUSY_BUFFER_BYTES:
            self._limits.shrunk(self, len(self._buffer) - _BUSY_BUFFER_BYTES)
        self._buffer = bytearray(size)

    def process(self) -> None:
        """Serve the requests that have arrived, as far as may be."""
        if self._is_processing:
            return  # An answer that went out at once has called back.
        self._is_processing = True
        try:
            self._process()
        finally:
            self._is_processing = False
        self._maybe_flush()

    def _process(self) -> None:
        with memoryview(self._buffer) as whole, whole.toreadonly() as view:
            goes_on = self._serve_all(view)
        if not goes_on:
            return
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > _BUSY_BUFFER_BYTES:
                self._shrink(_BUSY_BUFFER_BYTES)
        if not self.is_closed and not self._is_draining:
            self._read()

    def _serve_all(self, view: memoryview) -> bool:
        """Serve what has arrived; False if the client has to wait for others, or for itself."""
        limits = self._limits
        max_bytes = limits.max_request_bytes
        while not self.is_closed and self._task is None and not self._is_draining:
            if self._queued_bytes > _GATHERED_BYTES:
                self._maybe_flush()
                if self._queued_bytes > _MAX_QUEUED_BYTES or self.is_closed:
                    return False  # The client does not read its answers.
            begin = self._start + _SIZE.size
            if begin > self._end:
                return True
            (size,) = _SIZE.unpack_from(view, self._start)
            if not MIN_FRAME_BYTES <= size <= max_bytes:
                self._refuse(f"a request of {size} bytes")
                return False
            end = begin + size
            if end > self._end:
                return True
            if not limits.may_serve():
                self._stop_reading()
                return False
            frame = view[begin:end]
            try:
                answer = self._serve(frame, self)
            except BadFrameError as error:
                self._refuse(error)
                return False
            finally:
                frame.release()
            self._start = end
            if answer is None:
                continue
            if isinstance(answer, list):
                self._put(answer)
                if len(answer) > 1:
                    self._maybe_flush()  # It holds files.
            else:
                self._task = self._loop.create_task(answer)
                self._task.add_done_callback(self._on_answer)
        return True

    def _refuse(self, reason: object) -> None:
        """Close for a request that cannot be answered; those before it are."""
        logger.warning("%s: %s: connection closed", self.peer, reason)
        self._maybe_flush()
        self.close()

    def _on_answer(self, task: "asyncio.Task[Frame | None]") -> None:
        self._limits.served()
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if self.is_closed:
            return
        if error is not None:
            self._refuse(error)
            return
        self.used_at = self._loop.time()
        answer = task.result()
        if answer is not None:
            self._send(answer)
        if self._is_draining and self.is_idle:
            self.close()
        else:
            self.process()

    # Out

    def _send(self, frame: Frame) -> None:
        was_empty = not self._queue
        self._put(frame)
        if was_empty:
            self._flush()

    def _put(self, frame: Frame) -> None:
        self._queue.extend(frame)
        for chunk in frame:
            if not isinstance(chunk, FileSlice):
                self._queued_bytes += len(chunk)

    def _maybe_flush(self) -> None:
        """Send the answers that were put together: each call takes as long as to serve one."""
        if self._queue and not self._is_writing and not self.is_closed:
            self._flush()

    def _flush(self) -> None:
        """Send as much as the socket takes, and come back for the rest."""
        queue = self._queue
        if self._reading_ahead is not None:
            return
        budget = 8 * _MAX_SENDFILE_BYTES
        try:
            while queue:
                chunk = queue[0]
                if isinstance(chunk, FileSlice):
                    budget -= self._send_file(chunk)
                else:
                    self._send_bytes(chunk)
                if budget <= 0 or self._reading_ahead is not None:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        self._watch_writable()

    def _send_bytes(self, chunk: bytes | memoryview) -> None:
        """Send what stands at the head of the queue up to the next file."""
        queue = self._queue
        if len(queue) == 1:
            sent = self._sock.send(chunk)
            if sent == len(chunk):
                queue.clear()
                self._queued_bytes -= sent
                return
        else:
            chunks: list[bytes | memoryview] = []
            for one in islice(queue, _MAX_GATHERED):
                if isinstance(one, FileSlice):
                    break
                chunks.append(one)
            more = socket.MSG_MORE if len(chunks) < len(queue) else 0
            sent = self._sock.sendmsg(chunks, (), more)
        self._queued_bytes -= sent
        while sent:
            one = queue[0]
            assert not isinstance(one, FileSlice)
            if sent < len(one):
                queue[0] = memoryview(one)[sent:]
                return
            sent -= len(one)
            queue.popleft()

    def _send_file(self, chunk: FileSlice) -> int:
        count = min(chunk.size_bytes, _MAX_SENDFILE_BYTES)
        if not is_cached(chunk.file, chunk.position, count):
            self._fetch_from_disk(chunk.file, chunk.position, count)
            return 0
        sent = os.sendfile(self._fd, chunk.file.fd, chunk.position, count)
        if not sent:
            raise OSError(f"{chunk.file.path} is shorter than was promised")
        if sent == chunk.size_bytes:
            self._queue.popleft()
        else:
            rest = chunk.size_bytes - sent
            self._queue[0] = FileSlice(chunk.file, chunk.position + sent, rest)
        return sent

    def _fetch_from_disk(self, file: File, position: int, count: int) -> None:
        """Have a thread read what is not in memory: the kernel would let everybody wait for it."""

        def done(reading: "asyncio.Future[None]") -> None:
            self._reading_ahead = None
            error = reading.exception()
            if self.is_closed:
                return
            if error is not None:
                self._refuse(f"{file.path} cannot be read: {error}")
            else:
                self._flush()

        self._reading_ahead = self._loop.run_in_executor(None, read_ahead, file, position, count)
        self._reading_ahead.add_done_callback(done)

    def _watch_writable(self) -> None:
        if self._queue and self._reading_ahead is None and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif (not self._queue or self._reading_ahead is not None) and self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self.used_at = self._loop.time()
        self._flush()
        if self.is_closed:
            return
        if self._is_draining and self.is_idle:
            self.close()
        elif self._task is None and self._queued_bytes <= _MAX_QUEUED_BYTES:
            self.process()
