"""The engines that are held against Kafka's cleaner: one line for each."""

from collections.abc import Callable, Mapping
from typing import Final

from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.reference import ReferenceEngine

# How to make it, and of the random logs it gets every n-th: what all engines have in common need
# not be looked at as often for each.
ENGINES: Final[Mapping[str, tuple[Callable[[], CleaningEngine], int]]] = {
    "reference": (ReferenceEngine, 1),
    "local": (LocalEngine, 4),
}


def close_engine(engine: CleaningEngine) -> None:
    """Stop what an engine has started, if it is of that kind."""
    close = getattr(engine, "close", None)
    if close is not None:
        close()
