"""A standalone Spark cluster from the installed wheel: a master and two workers, all local."""

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from siltstone.spark.driver_jvm import JAVA_OPTIONS, find_jars, find_java
from tests.support.ports import choose_port

# A speculative copy of a task goes to another host only, so there must be two.
_WORKER_HOSTS: Final = ("127.0.0.1", "127.0.0.2")
_START_SECONDS: Final = 180


class Cluster:
    """Where the cluster is, and what to tell Spark to use it."""

    def __init__(self, master: str, python: Path, directory: Path) -> None:
        self.master = master
        self.conf = {
            "spark.pyspark.python": str(python),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.cores.max": str(len(_WORKER_HOSTS)),
            "spark.executorEnv.XDG_CACHE_HOME": str(directory / "cache"),
            # A copy of each task that lags behind: whatever is tested, that does no harm.
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
        }
        self.python = python


@contextmanager
def start_cluster(directory: Path) -> Iterator[Cluster]:
    """Start a cluster; it ends with the block."""
    port = choose_port()
    master = f"spark://127.0.0.1:{port}"
    python = write_bare_python(directory)
    processes = [
        _start("master.Master", directory, "127.0.0.1", "--port", str(port)),
    ]
    try:
        _wait_for(port)
        for host in _WORKER_HOSTS:
            work = str(directory / "work" / host)
            options = ["--cores", "1", "--memory", "600m", "--work-dir", work, master]
            processes.append(_start("worker.Worker", directory, host, *options))
        yield Cluster(master, python, directory)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait()


def _start(main: str, directory: Path, host: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [
        str(find_java()),
        "-Xmx256m",
        *JAVA_OPTIONS,
        "-cp",
        f"{find_jars()}/*",
        f"org.apache.spark.deploy.{main}",
        *("--host", host, "--webui-port", "0"),
        *arguments,
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": str(find_jars().parent),
        "SPARK_SCALA_VERSION": "2.13",  # as the scripts find out, which are left out for speed
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(directory / "local"),
    }
    with (directory / f"{main}-{host}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def write_bare_python(directory: Path) -> Path:
    """Write a command that runs this Python with its packages, but without what is being tested.

    An editable install is a line in a `.pth` file, which `site` reads. With `-S` it is not run;
    what lies in the directory of packages itself is found through the path.
    """
    packages = sysconfig.get_path("purelib")
    command = directory / "bare-python"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n'
    )
    command.chmod(0o755)
    return command


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"no Spark master at port {port}")
