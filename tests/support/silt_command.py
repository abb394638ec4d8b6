"""`silt` in this process: what it prints, and how it ends."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from siltstone.cli.main import run


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    exit_code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Silt: TypeAlias = Callable[..., Finished]


def make_silt(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Silt:
    """Return a function that runs one command."""

    def call(
        *arguments: str | Path,
        stdin: bytes = b"",
        stdin_type: type[io.TextIOWrapper] = io.TextIOWrapper,
    ) -> Finished:
        monkeypatch.setattr(sys, "stdin", stdin_type(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        exit_code = run([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Finished(exit_code, captured.out, captured.err.decode("utf-8"))

    return call
