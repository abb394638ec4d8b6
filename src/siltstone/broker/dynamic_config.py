"""Broker settings that were changed while it ran; they last, and go over the file's.

Kafka keeps two levels: for all brokers, under an empty name, and for one. The narrower one wins.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.broker.config import DYNAMIC, ServerConfig, parse_server_config, topic_synonyms
from siltstone.broker.copies import write_copies
from siltstone.errors import ConfigError, CorruptCheckpointError
from siltstone.log.filesystem import FileSystem

FILE_NAME: Final = "silt-broker-config.json"
ALL_BROKERS: Final = ""


def is_dynamic(name: str) -> bool:
    """Say whether a broker setting acts without a restart."""
    return name in DYNAMIC or (
        name in topic_synonyms() and not name.endswith((".hours", ".minutes"))
    )


class DynamicConfig:
    """What was changed, by level, in a file of every log directory."""

    def __init__(
        self, fs: FileSystem, log_dirs: Sequence[Path], static: Mapping[str, str], node_id: int
    ) -> None:
        self._fs = fs
        self._paths: Final = [path / FILE_NAME for path in log_dirs]
        self.static: Final = dict(static)
        self._node: Final = str(node_id)
        self._levels: dict[str, dict[str, str]] = {ALL_BROKERS: {}, self._node: {}}
        self._generation = 0
        found = [(path, fs.read_file(path)) for path in self._paths]
        copies = [_parse(path, data) for path, data in found if data is not None]
        if copies:
            # A directory that was away has missed what was changed meanwhile.
            newest = max(copies, key=lambda copy: copy.generation)
            self._generation = newest.generation
            self._levels |= newest.levels

    def level(self, name: str) -> Mapping[str, str]:
        """Return what was changed for one broker, or for all of them."""
        return self._levels.get(name, {})

    def is_level(self, name: str) -> bool:
        """Say whether a name stands for this broker, or for all."""
        return name in (ALL_BROKERS, self._node)

    def merged(self) -> ServerConfig:
        """Return the settings that count."""
        return self._merge(self._levels)

    def check(self, name: str, values: Mapping[str, str]) -> None:
        """Raise ConfigError unless a level may have these values."""
        # First whether they make sense at all: an unknown name is told the nearest one.
        self._merge({**self._levels, name: dict(values)})
        for changed, value in values.items():
            if not is_dynamic(changed):
                raise ConfigError(changed, value, "cannot change without a restart")

    def put(self, name: str, values: Mapping[str, str]) -> ServerConfig:
        """Replace the values of a level, durably, and return the settings that count now."""
        self.check(name, values)
        levels = {**self._levels, name: dict(values)}
        generation = self._generation + 1
        content = {"version": 0, "generation": generation, "levels": levels}
        data = json.dumps(content, indent=2, sort_keys=True) + "\n"
        write_copies(self._fs, self._paths, data.encode())
        self._levels, self._generation = levels, generation
        return self.merged()

    def _merge(self, levels: Mapping[str, Mapping[str, str]]) -> ServerConfig:
        merged = dict(self.static)
        # Not those of another number that this broker may have had.
        for level in (ALL_BROKERS, self._node):
            merged |= levels[level]
        return parse_server_config(merged)


class _Copy(NamedTuple):
    """What one directory knows."""

    generation: int  # each write raises it
    levels: dict[str, dict[str, str]]


def _parse(path: Path, data: bytes) -> _Copy:
    try:
        content = json.loads(data)
        levels = {
            str(level): {str(name): str(value) for name, value in values.items()}
            for level, values in content["levels"].items()
        }
        return _Copy(int(content.get("generation", 0)), levels)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptCheckpointError(path, f"makes no sense: {error}") from error
