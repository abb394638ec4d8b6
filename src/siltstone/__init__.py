"""Siltstone, a Kafka-compatible keyed log."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siltstone.table.table import Logs

__version__ = "0.1.0"

__all__ = ["__version__", "open"]


def open(*paths: str | Path) -> "Logs":
    """Open log directories for reading: `siltstone.open("silt-data").table("orders")`."""
    # Here, or every command would load what only this needs.
    from siltstone.table.table import open_logs  # noqa: PLC0415

    return open_logs(*paths)
