"""Kafka's own cleaner over driven logs: what it would choose, and its passes, one at a time.

    selection = select(log, checkpoint=None)
    done = clean(log, selection.first_dirty_offset, selection.limit_offset)

Selection comes from the manager that the broker's cleaner threads ask, a pass from the class that
they run. Neither reads a checkpoint file or a clock of its own: both are arguments here.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.kafka.harness import Harness
from tests.kafka.jvm import java_command
from tests.kafka.log_ops import DrivenLog, KafkaRefusedError, LogOps

_MAX_POSTED: Final = 100  # answers that wait must fit the pipe, or both sides would wait
_COMPLAINT: Final = re.compile(r"\S+ (WARN|ERROR|FATAL) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What Kafka's cleaner finds out about a log before it chooses one."""

    is_eligible: bool
    first_dirty_offset: int
    limit_offset: int  # where the lag, the last stable offset or the active segment stop it
    first_uncleanable_offset: int  # the base of the segment that holds the limit
    clean_bytes: int
    cleanable_bytes: int
    cleanable_ratio: float | None  # None if there is nothing at all
    resets_checkpoint: bool
    compaction_delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPass:
    """The end of a pass, and what Kafka counted on the way."""

    next_dirty_offset: int
    first_uncleanable_offset: int
    bytes_read: int
    bytes_written: int
    messages_read: int  # without those of batches that go as a whole
    messages_written: int
    invalid_messages_read: int  # without a key
    map_messages_read: int
    seconds: float  # as its log line says, by the machine's clock


def select(log: DrivenLog, checkpoint: int | None) -> Selection:
    """Ask Kafka's cleaner about a log whose last pass left this checkpoint; nothing is written."""
    return Selection(**log.call("cleanable", checkpoint=checkpoint))


def clean(
    log: DrivenLog,
    first_dirty_offset: int,
    limit_offset: int,
    *,
    io_bytes: int = 65_536,
    map_bytes: int = 1_048_576,
    write_checkpoint: bool = False,
    wants_state: bool = True,
) -> KafkaPass:
    """Let Kafka's cleaner run one pass, due or not, under the log's clock.

    `io_bytes` is how much it reads at a time. The offset map takes 24 bytes per key, of which nine
    in ten are used; if it is too small for the dirty keys, the pass ends where it is full. With
    `write_checkpoint` the end is noted in the file beside the log's directory. To look at the state
    afterwards takes long for a large log.
    """
    result = log.call(
        "clean",
        first_dirty_offset=first_dirty_offset,
        limit_offset=limit_offset,
        io_bytes=io_bytes,
        map_bytes=map_bytes,
        write_checkpoint=write_checkpoint,
        state=wants_state,
    )
    return KafkaPass(**result)


class WatchedLogOps(LogOps):
    """A process of one's own, whose warnings can be asked for, and which need not be waited for."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self._seen_bytes = 0
        self._posted: list[str] = []

    def post(self, op: str, log: DrivenLog, **fields: Any) -> None:
        """Send a command whose answer is of no interest; if Kafka throws, a later call raises."""
        stdin = self._process.popen.stdin
        assert stdin is not None
        line = {"op": op, "log": log.name, "state": False, **fields}
        stdin.write(json.dumps(line).encode() + b"\n")
        self._posted.append(op)
        if len(self._posted) == _MAX_POSTED:
            self.settle()

    def settle(self) -> None:
        """Wait for all that was posted; raise what Kafka threw."""
        stdin, stdout = self._process.popen.stdin, self._process.popen.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.flush()
        posted, self._posted = self._posted, []
        answers = [stdout.readline() for _ in posted]
        for op, line in zip(posted, answers, strict=True):
            if not line:
                raise RuntimeError(f"the harness ended at {op}:\n{self._stderr_tail()}")
            answer = json.loads(line)
            if not answer["ok"]:
                raise KafkaRefusedError(answer["error"])

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one command after all that was posted, and give the whole answer."""
        self.settle()
        return super().call(op, **fields)

    def complaints(self) -> list[str]:
        """Give the warnings and errors that Kafka has logged since this was last called."""
        # Not by seeking: the process writes at the position that both have in common.
        size = os.fstat(self._stderr.fileno()).st_size
        text = os.pread(self._stderr.fileno(), size - self._seen_bytes, self._seen_bytes)
        self._seen_bytes = size
        lines = text.decode(errors="replace").splitlines()
        return [line for line in lines if _COMPLAINT.match(line)]


def start_watched(harness: Harness) -> WatchedLogOps:
    """Start such a process; close it, or use it in a `with`."""
    return WatchedLogOps(
        java_command(harness.classpath, "siltstone.harness.LogOps", log_level="WARN")
    )
