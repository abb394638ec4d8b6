"""Broker settings that were changed while it ran; they last, and go over the file's.

Kafka keeps two levels: for all brokers, under an empty name, and for one. The narrower one wins.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from siltstone.broker.config import DYNAMIC, ServerConfig, parse_server_config, topic_synonyms
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
        for path in self._paths:
            data = fs.read_file(path)
            if data is not None:
                self._levels |= _parse(path, data)
                break

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
        data = json.dumps({"version": 0, "levels": levels}, indent=2, sort_keys=True) + "\n"
        for path in self._paths:
            self._fs.write_atomically(path, data.encode())
        self._levels = levels
        return self.merged()

    def _merge(self, levels: Mapping[str, Mapping[str, str]]) -> ServerConfig:
        merged = dict(self.static)
        for level in sorted(levels):
            merged |= levels[level]
        return parse_server_config(merged)


def _parse(path: Path, data: bytes) -> dict[str, dict[str, str]]:
    try:
        levels = json.loads(data)["levels"]
        return {str(k): {str(n): str(v) for n, v in level.items()} for k, level in levels.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptCheckpointError(path, f"makes no sense: {error}") from error
