"""The life of a broker: open the logs, listen, look after things, and stop in good order."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import uvloop

from siltstone.broker import wire
from siltstone.broker.broker import Broker, Endpoint
from siltstone.broker.cleaner import Cleaner, PassEngine
from siltstone.broker.commands import Commands
from siltstone.broker.compiler_memory import release_compiler
from siltstone.broker.config import ServerConfig
from siltstone.broker.dispatch import Dispatcher
from siltstone.broker.listeners import parse_listener
from siltstone.broker.maintenance import Maintenance
from siltstone.broker.metrics import RequestMetrics
from siltstone.broker.server import Server
from siltstone.broker.warm_up import warm_up
from siltstone.clock import Clock, SystemClock
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.records.scan import use_stored_kernels

logger = logging.getLogger(__name__)

_DEFAULT_LOG_DIR: Final = "silt-data"
_SWITCH_SECONDS: Final = 0.0005


class Running(NamedTuple):
    """A broker that runs, for those who watch it."""

    endpoint: Endpoint
    broker: Broker
    server: Server
    cleaner: Cleaner
    requests: RequestMetrics


Beside: TypeAlias = Callable[[Running], AbstractAsyncContextManager[object]]


def serve(config: ServerConfig, engine: PassEngine, beside: Beside) -> None:
    """Run a broker until SIGTERM or SIGINT, and `beside` it what it is given to as it runs."""
    # Two threads beside the event loop decide and commit: requests should not wait for them long.
    sys.setswitchinterval(_SWITCH_SECONDS)
    _allow_many_files()
    uvloop.run(_serve(config, engine, beside))


def _allow_many_files() -> None:
    """Take all the file handles that may be had: a log needs three, a client one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: ServerConfig, engine: PassEngine, beside: Beside) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopped.set)
    async with running(config, engine) as broker, beside(broker):
        await stopped.wait()
        logger.info("stopping: answering what was asked, then closing the logs")


@contextlib.asynccontextmanager
async def running(
    config: ServerConfig, engine: PassEngine, clock: Clock | None = None
) -> AsyncIterator[Running]:
    """Run a broker for the time of a block."""
    fs = FileSystem()
    clock = clock or SystemClock()
    listener = parse_listener("listeners", config.broker.listeners)
    paths = [Path(p.strip()) for p in (config.broker.log_dirs or _DEFAULT_LOG_DIR).split(",")]
    wire.preload(all_versions=False)
    use_stored_kernels()
    warm_up()
    release_compiler()
    manager = LogManager(
        paths,
        fs=fs,
        clock=clock,
        defaults=config.topic_defaults,
        producer_expiration_ms=config.broker.producer_id_expiration_ms,
    )
    try:
        broker = Broker(config, manager, fs, clock)
        requests = RequestMetrics()
        server = Server(broker, Dispatcher(broker, requests))
        maintenance = Maintenance(broker)
        cleaner = Cleaner(manager, fs, clock, engine, lambda: broker.server_config.broker)
        commands = Commands(broker, cleaner)
        broker.answer_command = commands.answer
        broker.coordinators.start()
        bound = server.listen(listener)
        broker.endpoint = _advertised(config, bound)
        maintenance.start()
        broker.groups.start()
        cleaner.start()
        # What is loaded by now stays: looking through it again and again would hold up requests.
        gc.collect()
        gc.freeze()
        try:
            yield Running(bound, broker, server, cleaner, requests)
        finally:
            commands.close()
            broker.purgatory.close()
            broker.groups.close()
            await server.close()
            await broker.coordinators.stop()
            await maintenance.stop()
            await asyncio.to_thread(cleaner.stop)
            broker.close()
    finally:
        manager.close()


def _advertised(config: ServerConfig, bound: Endpoint) -> Endpoint:
    if config.broker.advertised_listeners:
        named = parse_listener("advertised.listeners", config.broker.advertised_listeners)
        return Endpoint(named.host, named.port)
    listener = parse_listener("listeners", config.broker.listeners)
    return Endpoint("" if listener.is_any else bound.host, bound.port)
