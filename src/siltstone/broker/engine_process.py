"""The engine in a process of its own, so that its memory and its work are not the broker's.

Started with the first plans and kept. Plans go to its standard input and outcomes come back from
its standard output, each pickled, behind its length. When the broker ends, however it does, the
other end of the pipe closes, and the engine ends as well.
"""

import contextlib
import logging
import pickle
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, NamedTuple

from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.progress import PassProgress
from siltstone.errors import EngineError

logger = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">I")
_STOP_SECONDS: Final = 10


class Work(NamedTuple):
    """Plans of different partitions, and how fast all of them together may read and write."""

    plans: Sequence[CleaningPlan]
    io_bytes_per_second: float | None
    is_watched: bool = False  # somebody wants to know how far it is


def write_message(stream: IO[bytes], message: object) -> None:
    """Send one value to the process at the other end."""
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> object:
    """Receive one value; raise EOFError when the other end is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


class EngineProcess:
    """Runs plans in another process. One thread uses it; `close` may come from any."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command: Final = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def run_all(
        self, work: Work, on_progress: Callable[[PassProgress], None] | None = None
    ) -> Iterator[PassOutcome]:
        """Run plans side by side and yield how each ended, as soon as it has.

        If the process dies, the plans that are left end with an EngineError; the next ones
        start it anew.
        """
        left = {plan.pass_id: plan for plan in work.plans}
        try:
            process = self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            write_message(process.stdin, work)
            while left:
                outcome = read_message(process.stdout)
                if isinstance(outcome, PassProgress):
                    if on_progress is not None:
                        on_progress(outcome)
                    continue
                assert isinstance(outcome, PassOutcome)
                del left[outcome.plan.pass_id]
                yield outcome
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            status = self._end()
            reason = EngineError(f"the engine's process ended with status {status}: {error}")
            for plan in left.values():
                yield PassOutcome(plan, error=reason)

    def close(self) -> None:
        """End the process, also in the middle of a run."""
        self._is_closed = True
        self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise EOFError("the broker stops")
            if self._process is None or self._process.poll() is not None:
                logger.info("starting the engine: %s", " ".join(self._command))
                # A session of its own: Ctrl-C is for the broker, which ends it in good order.
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            return self._process

    def _end(self) -> int | None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return None
        if process.stdin is not None:
            # It may be gone before the last words have reached it.
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            return process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            if process.stdout is not None:
                process.stdout.close()
