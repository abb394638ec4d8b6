"""What `silt --bootstrap-server` asks of a broker, beyond what Kafka's protocol has.

A command that only reads runs as a process of its own, on the broker's directories, for which it
needs no lock: however much it reads, the clients do not wait for it, and its memory goes with it.
What it prints is handed to whoever asked, piece by piece. Plans are carried out by the broker's own
cleaner, for the owner of a log commits.

Whatever runs has a number, by which the client asks for the next piece.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from siltstone.broker.broker import Broker
from siltstone.broker.cleaner import Asked, Cleaner
from siltstone.broker.command_frames import DEFAULTS_VARIABLE, encode_answer
from siltstone.cleaner.compaction import Outcome, PlannedWork
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.progress import Progress
from siltstone.cleaner.retention import RetentionPlan
from siltstone.errors import BrokerError, SiltstoneError, UsageError
from siltstone.ids import TopicPartition

_READING: Final = frozenset(
    {"plan", "verify", "history", "get", "scan", "count", "offsets", "topics"}
)
_READING_TOPICS: Final = frozenset({"list", "describe"})
# Whatever names a file of the broker's machine, or another place to look at.
_REFUSED: Final = ("--log-dir", "--bootstrap-server", "--key-schema", "--plan")
_MAX_RUNS: Final = 16
_MAX_QUEUED: Final = 8
_PIECE_BYTES: Final = 64 << 10
_ANSWER_BYTES: Final = 512 << 10
_WAIT_SECONDS: Final = 5.0
_FORGET_SECONDS: Final = 600.0


@dataclass(slots=True)
class _Run:
    """Something that runs, and what it has said since it was last asked."""

    pieces: "asyncio.Queue[tuple[str, bytes | int]]" = field(
        default_factory=lambda: asyncio.Queue(_MAX_QUEUED)
    )
    cancel: Callable[[], None] = lambda: None
    forgotten: asyncio.TimerHandle | None = None


class Commands:
    """Runs what clients ask for; all of it is used on the event loop."""

    def __init__(self, broker: Broker, cleaner: Cleaner) -> None:
        self._broker = broker
        self._cleaner = cleaner
        self._runs: dict[int, _Run] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, question: bytes) -> bytes:
        """Answer a question; whoever asked wrongly is told so."""
        try:
            fields = json.loads(question)
            head, rest = await self._answer(fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            head, rest = _refusal(UsageError(f"the broker does not understand that: {error}")), b""
        except SiltstoneError as error:
            head, rest = _refusal(error), b""
        return encode_answer(head, rest)

    def close(self) -> None:
        """End whatever runs."""
        for number in list(self._runs):
            self._forget(number)

    async def _answer(self, fields: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        if "arguments" in fields:
            return await self._next(await self._start_process(fields["arguments"]))
        if "compact" in fields:
            return await self._next(self._start_compaction(fields["compact"]))
        if "roll" in fields:
            await self._roll([TopicPartition(*pair) for pair in fields["roll"]])
            return {}, b""
        if "cancel" in fields:
            self._forget(fields["cancel"])
            return {}, b""
        return await self._next(fields["run"])

    # What runs

    def _add(self, run: _Run) -> int:
        number = next(self._numbers)
        self._runs[number] = run
        self._remind(number)
        return number

    def _check_room(self) -> None:
        if len(self._runs) >= _MAX_RUNS:
            raise BrokerError(f"{_MAX_RUNS} commands run on the broker already: try again later")

    def _remind(self, number: int) -> None:
        """Forget a run if nobody asks for it any more."""
        run = self._runs[number]
        if run.forgotten is not None:
            run.forgotten.cancel()
        loop = asyncio.get_running_loop()
        run.forgotten = loop.call_later(_FORGET_SECONDS, self._forget, number)

    def _forget(self, number: int) -> None:
        run = self._runs.pop(number, None)
        if run is not None:
            run.cancel()
            if run.forgotten is not None:
                run.forgotten.cancel()

    async def _next(self, number: int) -> tuple[dict[str, Any], bytes]:
        """Wait for something to be said, and return all that was."""
        run = self._runs.get(number)
        if run is None:
            raise BrokerError(f"no command {number} runs on the broker")
        self._remind(number)
        said: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
        exit_code = None
        with contextlib.suppress(TimeoutError):
            kind, piece = await asyncio.wait_for(run.pieces.get(), _WAIT_SECONDS)
            while True:
                if isinstance(piece, int):
                    exit_code = piece
                    self._forget(number)
                    break
                said[kind] += piece
                if run.pieces.empty() or sum(map(len, said.values())) >= _ANSWER_BYTES:
                    break
                kind, piece = run.pieces.get_nowait()
        head = {"run": number, "exit_code": exit_code, "message_bytes": len(said["err"])}
        return head, bytes(said["err"] + said["out"])

    # Commands that read

    async def _start_process(self, arguments: Sequence[str]) -> int:
        _check_arguments(arguments)
        self._check_room()
        directories = [d for d in self._broker.manager.directories if not d.is_offline]
        words = [word for d in directories for word in ("--log-dir", str(d.path))]
        at = 2 if arguments[0] == "topics" else 1
        # What it finds on disk should be what the logs are at this moment.
        await self._broker.blocking(self._broker.manager.checkpoint)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "siltstone", *arguments[:at], *words, *arguments[at:]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(self._broker.server_config.topic_defaults),
        )

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

        run = _Run(cancel=kill)
        self._keep(asyncio.create_task(_relay(process, run)))
        return self._add(run)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Plans

    async def _roll(self, partitions: Sequence[TopicPartition]) -> None:
        def roll() -> None:
            for partition in partitions:
                log = self._broker.manager.get_log(partition)
                if log.config.is_compacted and log.segments.active.size_bytes:
                    log.roll()

        await self._broker.blocking(roll)

    def _start_compaction(self, asked: dict[str, Any]) -> int:
        work = PlannedWork(
            [CleaningPlan.from_json(json.dumps(fields)) for fields in asked["plans"]],
            [RetentionPlan.from_json(json.dumps(fields)) for fields in asked["retention"]],
        )
        self._check_room()
        loop = asyncio.get_running_loop()
        run = _Run(pieces=asyncio.Queue())

        def say(document: Mapping[str, Any]) -> None:
            line = json.dumps(document).encode() + b"\n"
            loop.call_soon_threadsafe(run.pieces.put_nowait, ("out", line))

        def show(progress: Progress) -> None:
            say({"progress": dataclasses.asdict(progress)})

        def finish(done: "Future[Outcome]") -> None:
            if not done.cancelled():
                say(_describe(done))
                loop.call_soon_threadsafe(run.pieces.put_nowait, ("exit", 0))

        outcome: Future[Outcome] = Future()
        outcome.add_done_callback(finish)
        run.cancel = partial(_cancel, outcome)
        rate = asked.get("io_bytes_per_second")
        self._cleaner.carry_out(Asked(work, bool(asked["dry_run"]), rate, show, outcome))
        return self._add(run)


def _cancel(outcome: "Future[Outcome]") -> None:
    outcome.cancel()  # Once it runs, it is brought to its end.


async def _relay(process: asyncio.subprocess.Process, run: _Run) -> None:
    """Hand on what a process says; it waits itself while nobody asks for it."""

    async def read(stream: asyncio.StreamReader | None, kind: str) -> None:
        assert stream is not None
        while piece := await stream.read(_PIECE_BYTES):
            await run.pieces.put((kind, piece))

    await asyncio.gather(read(process.stdout, "out"), read(process.stderr, "err"))
    await run.pieces.put(("exit", await process.wait()))


def _check_arguments(arguments: Sequence[str]) -> None:
    command = arguments[0] if arguments else ""
    reads = command in _READING
    if command == "topics":
        reads = len(arguments) > 1 and arguments[1] in _READING_TOPICS
    if not reads:
        raise UsageError(f"the broker runs no {' '.join(arguments[:2])}")
    for word in arguments:
        if word.startswith(_REFUSED):
            raise UsageError(f"{word.partition('=')[0]} makes no sense with --bootstrap-server")


def _environment(defaults: Mapping[str, str]) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SILT_")}
    return {**environment, DEFAULTS_VARIABLE: json.dumps(dict(defaults))}


def _describe(done: "Future[Outcome]") -> dict[str, Any]:
    error = done.exception()
    if error is not None:
        return {"error": str(error) or type(error).__name__}
    outcome = done.result()
    return {
        "done": outcome.describe(),
        "failures": [
            {**dataclasses.asdict(partition), "kind": type(error).__name__, "message": str(error)}
            for partition, error in outcome.failures
        ],
    }


def _refusal(error: SiltstoneError) -> dict[str, Any]:
    return {"error": str(error), "is_usage": isinstance(error, UsageError)}
