"""`silt serve`: a broker over log directories."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer

from siltstone.broker.config import ServerConfig, parse_server_config
from siltstone.broker.engine_process import EngineProcess
from siltstone.broker.listeners import Listener, parse_listener
from siltstone.broker.process import Running
from siltstone.broker.process import serve as run_broker
from siltstone.broker.properties import merge_properties
from siltstone.cli import output
from siltstone.cli.log_dirs import DEFAULT_LOG_DIR
from siltstone.cli.serve_log import LogFormat, log_to_stderr
from siltstone.console.http import status_server

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
    spark_master: Annotated[
        str, typer.Option("--spark-master", metavar="URL", help="The Spark master to clean on.")
    ] = "local[*]",
    metrics_listen: Annotated[
        str | None,
        typer.Option(
            "--metrics-listen", metavar="HOST:PORT", help="Where to serve /metrics and /healthz."
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Lines for people, or JSON for programs.")
    ] = LogFormat.TEXT,
) -> None:
    """Serve the logs to Kafka's clients until SIGTERM or Ctrl-C."""
    settings = _settings(log_dir, listen, config, overrides)
    engine = EngineProcess([sys.executable, "-m", "siltstone.spark.service", spark_master])
    metrics = None if metrics_listen is None else parse_listener("--metrics-listen", metrics_listen)
    log_to_stderr(log_format)
    run_broker(settings, engine, lambda running: _beside(running, metrics))


def _settings(
    log_dir: list[Path] | None, listen: str | None, config: Path | None, pairs: list[str] | None
) -> ServerConfig:
    properties = dict(merge_properties(config, pairs))
    if log_dir:
        properties["log.dirs"] = ",".join(map(str, log_dir))
    if listen is not None:
        properties["listeners"] = listen
    return parse_server_config(properties)


@contextlib.asynccontextmanager
async def _beside(running: Running, metrics: Listener | None) -> AsyncIterator[None]:
    """Say where the broker is, once all of it is there."""
    async with contextlib.AsyncExitStack() as stack:
        if metrics is not None:
            port = await stack.enter_async_context(status_server(running, metrics))
            output.print_message(f"silt: metrics on {metrics.host}:{port}")
        endpoint = running.endpoint
        output.print_message(f"silt: serving on {endpoint.host}:{endpoint.port}")
        yield
