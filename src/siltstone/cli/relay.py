"""Have a broker do what was asked for, and say what it says, as if it had been done here."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Annotated, Any, Final, TypeAlias

import typer

from siltstone.broker.client import BrokerClient
from siltstone.cli import output
from siltstone.errors import BrokerError, UnreachableError, UsageError

_FLAG: Final = "--bootstrap-server"
_LOG_DIR: Final = "--log-dir"

command_line: ContextVar[Sequence[str]] = ContextVar("command_line", default=())
"""The words of the command that runs, as they were typed."""

BootstrapServer: TypeAlias = Annotated[
    str | None,
    typer.Option(_FLAG, metavar="HOST:PORT", help="Ask this broker, instead of a log directory."),
]


def check_exclusive() -> None:
    """Refuse a directory and a broker at the same time."""
    if any(word.partition("=")[0] == _LOG_DIR for word in command_line.get()):
        raise UsageError(f"{_LOG_DIR} and {_FLAG} exclude each other")


def relay(address: str, arguments: Sequence[str] | None = None) -> None:
    """Have the command run on a broker's machine, print what it prints, and exit as it does."""
    check_exclusive()
    words = _without_flag(command_line.get()) if arguments is None else arguments
    with BrokerClient(address) as client:
        for piece in iter_answer(client, {"arguments": list(words)}):
            output.write(piece)
            output.flush()


def iter_answer(
    client: BrokerClient,
    question: dict[str, Any],
    write_message: Callable[[bytes], None] = output.write_message,
) -> Iterator[bytes]:
    """Yield what a broker's answer says on stdout; its messages go to stderr at once.

    Raises `typer.Exit` at the end unless the exit code is 0.
    """
    fields, rest = ask(client, question)
    number = fields["run"]
    try:
        while True:
            size = fields["message_bytes"]
            if size:
                write_message(rest[:size])
            if len(rest) > size:
                yield rest[size:]
            if fields["exit_code"] is not None:
                break
            fields, rest = ask(client, {"run": number})
    except BaseException:
        # Ctrl-C, or nobody reads on: the broker need not go on either.
        with suppress(UnreachableError):
            client.ask_command({"cancel": number})
        raise
    if fields["exit_code"]:
        raise typer.Exit(max(fields["exit_code"], 1))


def iter_lines(client: BrokerClient, question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of a broker's answer."""
    left = b""
    for piece in iter_answer(client, question):
        *lines, left = (left + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)


def ask(client: BrokerClient, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Ask something of the broker alone; raise what it has against it."""
    fields, rest = client.ask_command(question)
    if "error" in fields:
        raise (UsageError if fields.get("is_usage") else BrokerError)(fields["error"])
    return fields, rest


def _without_flag(words: Sequence[str]) -> list[str]:
    left = []
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word == _FLAG:
            skips = True
        elif not word.startswith(f"{_FLAG}="):
            left.append(word)
    return left
