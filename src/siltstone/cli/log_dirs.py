"""Which log directories a command works on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from siltstone.errors import StorageError

DEFAULT_LOG_DIR: Final = Path("silt-data")


def resolve_log_dirs(paths: Sequence[Path] | None) -> list[Path]:
    """Return the log directories that were asked for, or the default."""
    return list(paths or [DEFAULT_LOG_DIR])


def check_log_dirs(paths: Sequence[Path]) -> None:
    """Raise StorageError unless every log directory is there."""
    for path in paths:
        if not path.exists():
            raise StorageError(f"{path} does not exist")
        if not path.is_dir():
            raise StorageError(f"{path} is not a directory")
