"""Settings that were changed while the broker ran, in a copy of every log directory."""

import shutil
from pathlib import Path

import pytest

from siltstone.broker.dynamic_config import ALL_BROKERS, DynamicConfig
from siltstone.errors import LogDirOfflineError
from siltstone.log.filesystem import FileSystem

NAME = "log.retention.ms"


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.mkdir()
    return paths


def opened(log_dirs: list[Path], node_id: int = 0) -> DynamicConfig:
    return DynamicConfig(FileSystem(), log_dirs, {}, node_id)


def test_a_directory_that_is_gone_stops_no_change_and_is_outvoted_when_it_is_back(
    log_dirs: list[Path], tmp_path: Path
) -> None:
    config = opened(log_dirs)
    config.put(ALL_BROKERS, {NAME: "1000"})
    away = shutil.move(log_dirs[0], tmp_path / "away")

    config.put(ALL_BROKERS, {NAME: "2000"})
    shutil.move(away, log_dirs[0])

    assert opened(log_dirs).level(ALL_BROKERS) == {NAME: "2000"}


def test_a_change_that_no_directory_takes_is_none(log_dirs: list[Path]) -> None:
    config = opened(log_dirs)
    for path in log_dirs:
        path.rmdir()

    with pytest.raises(LogDirOfflineError):
        config.put(ALL_BROKERS, {NAME: "1000"})

    assert config.level(ALL_BROKERS) == {}


def test_what_was_changed_for_another_number_does_not_count(log_dirs: list[Path]) -> None:
    opened(log_dirs, node_id=1).put("1", {NAME: "1000"})
    renumbered = opened(log_dirs, node_id=2)

    assert "retention.ms" not in renumbered.merged().topic_defaults
    assert opened(log_dirs, node_id=1).merged().topic_defaults["retention.ms"] == "1000"
