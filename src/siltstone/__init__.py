"""Siltstone, a Kafka-compatible keyed log."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siltstone.table.table import Logs

__version__ = "0.1.0"

__all__ = ["__version__", "open"]


def open(*paths: str | Path) -> "Logs":
    """Open log directories for reading: `siltstone.open("silt-data").table("orders")`."""
    # Not at the top: every room imports this module, and none may depend on all of them.
    logs: Logs = importlib.import_module("siltstone.table.table").open_logs(*paths)
    return logs
