"""The JVM of a local Spark, started by hand: two thirds less work than by Spark's own scripts.

`spark-submit` runs a JVM to find out how to run the JVM. That one then loads some ten thousand
classes from jars, checks them, and compiles with an eye on the hours to come. Here it is started at
once, with classes from an archive (see `class_archive`) and the quick compiler alone: what Spark
itself does in a pass is little, the work is done in Python workers.

Nothing slow is imported, so that a command can begin with this and import the rest meanwhile.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.errors import EngineError

_MAIN_CLASS: Final = "org.apache.spark.api.python.PythonGatewayServer"
_INFO_PATH: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # where that class writes port and secret
_LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")
_POLL_SECONDS: Final = 0.01

# With any of these, somebody has a Spark of their own, or has something to say to its scripts.
_OWNERS_VARIABLES: Final = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
)
_OWNERS_SETTINGS: Final = ("spark.jars", "spark.driver.extra", "spark.submit", "spark.plugins")

# As `spark-submit` gives them, but for the module of vector instructions: only MLlib looks for it,
# and with it every start prints a warning.
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xlog:disable",  # An archive that does not fit is no news to the user.
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)


class GatewayAddress(NamedTuple):
    """Where the JVM listens to the driver."""

    port: int
    secret: str


class DriverJvm:
    """A JVM that has been started; it ends with this process, or when it is closed."""

    def __init__(self, options: tuple[str, ...], memory: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="siltstone-spark-"))
        self._info_path = self._directory / "gateway"
        command = [
            str(find_java()),
            f"-Xmx{memory}",
            *JAVA_OPTIONS,
            *options,
            f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}",
            "-cp",
            f"{find_jars()}/*",
            _MAIN_CLASS,
        ]
        # A pipe that breaks ends the JVM, however this process ends. A group of its own, or Ctrl-C
        # would stop it before the driver could cancel anything.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env={**_environment(), _INFO_PATH: str(self._info_path)},
            process_group=0,
        )

    def wait_for_gateway(self) -> GatewayAddress:
        """Return where to connect, as soon as somebody listens there."""
        try:
            while not self._info_path.exists():
                if self._process.poll() is not None:
                    code = self._process.returncode
                    raise EngineError(f"Java ended with code {code}: Spark needs Java 17 or newer")
                time.sleep(_POLL_SECONDS)
            info = self._info_path.read_bytes()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
        size = int.from_bytes(info[4:8], "big")
        return GatewayAddress(int.from_bytes(info[:4], "big"), info[8 : 8 + size].decode())

    def close(self) -> None:
        """End the JVM and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class _Keeper:
    """Holds the JVM of this process, of which PySpark allows one: without a holder it would end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jvm: DriverJvm | None = None

    def launch(self, options: tuple[str, ...], memory: str) -> DriverJvm:
        with self._lock:
            if self._jvm is None:
                self._jvm = DriverJvm(options, memory)
            return self._jvm


launch: Final = _Keeper().launch
"""Start the JVM of this process, or return it if that was done before; does not wait for it."""


def find_java() -> Path:
    """Find the `java` command; raise EngineError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"in {home}, which is JAVA_HOME" if home else "on the PATH"
        raise EngineError(f"Spark needs Java 17 or newer, and there is no java {where}")
    return Path(found)


def find_jars() -> Path:
    """Find the jars of the installed PySpark, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EngineError('the Spark engine needs PySpark: pip install "siltstone[spark]"')
    return Path(spec.submodule_search_locations[0], "jars")


def is_ours_to_start(master: str, conf: Mapping[str, str]) -> bool:
    """Say whether a JVM is started here; otherwise PySpark does it, by its owner's settings."""
    return (
        master.startswith("local")
        and not any(name in os.environ for name in _OWNERS_VARIABLES)
        and not any(name.startswith(_OWNERS_SETTINGS) for name in conf)
    )


def _environment() -> dict[str, str]:
    # A host name that resolves slowly, or to an address without a route, is no reason to wait.
    return {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, "SPARK_CONNECT_MODE": "0"}
