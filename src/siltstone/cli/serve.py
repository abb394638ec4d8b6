"""`silt serve`: a broker over log directories."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from siltstone.broker.broker import Endpoint
from siltstone.broker.config import ServerConfig, parse_server_config
from siltstone.broker.process import serve as run_broker
from siltstone.broker.properties import merge_properties
from siltstone.cli import output
from siltstone.cli.options import DEFAULT_LOG_DIR

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def serve(
    log_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--log-dir",
            envvar="SILT_LOG_DIR",
            metavar="DIR",
            help="Log directory; once for each of several. Made if it is not there.",
            show_default=f"log.dirs of the file, or ./{DEFAULT_LOG_DIR}",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes any that is free."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings, as in Kafka's server.properties."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, over the file's."),
    ] = None,
) -> None:
    """Serve the logs to Kafka's clients until SIGTERM or Ctrl-C."""
    logging.getLogger("siltstone").setLevel(logging.INFO)
    run_broker(_settings(log_dir, listen, config, overrides), _announce)


def _settings(
    log_dir: list[Path] | None, listen: str | None, config: Path | None, pairs: list[str] | None
) -> ServerConfig:
    properties = dict(merge_properties(config, pairs))
    if log_dir:
        properties["log.dirs"] = ",".join(map(str, log_dir))
    if listen is not None:
        properties["listeners"] = listen
    return parse_server_config(properties)


def _announce(endpoint: Endpoint) -> None:
    output.print_message(f"silt: serving on {endpoint.host}:{endpoint.port}")
