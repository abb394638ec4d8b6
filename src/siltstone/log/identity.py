"""The small files that say what a directory is, between bytes and values.

partition.metadata      which topic a partition directory belongs to
meta.properties         which cluster and node a log directory belongs to
.kafka_cleanshutdown    that the last owner of a log directory stopped in good order
"""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from siltstone.errors import CorruptCheckpointError
from siltstone.ids import TopicId

UNKNOWN_BROKER_EPOCH: Final = -1

_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1

_VERSION_LINE: Final = re.compile(r"version:\s+([0-9]{1,10})\s*")
_TOPIC_ID_LINE: Final = re.compile(r"topic_id:\s+(\S+)\s*")

# A key ends at the first '=', ':' or blank without a backslash before it.
_PROPERTY: Final = re.compile(
    r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_ESCAPED_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Whose log directory it is. Version 0 is from before KRaft, and may leave out anything."""

    version: int = 1
    cluster_id: str | None
    node_id: int | None
    directory_id: uuid.UUID | None = None


def parse_partition_metadata(path: Path, data: bytes) -> TopicId:
    """Parse the topic id of a partition; `path` only serves the error message."""
    # Of a version to come only the first two lines are known to mean the same: ignore the rest.
    lines = data.decode("utf-8", errors="replace").splitlines()
    version = _VERSION_LINE.fullmatch(lines[0]) if lines else None
    if version is None:
        raise CorruptCheckpointError(path, "line 1 is malformed")
    topic_id = _TOPIC_ID_LINE.fullmatch(lines[1]) if len(lines) > 1 else None
    if topic_id is None:
        raise CorruptCheckpointError(path, "line 2 is malformed")
    try:
        return TopicId.parse(topic_id[1])
    except ValueError as error:
        raise CorruptCheckpointError(path, str(error)) from error


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """Write the topic id of a partition: 43 bytes, with no line end after the last."""
    return f"version: 0\ntopic_id: {topic_id}".encode("ascii")


def parse_meta_properties(path: Path, data: bytes) -> MetaProperties:
    """Parse the identity of a log directory; `path` only serves the error message."""
    properties = parse_properties(data)
    version = _parse_int(path, "version", properties.get("version", "0"))
    if version not in (0, 1):
        raise CorruptCheckpointError(path, f"expected version 0 or 1, found {version}")

    cluster_id = properties.get("cluster.id")
    node_key = "broker.id" if version == 0 else "node.id"
    node_text = properties.get(node_key)
    node_id = None if node_text is None else _parse_int(path, node_key, node_text)
    if version == 1:
        for key in ("cluster.id", "node.id"):
            if key not in properties:
                raise CorruptCheckpointError(path, f"{key} is missing")
    return MetaProperties(
        version=version,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=_parse_directory_id(path, properties.get("directory.id")),
    )


def format_meta_properties(properties: MetaProperties) -> bytes:
    """Write the identity of a log directory.

    Kafka writes the same lines in another order, under a comment with the time of day.
    """
    directory_id = properties.directory_id
    values = {
        "version": str(properties.version),
        "cluster.id": properties.cluster_id,
        "broker.id" if properties.version == 0 else "node.id": properties.node_id,
        "directory.id": None if directory_id is None else TopicId(directory_id),
    }
    lines = [
        f"{key}={_escape_property(str(value))}\n"
        for key, value in values.items()
        if value is not None
    ]
    return "".join(lines).encode("ascii")


def parse_properties(data: bytes) -> dict[str, str]:
    """Read the format of java.util.Properties; of a name that comes twice the last one counts."""
    return dict(_iter_properties(data.decode("latin-1")))


def parse_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch of the last owner; None if the file does not tell.

    The file's presence says that the stop was clean, its content is only a courtesy.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int and -_MAX_LONG - 1 <= epoch <= _MAX_LONG else None


def format_clean_shutdown(broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> bytes:
    """Write what marks a clean stop."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode("ascii")


def _parse_int(path: Path, key: str, text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None or not -_MAX_INT <= int(text) <= _MAX_INT:
        raise CorruptCheckpointError(path, f"{key} is not a number: {text}")
    return int(text)


def _parse_directory_id(path: Path, text: str | None) -> uuid.UUID | None:
    if text is None:
        return None
    try:
        return TopicId.parse(text).value  # All of Kafka's ids are written alike.
    except ValueError as error:
        raise CorruptCheckpointError(path, f"directory.id is not an id: {text}") from error


def _iter_properties(text: str) -> Iterator[tuple[str, str]]:
    """Read the format of java.util.Properties."""
    lines = iter(re.split(r"\r\n|\n|\r", text))
    for line in lines:
        logical = line.lstrip(" \t\f")
        if not logical or logical[0] in "#!":
            continue
        # An odd number of backslashes at its end continues a line.
        while (len(logical) - len(logical.rstrip("\\"))) % 2 == 1:
            continuation = next(lines, None)
            if continuation is None:
                break
            logical = logical[:-1] + continuation.lstrip(" \t\f")
        match = _PROPERTY.fullmatch(logical)
        assert match is not None  # It matches any text.
        yield _unescape(match["key"]), _unescape(match["value"])


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        character = match[2] or ""
        return _ESCAPED_CONTROLS.get(character, character)

    # An escape holds half of a character beyond the first 65,536: join the halves.
    units = _ESCAPE.sub(replace, text).encode("utf-16-be", errors="surrogatepass")
    return units.decode("utf-16-be", errors="replace")


def _escape_property(text: str) -> str:
    escaped = re.sub(r"[\\=:#!]|^ ", r"\\\g<0>", text)
    for name, character in _ESCAPED_CONTROLS.items():
        escaped = escaped.replace(character, f"\\{name}")
    # Kafka reads Latin-1, whatever it has written: only ASCII is safe both ways.
    return "".join(_escape_character(character) for character in escaped)


def _escape_character(character: str) -> str:
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
