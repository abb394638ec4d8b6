"""The options that commands have in common."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from siltstone.cli.output import OutputFormat
from siltstone.errors import StorageError, UsageError

DEFAULT_LOG_DIR: Final = Path("silt-data")

LogDirs: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        envvar="SILT_LOG_DIR",
        metavar="DIR",
        help="Log directory; once for each of several.",
        show_default=f"./{DEFAULT_LOG_DIR}",
    ),
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="Topic setting for this run, over the stored one; may be repeated.",
    ),
]
Output: TypeAlias = Annotated[
    OutputFormat, typer.Option("--output", help="A table for people, or JSON for programs.")
]


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


def parse_config(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse `name=value` pairs; whether the names exist is for the settings to say."""
    config = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"--config {pair}: write --config name=value")
        config[name.strip()] = value.strip()
    return config
