"""What the log itself reports, shown like any other message of a command."""

import contextlib
import logging
from collections.abc import Iterator

from siltstone.cli import output


class MessageHandler(logging.Handler):
    """Shows what the log itself reports, such as a torn tail, like any other message."""

    def emit(self, record: logging.LogRecord) -> None:
        output.print_message(f"silt: {record.levelname.lower()}: {record.getMessage()}")


@contextlib.contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Show warnings and worse on stderr."""
    logger = logging.getLogger("siltstone")
    handler = MessageHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
