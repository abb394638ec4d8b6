"""How an error is told: one line for people, and an object on stderr for programs."""

import re
from typing import Final

import typer

from siltstone.cli import output
from siltstone.errors import SiltstoneError

DEBUG_FLAG: Final = "--debug"


def report(error: Exception, *, as_json: bool, about: str | None = None) -> None:
    """Write an error to stderr; `about` names what it concerns if that is not the whole command."""
    report_text(describe(error), error_code(error), as_json=as_json, about=about)


def report_text(text: str, code: str, *, as_json: bool, about: str | None) -> None:
    """Write an error of which only the words have come here."""
    message = " ".join(text.split("\n"))
    if about is not None and not message.startswith(about):
        message = f"{about}: {message}"
    output.print_message(f"silt: error: {message}")
    if as_json:
        document = {"error": {"code": code, "message": message}}
        output.print_message(output.format_json(document))


def describe(error: Exception) -> str:
    """Say what is wrong, where, and what to do."""
    if isinstance(error, SiltstoneError):
        return str(error)
    if isinstance(error, typer.TyperException):
        return _describe_usage(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'standard output'}: {error.strerror}"
    return f"{type(error).__name__}: {error}: this is a bug, {DEBUG_FLAG} shows where"


def error_code(error: Exception) -> str:
    """Return the name of an error that programs go by."""
    if isinstance(error, typer.TyperException):
        return "usage"
    if not isinstance(error, SiltstoneError):
        return "io" if isinstance(error, OSError) else "internal"
    return code_of_class(type(error).__name__)


def code_of_class(name: str) -> str:
    """Return the name that programs go by for a class of errors."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).lower()


def _describe_usage(error: typer.TyperException) -> str:
    if hasattr(error, "possibilities"):  # an unknown option; the class itself is private
        nearest = f": did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"unknown flag {getattr(error, 'option_name', '')}{nearest}"
    text = error.format_message().rstrip(".").replace("Value error, ", "")
    return text[:1].lower() + text[1:]
