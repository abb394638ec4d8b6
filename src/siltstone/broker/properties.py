"""Kafka's `server.properties`, between a file and names with values."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from siltstone.errors import StorageError, UsageError
from siltstone.log.identity import parse_properties


def read_properties(path: Path) -> dict[str, str]:
    """Read a file in the format of Java's properties."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error
    return parse_properties(data)


def merge_properties(file: Path | None, pairs: Sequence[str] | None) -> Mapping[str, str]:
    """Put `name=value` pairs of the command line over what a file says."""
    properties = {} if file is None else read_properties(file)
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{pair!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    return properties
