"""The Spark context: started when the first plan needs it, then kept warm.

A plain context is enough. The engine moves a few packed values per task, for which RDDs do; the
SQL session on top of them would double the time to the first result.
"""

import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.java_gateway import launch_gateway

from siltstone.cleaner.warm_up import warm_up, warm_up_stages
from siltstone.errors import EngineError
from siltstone.spark.driver_jvm import GatewayAddress
from siltstone.spark.failures import SPARK_FAILURES, explain
from siltstone.spark.launch import launch_driver
from siltstone.spark.mailbox import Mailbox
from siltstone.spark.package import DAEMON_MODULE, build_package

DEFAULT_MASTER: Final = "local[*]"

Gateway: TypeAlias = Any  # py4j's, which has no type hints
Started: TypeAlias = tuple[SparkContext, Mailbox]

_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.app.name": "siltstone",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Over TCP a worker waits 40 ms for each task: two small writes, and an acknowledgement between.
    "spark.python.unix.domain.socket.enabled": "true",
    # A worker is forked: without threads, and a pass has no use for those of a linear algebra.
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.shuffle.compress": "false",  # Hashes do not shrink.
    "spark.shuffle.spill.compress": "false",
}
_LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.python.daemon.module": "siltstone.spark.daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_CLUSTER_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.python.daemon.module": DAEMON_MODULE,
}


def is_local(master: str) -> bool:
    """Say whether a master URL means threads of this machine's JVM."""
    return master.startswith("local")


def full_conf(master: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a context; those of the caller win."""
    places = _LOCAL_DEFAULTS if is_local(master) else _CLUSTER_DEFAULTS
    return {"spark.master": master, **_DEFAULTS, **places, **overrides}


class Session:
    """One Spark context and the mailbox that its tasks write to.

    Spark allows one context in a process: a second session starts only after the first is closed.
    """

    def __init__(self, master: str, conf: Mapping[str, str]) -> None:
        self._master = master
        self._conf = dict(conf)
        self._lock = threading.Lock()
        self._started: Started | None = None

    def start(self) -> Started:
        """Return the context and its mailbox, started by the first call."""
        with self._lock:
            if self._started is None:
                gateway = find_or_start_gateway(self._master, self._conf)
                self._started = start_context(self._master, self._conf, gateway)
            return self._started

    def warm_up(self) -> None:
        """Start, and let a worker be forked for the first task to find."""
        context, _ = self.start()
        try:
            context.parallelize([None], 1).foreach(_do_nothing)
        except SPARK_FAILURES as error:
            raise EngineError(f"Spark does not work at {self._master}: {explain(error)}") from error

    def close(self) -> None:
        """Stop the context; the next start makes a new one."""
        with self._lock:
            if self._started is not None:
                self._started[0].stop()
                self._started = None


def find_or_start_gateway(master: str, conf: Mapping[str, str]) -> Gateway | None:
    """Return the way to a JVM of ours; None if PySpark has one or is to start it."""
    if SparkContext._gateway is not None:
        return None
    jvm = launch_driver(master, conf)
    if jvm is None:
        return None
    _import_pandas()
    return connect(jvm.wait_for_gateway())


def _import_pandas() -> None:
    """Import while Java starts what PySpark would import with its first call to it."""
    with warnings.catch_warnings(), suppress(ImportError):  # Then PySpark has no use for it.
        # Of a pandas that PySpark does not know yet: nothing here is given to it.
        warnings.simplefilter("ignore", FutureWarning)
        importlib.import_module("pyspark.testing.utils")


def connect(address: GatewayAddress) -> Gateway:
    """Connect to a JVM, as PySpark does when it was started by one."""
    variables = {
        "PYSPARK_GATEWAY_PORT": str(address.port),
        "PYSPARK_GATEWAY_SECRET": address.secret,
    }
    os.environ.update(variables)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in variables:
            del os.environ[name]


def start_context(master: str, conf: Mapping[str, str], gateway: Gateway | None) -> Started:
    """Start a context; raise EngineError if Spark cannot."""
    settings = full_conf(master, conf)
    try:
        with _signal_handler_kept():
            context = SparkContext(
                conf=SparkConf(loadDefaults=False).setAll(list(settings.items())), gateway=gateway
            )
    except (*SPARK_FAILURES, ValueError) as error:
        raise EngineError(f"Spark does not start at {master}: {explain(error)}") from error
    # Whatever `python3` may be on the path: workers must be of the driver's version.
    context.pythonExec = (
        settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    )
    if not is_local(master):
        _send_package(context)
    return context, Mailbox(context)


def _send_package(context: SparkContext) -> None:
    """Let every executor have this package, whether one is installed there or not."""
    # Kernels that are compiled here need not be compiled on every executor.
    warm_up()
    warm_up_stages()
    # In the directory that the context deletes when it stops: executors may come at any time.
    directory = Path(SparkFiles.getRootDirectory(), "package")
    directory.mkdir()
    package = build_package(directory)
    context.addPyFile(str(package))
    # Files arrive in the directory that an executor, and so its Python, is started in.
    paths = [package.name, context.environment.get("PYTHONPATH")]
    context.environment["PYTHONPATH"] = ":".join(path for path in paths if path)


def _do_nothing(_: object) -> None:
    pass


@contextmanager
def _signal_handler_kept() -> Iterator[None]:
    """Undo that a context takes over Ctrl-C, which is the command's or the broker's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
