"""Find the command, run it, and turn every failure into one line and an exit code.

    0    done
    1    it failed
    2    wrong usage
    130  interrupted

A command's module is loaded when the command is called: most of them bring along the compiler of
the kernels, which takes longer than the rest of the program.
"""

import importlib
import itertools
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
import typer.main

import siltstone
from siltstone.cli import failures, output, relay
from siltstone.cli.command_group import CommandGroup
from siltstone.cli.messages import logging_to_stderr
from siltstone.errors import (
    ConfigError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

# What `silt --help` says, so that it need not load them.
_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "topics": "Create, list, describe, alter and delete topics.",
        "produce": "Append records from standard input or files to a topic.",
        "consume": "Print the records of a topic.",
        "dump": "Show what is in log, index, snapshot and checkpoint files, and verify it.",
        "offsets": "Print the offsets of partitions, by time or at their ends.",
        "plan": "Explain which partitions are due for compaction, and why the others are not.",
        "compact": "Compact what is due for it, on Spark.",
        "history": "Show what each compaction of a topic did.",
        "get": "Print the last value of a key.",
        "scan": "Print a topic as a table: the last value of each key, or what has changed.",
        "count": "Count records, live keys and tombstones.",
        "export": "Write the last value of each key to Parquet or Iceberg.",
        "serve": "Serve the logs to Kafka's clients.",
        "verify": "Prove that logs are sound and compacted right, or list what is wrong.",
    }
)


class _Commands(CommandGroup):
    """The commands of `silt`, each in the module of its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"siltstone.cli.{cmd_name}")
        return typer.main.get_command(module.app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


app = typer.Typer(cls=_Commands, add_completion=False, rich_markup_mode=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.print_line(f"silt {siltstone.__version__}")
        raise typer.Exit


@app.callback(help="A log that settles to the last value of every key, in Kafka's format.")
def silt(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            failures.DEBUG_FLAG, help="Show a stack trace with an error; stands anywhere."
        ),
    ] = False,
) -> None:
    """Take what stands before the command."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    with logging_to_stderr():
        try:
            return _run(arguments)
        except OSError as error:
            return fail_to_print(error, arguments)


def fail_to_print(error: OSError, arguments: Sequence[str]) -> int:
    """End a command whose answer cannot be written; return its exit code."""
    # Files of a log have errors of their own: this is about where we print to. What is left of
    # the answer goes nowhere, or Python would try again, and fail, when it exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return EXIT_OK  # whoever reads has seen enough
    return _fail(error, arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        words = [argument for argument in arguments if argument != failures.DEBUG_FLAG]
        relay.command_line.set(words)
        exit_code = _invoke(words)
        output.flush()
    except OSError:
        raise
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the edge: nobody above could say it better
        return _fail(error, arguments)
    return exit_code


def _invoke(arguments: list[str]) -> int:
    # Not `app()`: it has an opinion of its own on closed pipes and interrupts.
    command = typer.main.get_command(app)
    try:
        with command.make_context("silt", arguments) as context:
            command.invoke(context)
    except typer.Exit as request:
        return request.exit_code
    return EXIT_OK


def _fail(error: Exception, arguments: Sequence[str]) -> int:
    if failures.DEBUG_FLAG in arguments:
        traceback.print_exception(error)
    failures.report(error, as_json=_wants_json(arguments))
    return _exit_code(error)


def _exit_code(error: Exception) -> int:
    if isinstance(error, UnknownTopicError | TopicExistsError):
        return EXIT_FAILED  # asked well, but the answer is no
    is_usage = isinstance(error, UsageError | ConfigError | typer.TyperException)
    return EXIT_USAGE if is_usage else EXIT_FAILED


def _wants_json(arguments: Sequence[str]) -> bool:
    # From the words alone: an error may come before they are parsed.
    following = itertools.pairwise(arguments)
    return "--output=json" in arguments or ("--output", "json") in following
