r"""Kafka's text checkpoints, between bytes and values.

A version, the number of entries, then one entry to a line:

    0\n2\norders 0 42\norders 1 7\n      topic, partition, offset
    0\n1\n3 42\n                         leader epoch, start offset

An empty file, or one that ends after the version, has no entries: Kafka creates them so.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.errors import CorruptCheckpointError
from siltstone.ids import TopicPartition
from siltstone.log.leader_epochs import EpochEntry

_VERSION: Final = 0
_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1

# Not splitlines() and split(): those also divide at characters that are none to Java.
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANKS: Final = re.compile(r"[ \t\x0b\f]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,100}")


class _Line(NamedTuple):
    number: int
    text: str


def parse_offsets(path: Path, data: bytes) -> dict[TopicPartition, int]:
    """Parse a checkpoint of offsets by partition; `path` only serves the error message."""
    offsets = {}
    for line in _parse_lines(path, data):
        fields = _split(line)
        if len(fields) != 3 or not fields[0]:
            raise _malformed(path, line)
        partition = _parse_number(path, line, fields[1], 0, _MAX_INT)
        # A negative offset is for the reader to judge: old Kafkas wrote -1 for "unknown".
        offset = _parse_number(path, line, fields[2], -_MAX_LONG - 1, _MAX_LONG)
        offsets[TopicPartition(fields[0], partition)] = offset
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Write a checkpoint of offsets; the same offsets always give the same bytes."""
    return _format_lines(
        f"{partition.topic} {partition.partition} {offset}"
        for partition, offset in sorted(offsets.items())
    )


def parse_epochs(path: Path, data: bytes) -> list[EpochEntry]:
    """Parse a checkpoint of leader epochs, in the order of the file."""
    entries = []
    for line in _parse_lines(path, data):
        fields = _split(line)
        if len(fields) != 2:
            raise _malformed(path, line)
        epoch = _parse_number(path, line, fields[0], 0, _MAX_INT)
        start_offset = _parse_number(path, line, fields[1], 0, _MAX_LONG)
        entries.append(EpochEntry(epoch, start_offset))
    return entries


def format_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Write a checkpoint of leader epochs, which come oldest first."""
    return _format_lines(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def _parse_lines(path: Path, data: bytes) -> list[_Line]:
    try:
        texts = _LINE_END.split(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = _Line(data.count(b"\n", 0, error.start) + 1, "")
        raise _malformed(path, line) from error
    if not texts[-1]:
        texts.pop()  # A line end ends a line, it does not begin another.

    lines = [_Line(number, text) for number, text in enumerate(texts, start=1)]
    if lines:
        version = _parse_number(path, lines[0], lines[0].text, -_MAX_INT - 1, _MAX_INT)
        if version != _VERSION:
            raise CorruptCheckpointError(path, f"expected version {_VERSION}, found {version}")
    if len(lines) < 2:
        return []

    entries = lines[2:]
    count = _parse_number(path, lines[1], lines[1].text, 0, _MAX_INT)
    if count != len(entries):
        raise CorruptCheckpointError(path, f"says {count} entries, found {len(entries)}")
    return entries


def _format_lines(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode("utf-8")


def _split(line: _Line) -> list[str]:
    fields = _BLANKS.split(line.text)
    if not fields[-1]:
        fields.pop()
    return fields


def _parse_number(path: Path, line: _Line, text: str, minimum: int, maximum: int) -> int:
    if _NUMBER.fullmatch(text) is None or not minimum <= (number := int(text)) <= maximum:
        raise _malformed(path, line)
    return number


def _malformed(path: Path, line: _Line) -> CorruptCheckpointError:
    return CorruptCheckpointError(path, f"line {line.number} is malformed")
