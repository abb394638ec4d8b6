"""The Spark context: started when the first plan needs it, then kept warm.

A plain context is enough. The engine moves a few packed values per task, for which RDDs do; the
SQL session on top of them would double the time to the first result.
"""

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import SparkConf, SparkContext

from siltstone.errors import EngineError
from siltstone.spark.failures import SPARK_FAILURES, explain
from siltstone.spark.mailbox import Mailbox

DEFAULT_MASTER: Final = "local[*]"

_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.app.name": "siltstone",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.shuffle.compress": "false",  # Hashes do not shrink.
    "spark.shuffle.spill.compress": "false",
    "spark.python.daemon.module": "siltstone.spark.daemon",
}
_LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    # A name that resolves slowly, or to an address without a route, is no reason to wait.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def is_local(master: str) -> bool:
    """Say whether a master URL means threads of this machine's JVM."""
    return master.startswith("local")


def full_conf(master: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a context; those of the caller win."""
    conf = {"spark.master": master, **_DEFAULTS}
    if is_local(master):
        conf.update(_LOCAL_DEFAULTS)
    return {**conf, **overrides}


class Session:
    """One Spark context and the mailbox that its tasks write to.

    Spark allows one context in a process: a second session starts only after the first is closed.
    """

    def __init__(self, master: str, conf: Mapping[str, str], python: str | None = None) -> None:
        self._master = master
        self._conf = dict(conf)
        self._python = python or sys.executable
        self._lock = threading.Lock()
        self._started: tuple[SparkContext, Mailbox] | None = None

    def start(self) -> tuple[SparkContext, Mailbox]:
        """Return the context and its mailbox, started by the first call."""
        with self._lock:
            if self._started is None:
                context = self._start_context()
                self._started = context, Mailbox(context)
            return self._started

    def close(self) -> None:
        """Stop the context; the next start makes a new one."""
        with self._lock:
            if self._started is not None:
                self._started[0].stop()
                self._started = None

    def _start_context(self) -> SparkContext:
        conf = SparkConf(loadDefaults=False).setAll(
            list(full_conf(self._master, self._conf).items())
        )
        try:
            with _signal_handler_kept():
                context = SparkContext(conf=conf)
        except (*SPARK_FAILURES, ValueError) as error:
            raise EngineError(
                f"Spark does not start at {self._master}: {explain(error)}"
            ) from error
        # Whatever `python3` may be on the path: workers must be of the driver's version.
        context.pythonExec = self._python
        return context


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
