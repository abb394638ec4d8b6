"""`silt` in this process, on a log directory of its own."""

import io
import os
from pathlib import Path

import pytest

from tests.support.silt_command import Silt, make_silt


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "data"
    monkeypatch.setenv("SILT_LOG_DIR", str(path))
    # Nobody pulls the plug here, and a command opens and closes the whole directory.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    return path


@pytest.fixture
def silt(
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Silt:
    return make_silt(monkeypatch, capsysbinary)
