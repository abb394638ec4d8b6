"""The log of a broker, on stderr: read by people, or by programs, long afterwards."""

import json
import logging
import sys
import time
from datetime import UTC, datetime
from enum import StrEnum


class LogFormat(StrEnum):
    """Who reads it."""

    TEXT = "text"
    JSON = "json"


def log_to_stderr(log_format: LogFormat) -> None:
    """Write every message of ours with its time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if log_format is LogFormat.JSON else _text())
    logger = logging.getLogger("siltstone")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)


def _text() -> logging.Formatter:
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    return formatter


class _JsonLines(logging.Formatter):
    """One object on a line for each message; a stack trace is a field of it."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
