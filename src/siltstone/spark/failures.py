"""What Spark raises when it gives up, and how to say it in one line."""

from typing import Final

from py4j.protocol import (  # type: ignore[import-untyped]  # No type hints are published.
    Py4JError,
    Py4JJavaError,
)
from pyspark.errors import PySparkException

SPARK_FAILURES: Final = (Py4JError, PySparkException, OSError, EOFError)
"""A task that failed too often, a driver or gateway that is gone."""


def explain(error: BaseException) -> str:
    """Say in one line what Spark says on many: the last line of the worker's traceback."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # A line of a Java stack begins with "at ", the frame of a Python one with "File ".
    frames = [number for number, line in enumerate(lines) if line.startswith("File ")]
    if frames:
        after = [line for line in lines[frames[-1] + 2 :] if not line.startswith(("at ", "^", "~"))]
        lines = after or lines
    return lines[0]
