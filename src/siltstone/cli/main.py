"""`silt`: the command, which loads no more than it needs."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from siltstone.cli import quick_get
from siltstone.cli.messages import logging_to_stderr


def main() -> None:
    """Run `silt` and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    question = quick_get.parse_quick_get(arguments)
    code: int
    if question is not None:
        try:
            with logging_to_stderr():
                is_answered = quick_get.answer(question)
        except OSError as error:
            code = _load_program().fail_to_print(error, arguments)
            return code
        if is_answered:
            return 0
    code = _load_program().run(arguments)
    return code


def _load_program() -> Any:
    return importlib.import_module("siltstone.cli.program")
