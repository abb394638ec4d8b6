r"""The small languages of kcat: output formats, delimiters, headers, and where to begin.

A format is text with tokens and escapes in it, such as `%t [%p] at %o: %k = %s\n`.
"""

import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from siltstone.cli.output import encode_bytes, format_bytes
from siltstone.errors import UsageError
from siltstone.records.batch import TimestampType
from siltstone.records.record import Header, Record

_NULL: Final = b"NULL"
_BINARY_LENGTH: Final = struct.Struct(">i")
_NO_BROKER: Final = -1  # what librdkafka says when it does not know

_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-9]{1,3}|.)", re.DOTALL)
_ESCAPED_CONTROLS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_TOKEN: Final = re.compile(rb"%(.?)", re.DOTALL)
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_MAX_LONG: Final = 2**63 - 1


class ConsumedRecord(NamedTuple):
    """A record and where it came from."""

    topic: str
    partition: int
    timestamp_type: TimestampType
    record: Record


_Show: TypeAlias = Callable[[bytes | None], bytes]
_Token: TypeAlias = Callable[[ConsumedRecord, _Show], bytes]


class Format:
    """A parsed format; renders records as kcat does.

    Keys and values are written as the bytes they are, null as nothing, or as `NULL` if
    `shows_null`. `readable` writes them for people instead.
    """

    def __init__(self, text: str, *, readable: bool = False, shows_null: bool = False) -> None:
        self._parts = _parse_format(os.fsencode(text))
        self._show = _show_readable if readable else _show_null if shows_null else _show_raw

    def render(self, consumed: ConsumedRecord) -> bytes:
        """Write one record."""
        return b"".join(
            part if isinstance(part, bytes) else part(consumed, self._show) for part in self._parts
        )


def to_json(consumed: ConsumedRecord) -> dict[str, Any]:
    """Describe a record in kcat's JSON shape, with the encodings of key and value added."""
    record = consumed.record
    is_create_time = consumed.timestamp_type is TimestampType.CREATE_TIME
    document: dict[str, Any] = {
        "topic": consumed.topic,
        "partition": consumed.partition,
        "offset": record.offset,
        "tstype": "create" if is_create_time else "logappend",
        "ts": record.timestamp_ms,
        "broker": _NO_BROKER,
    }
    if record.headers:
        values = [encode_bytes(value) for _, value in record.headers]
        document["headers"] = [
            item
            for (name, _), value in zip(record.headers, values, strict=True)
            for item in (name, value.text)
        ]
        if any(value.encoding == "base64" for value in values):
            document["headers_encoding"] = [value.encoding for value in values]
    for name, encoding_name, data in (
        ("key", "key_encoding", record.key),
        ("payload", "value_encoding", record.value),
    ):
        encoded = encode_bytes(data)
        document[name] = encoded.text
        if encoded.encoding is not None:
            document[encoding_name] = encoded.encoding
    return document


def unescape(text: str) -> bytes:
    r"""Resolve `\n`, `\r`, `\t` and `\xNN` in a format or a delimiter."""
    return _unescape(os.fsencode(text))


def parse_delimiter(option: str, text: str) -> bytes:
    """Parse a delimiter, which must not be empty."""
    delimiter = unescape(text)
    if not delimiter:
        raise UsageError(f"{option} needs a delimiter of one character or more")
    return delimiter


def escape_percent(text: str) -> str:
    """Make a delimiter safe to stand in a format."""
    return text.replace("%", "%%")


def parse_header(text: str) -> Header:
    """Parse `name=value`, or `name` alone for a null value."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-H {text} has no name: write -H name=value, or -H name for null")
    return name, os.fsencode(value) if equals else None


class StartKind(Enum):
    """How a starting point is told."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TAIL = "tail"  # that many offsets before the end
    TIME = "time"  # the first record at or after


@dataclass(frozen=True, slots=True)
class Range:
    """Where to begin, and the time to stop at (not included), if any."""

    start: StartKind = StartKind.BEGINNING
    value: int = 0
    stop_ms: int | None = None


def parse_range(texts: Sequence[str]) -> Range:
    """Parse what was given with `-o`: one starting point at most, and one `e@ms` at most."""
    starts: list[tuple[StartKind, int]] = []
    stops: list[int] = []
    for text in texts:
        if text.startswith("e@"):
            stops.append(_parse_offset(text, text[2:]))
        elif text.startswith("s@"):
            starts.append((StartKind.TIME, _parse_offset(text, text[2:])))
        elif text.startswith("-"):
            starts.append((StartKind.TAIL, _parse_offset(text, text[1:])))
        elif text in _START_WORDS:
            starts.append((_START_WORDS[text], 0))
        else:
            starts.append((StartKind.OFFSET, _parse_offset(text, text)))
    if len(starts) > 1 or len(stops) > 1:
        raise UsageError(f"-o {' -o '.join(texts)}: give one start, and one e@ms to stop at")
    kind, value = starts[0] if starts else (StartKind.BEGINNING, 0)
    return Range(kind, value, stops[0] if stops else None)


_START_WORDS: Final[Mapping[str, StartKind]] = MappingProxyType(
    {
        "beginning": StartKind.BEGINNING,
        "earliest": StartKind.BEGINNING,
        "end": StartKind.END,
        "latest": StartKind.END,
    }
)


def _parse_offset(text: str, digits: str) -> int:
    if _NUMBER.fullmatch(digits) is None or (number := int(digits)) > _MAX_LONG:
        raise UsageError(f"-o {text}: use beginning, end, N, -N, s@ms or e@ms")
    return number


def _unescape(data: bytes) -> bytes:
    def replace(match: re.Match[bytes]) -> bytes:
        escaped = match[1]
        if escaped[:1] == b"x" and len(escaped) > 1:
            return bytes([int(escaped[1:], 16)])
        if escaped.isdigit():
            # As C reads numbers: a leading zero means octal. Eight and nine then end the game.
            is_octal = escaped[:1] == b"0" and not set(escaped) & set(b"89")
            return bytes([int(escaped, 8 if is_octal else 10) & 0xFF])
        return _ESCAPED_CONTROLS.get(escaped, escaped)

    return _ESCAPE.sub(replace, data)


def _parse_format(data: bytes) -> tuple[bytes | _Token, ...]:
    parts: list[bytes | _Token] = []
    position = 0
    for match in _TOKEN.finditer(data):
        parts.append(_unescape(data[position : match.start()]))
        position = match.end()
        letter = match[1].decode("latin-1")
        if letter == "%":
            parts.append(b"%")
        elif letter in _TOKENS:
            parts.append(_TOKENS[letter])
        else:
            known = " ".join(f"%{known}" for known in _TOKENS)
            raise UsageError(f"-f: unknown token %{letter}: use {known} or %%")
    parts.append(_unescape(data[position:]))
    return tuple(part for part in parts if part != b"")


def _number(number: int) -> bytes:
    return b"%d" % number


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(consumed: ConsumedRecord, show: _Show) -> bytes:
    # A null header value is always told from an empty one, whatever is done with keys and values.
    return b",".join(
        name.encode("utf-8") + b"=" + (_NULL if value is None else show(value))
        for name, value in consumed.record.headers
    )


_TOKENS: Final[Mapping[str, _Token]] = MappingProxyType(
    {
        "s": lambda consumed, show: show(consumed.record.value),
        "S": lambda consumed, show: _number(_length(consumed.record.value)),
        "R": lambda consumed, show: _BINARY_LENGTH.pack(_length(consumed.record.value)),
        "k": lambda consumed, show: show(consumed.record.key),
        "K": lambda consumed, show: _number(_length(consumed.record.key)),
        "T": lambda consumed, show: _number(consumed.record.timestamp_ms),
        "h": _headers,
        "t": lambda consumed, show: consumed.topic.encode("utf-8"),
        "p": lambda consumed, show: _number(consumed.partition),
        "o": lambda consumed, show: _number(consumed.record.offset),
    }
)


def _show_raw(data: bytes | None) -> bytes:
    return data or b""


def _show_null(data: bytes | None) -> bytes:
    return _NULL if data is None else data


def _show_readable(data: bytes | None) -> bytes:
    return format_bytes(data).encode("utf-8")
