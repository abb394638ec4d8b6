"""The options that commands have in common."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from siltstone.cli.log_dirs import DEFAULT_LOG_DIR
from siltstone.cli.output import OutputFormat
from siltstone.errors import UsageError

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


def parse_config(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse `name=value` pairs; whether the names exist is for the settings to say."""
    config = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"--config {pair}: write --config name=value")
        config[name.strip()] = value.strip()
    return config
