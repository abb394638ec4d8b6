"""Log directories on a disk that can be made to refuse, and what a log knows of its producers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.producer_state import ProducerState
from tests.support.clock import ManualClock
from tests.support.log_managers import BrokenDisk, OpenManager, crash


@pytest.fixture
def disk() -> BrokenDisk:
    return BrokenDisk()


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


@pytest.fixture
def open_manager(dirs: list[Path], disk: BrokenDisk, clock: ManualClock) -> Iterator[OpenManager]:
    """Open managers over the first `count` directories; all are let go of in the end."""
    opened: list[LogManager] = []

    def open_it(count: int = 1, **overrides: str) -> LogManager:
        settings = {name.replace("_", "."): value for name, value in overrides.items()}
        manager = LogManager(dirs[:count], fs=disk, clock=clock, overrides=settings)
        opened.append(manager)
        return manager

    yield open_it
    for manager in opened:
        crash(manager)


@pytest.fixture
def state() -> ProducerState:
    return ProducerState(TopicPartition("orders", 3))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The first log directory that `make_log` makes."""
    return tmp_path / "log-dir-1"
