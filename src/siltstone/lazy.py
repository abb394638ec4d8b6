"""Modules that take long to load, and that not everybody needs who imports ours."""

import importlib
from typing import Any


class LazyModule:
    """Stands for a module, which is loaded when something of it is used for the first time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self._name), name)
        setattr(self, name, found)  # From now on it is not asked for here.
        return found
